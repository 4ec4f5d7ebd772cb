"""A step of a layer on a known graph never makes the host wait: it can be captured."""

import pytest
import torch

from pygfuse.cuda import kernels
from pygfuse.cuda.kernel import Kernel
from tests.support.cases import EDGE_NETWORKS, EDGES, GAT, GAT_EDGES, PLAIN
from tests.support.interpreter import forget_kernels
from tests.support.parity import GRAPHS
from tests.support.waits import waits

LAYERS = GAT, GAT_EDGES, *PLAIN, *EDGES


class NothingIsComputed(Kernel):
    """A kernel that is launched and leaves what is there."""

    def __call__(self, *arguments):
        pass


@pytest.fixture
def _as_on_a_gpu(monkeypatch, in_place_of_the_cpu):
    monkeypatch.setattr(kernels, 'Kernel', NothingIsComputed)
    monkeypatch.setattr('pygfuse.ops.nodes.linear._is_matrix', lambda x: False)
    forget_kernels()
    yield
    forget_kernels()


@pytest.mark.parametrize('layer', LAYERS, ids=str)
@pytest.mark.usefixtures('_as_on_a_gpu')
def test_a_step_makes_nobody_wait(layer):
    conv, step = step_of(layer)
    # the first builds what the others use
    step().backward()
    with waits() as found:
        step().backward()
    assert conv.note.reason is None
    assert found == {}


@pytest.mark.parametrize('name', EDGE_NETWORKS)
@pytest.mark.usefixtures('_as_on_a_gpu')
def test_networks_on_chunks_of_edges(name):
    conv, step = step_of(EDGE_NETWORKS[name])
    step().backward()
    with waits() as found:
        loss = step()
    # before a maximum, whether a row of a weight is zero, so that all edges tie
    assert found.keys() <= ({'aten._local_scalar_dense'} if conv.aggr == 'max' else set())
    with waits() as found:
        loss.backward()
    assert conv.note.reason is None
    assert found == {}


def step_of(layer):
    """A fused layer, and what gives a loss each time."""
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
        return conv(**inputs).sum()

    return conv, step
