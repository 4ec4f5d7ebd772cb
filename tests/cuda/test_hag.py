"""HAGs level by level, with the CPU's walks in place of the GPU's: outputs and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pygfuse.cpu import backend as cpu
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.hag import hag_aggregate
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.transforms import find_hag


def forward(call, out=None):
    found, statistics = cpu.forward(call)
    return (found if out is None else out.copy_(found)), statistics


@pytest.fixture(scope='module', autouse=True)
def _levels_of_a_gpu():
    from pygfuse.cuda import hag as levels

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('pygfuse.ops.hag.hag_walks_of', lambda device: levels)
        patch.setattr(levels.backend, 'forward', forward)
        yield


@settings(max_examples=60, deadline=None)
@given(
    sources=st.integers(1, 20),
    targets=st.integers(1, 20),
    degree=st.integers(0, 15),
    seed=st.integers(0, 2**20),
    reduce=st.sampled_from(['sum', 'mean', 'max', 'min']),
    ties=st.booleans(),
)
def test_equals_the_plain_path(sources, targets, degree, seed, reduce, ties):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.stack(
        [torch.randint(n, (degree * targets,), generator=generator) for n in (sources, targets)]
    )  # fmt: skip
    hag = find_hag(edge_index, (sources, targets), capacity=None)
    x = torch.randn(sources, 6, generator=generator, dtype=torch.float64)
    x = (x.round() if ties else x).requires_grad_()
    grad = torch.randn(targets, 6, generator=generator, dtype=torch.float64)
    plain = aggregate(NEIGHBOURS, Edges(edge_index, sources, targets), {'x': x}, 1, 6, reduce).flatten(1)
    found = hag_aggregate(hag, x, reduce)
    torch.testing.assert_close(found, plain)
    wanted, gradient = (torch.autograd.grad(out, x, grad)[0] for out in (plain, found))
    torch.testing.assert_close(gradient, wanted)


def test_factors_and_depth():
    edge_index = torch.tensor([[1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 5, 1, 2], [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3]])
    hag = find_hag(edge_index, (6, 4), capacity=None)
    assert hag.depth > 1
    x, factors, row_factors = torch.randn(6, 6), torch.rand(6), torch.rand(4)
    dense = torch.zeros(4, 6).index_put_((edge_index[1], edge_index[0]), torch.tensor(1.0), accumulate=True)
    found = hag_aggregate(hag, x, 'sum', factors, row_factors)
    torch.testing.assert_close(found, row_factors[:, None] * (dense @ (factors[:, None] * x)))
