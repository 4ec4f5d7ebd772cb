"""A step of a layer on a known graph never makes the host wait: it can be captured."""

import pytest
import torch

from pygfuse.cuda import kernels
from pygfuse.cuda.kernel import Kernel
from tests.support.cases import EDGES, GAT, GAT_EDGES, PLAIN
from tests.support.interpreter import forget_kernels
from tests.support.parity import GRAPHS
from tests.support.waits import waits


class NothingIsComputed(Kernel):
    """A kernel that is launched and leaves what is there."""

    def __call__(self, *arguments):
        pass


@pytest.fixture
def _as_on_a_gpu(monkeypatch, in_place_of_the_cpu):
    monkeypatch.setattr(kernels, 'Kernel', NothingIsComputed)
    monkeypatch.setattr('pygfuse.ops.linear._is_matrix', lambda x: False)
    forget_kernels()
    yield
    forget_kernels()


@pytest.mark.parametrize('layer', [GAT, GAT_EDGES, *PLAIN, *EDGES], ids=str)
@pytest.mark.usefixtures('_as_on_a_gpu')
def test_a_step_makes_nobody_wait(layer):
    graph = GRAPHS['self-loops']()
    _, conv = layer.pair()
    given = {**layer.inputs(graph), 'edge_index': graph.edge_index}

    def step():
        inputs = {
            name: value.clone().requires_grad_()
            if isinstance(value, torch.Tensor) and value.is_floating_point()
            else value
            for name, value in given.items()
        }
        conv(**inputs).sum().backward()

    # the first builds what the others use
    step()
    with waits() as found:
        step()
    assert conv.note.reason is None
    assert found == {}
