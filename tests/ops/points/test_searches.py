"""What holds of all searches among points, of the nearest and of those within a distance."""

from __future__ import annotations

import concurrent.futures
import os

import pytest
import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from pygfuse import knn, knn_graph, radius, radius_graph

GRAPHS = {
    'knn_graph': lambda x, batch=None: knn_graph(x, 9, batch),
    'radius_graph': lambda x, batch=None: radius_graph(x, 0.7, batch),
}
SEARCHES = {
    **{name: lambda x, search=search: search(x) for name, search in GRAPHS.items()},
    'knn': lambda x: knn(x, x, 3),
    'radius': lambda x: radius(x, x, 1.0),
}


def points(count: int, dims: int = 3) -> Tensor:
    return torch.randn(count, dims, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize('name', GRAPHS)
def test_threads_and_runs_give_the_same(name):
    x, batch = points(3000), torch.arange(3).repeat_interleave(1000)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            found.append(GRAPHS[name](x, batch))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert torch.equal(found[0], other)


@pytest.mark.parametrize('name', GRAPHS)
def test_several_threads_at_once(name):
    x = points(500)
    expected = GRAPHS[name](x)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: GRAPHS[name](x), range(16)):
            assert torch.equal(found, expected)


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='there is no fork')
@pytest.mark.filterwarnings('ignore:.*fork.*:DeprecationWarning')
@pytest.mark.parametrize('name', GRAPHS)
def test_after_a_fork(name):
    x = points(1500)
    expected = GRAPHS[name](x)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(GRAPHS[name](x), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize('name', SEARCHES)
def test_no_gradient_flows(name):
    assert not SEARCHES[name](points(30).requires_grad_()).requires_grad


@pytest.mark.parametrize('name', GRAPHS)
def test_torch_compile_sees_no_break(name):
    x, batch = points(64), torch.arange(2).repeat_interleave(32)

    def neighbours(x, batch):
        return GRAPHS[name](x, batch) + 0

    compiled = torch.compile(neighbours, fullgraph=True, backend='aot_eager')
    # how many edges there are depends on the points: torch 2.9 breaks at such operators unless told not to
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=TorchVersion(torch.__version__) < '2.13'):
        torch.testing.assert_close(compiled(x, batch), neighbours(x, batch))
