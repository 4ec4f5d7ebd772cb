"""Networks of stages on few edges, by one kernel, beside the same with values of all edges in plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pygfuse.cpu.few_edges import stages as few_edge_stages
from pygfuse.memory import saved_bytes
from pygfuse.ops import Edges
from pygfuse.ops.edge_mlp import Affine, Begin, EdgeStage, Map, Normalise, Plus, Times
from pygfuse.ops.edge_mlp.drops import DropsOfEdges
from pygfuse.ops.edge_mlp.few_edges import kernels_of, network_along
from pygfuse.ops.edge_mlp.reference import reduced, values_of
from pygfuse.ops.edge_mlp.stages import written
from pygfuse.program.activation import Activation
from tests.ops.edge_mlp.test_edge_mlp import leaves_of
from tests.support.parity import GRAPHS, Example, random_edges

WIDTH = 6
DTYPES = [torch.float64, torch.float32]


def leaf(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()


def networks(example: Example, dtype: torch.dtype) -> dict[str, list[EdgeStage]]:
    """Each stage in each of its forms."""

    def of(*shape: int) -> Tensor:
        return leaf(*shape, dtype=dtype)

    sources, targets, edges = example.num_sources, example.num_targets, example.edge_index.shape[1]
    drops = DropsOfEdges(edges, torch.empty(0, dtype=dtype))
    silu, relu, first = Activation('silu'), Activation('relu'), Map(of(16, WIDTH), of(16))
    return {
        'sources': [Begin(of(sources, WIDTH)), silu],
        'targets': [Begin(None, of(targets, WIDTH)), first],
        'features': [Begin(features=of(edges, WIDTH)), first, relu],
        'all': [Begin(of(sources, WIDTH), of(targets, WIDTH), of(edges, WIDTH)), relu, first, silu],
        'two maps': [Begin(of(sources, WIDTH), of(targets, WIDTH)), silu, first, relu, Map(of(1, 16), None)],
        'features added': [
            *(Begin(of(sources, WIDTH)), Plus(of(edges, 3), of(WIDTH, 3)), silu, first, Plus(of(edges, 16)), relu),
        ],
        'factors': [Begin(features=of(edges, WIDTH)), first, Times(of(sources, 16), of(edges, 16)), silu],
        'a number': [Begin(of(sources, WIDTH), of(targets, WIDTH)), first, Times(of(sources, 16), of(edges, 1))],
        'a number behind wider values': [
            *(Begin(features=of(edges, 20)), Map(of(WIDTH, 20), None), silu, Times(of(sources, WIDTH), of(edges, 1))),
        ],
        'a number alone': [Begin(of(sources, 1), of(targets, 1)), Times(None, of(edges, 1)), Map(of(20, 1), of(20))],
        'normalised at the end': [Begin(of(sources, WIDTH)), first, Normalise(of(16), of(16), 1e-5)],
        'normalised, wide': [
            *(Begin(of(sources, WIDTH), of(targets, WIDTH)), Map(of(70, WIDTH), of(70)), Normalise(of(70), None, 0.1)),
            *(silu, Map(of(WIDTH, 70), of(WIDTH)), Normalise(None, None, 1e-3), relu, first),
        ],
        'normalised at first': [
            Begin(None, of(targets, WIDTH)),
            Normalise(None, of(WIDTH), 0.1),
            Plus(of(edges, WIDTH)),
        ],
        'dropped': [
            *(Begin(of(sources, WIDTH), of(targets, WIDTH)), relu, drops.stage(WIDTH, 0.3), first, silu),
            *(drops.stage(16, 0.5), Map(of(20, 16), of(20))),
        ],
        'dropped at first and last': [Begin(of(sources, WIDTH)), drops.stage(WIDTH, 0.3), first, drops.stage(16, 0.5)],
        'one column': [Begin(of(sources, 1), of(targets, 1)), silu, Map(of(1, 1), of(1))],
    }


NAMES = list(networks(GRAPHS['random'](), torch.float64))
REDUCTIONS = ['sum', 'max', 'none', 'sum and values', 'max and values']


@pytest.fixture(params=[1, 2], ids=['one part', 'two parts'])
def parts(request, monkeypatch) -> None:
    monkeypatch.setattr(few_edge_stages, 'MOST_OF_ONE_PART', 2**40 if request.param == 1 else -1)


def results(stages: list[EdgeStage], example: Example, reduction: str) -> list[Tensor]:
    """By kernels."""
    edges, reduce = Edges(example.edge_index, example.num_sources, example.num_targets), reduction.split()[0]
    network = kernels_of(stages, edges, reduce)
    assert network is not None
    with_state = reduction == 'none' or 'values' in reduction
    out, state = network_along(network, stages, edges, with_state)
    assert (state is None) == (not with_state)
    return [t for t in (None if reduction == 'none' else out, state) if t is not None]


def expected(stages: list[EdgeStage], example: Example, reduction: str) -> list[Tensor]:
    sources, targets = example.edge_index
    values, reduce = values_of(stages, sources, targets), reduction.split()[0]
    found = [] if reduce == 'none' else [reduced(values, targets, example.num_targets, reduce)]
    return [*found, values] if reduce == 'none' or 'values' in reduction else found


def gradients(outs: list[Tensor], stages: list[EdgeStage], leaves=None, create_graph: bool = False) -> list[Tensor]:
    generator, leaves = torch.Generator().manual_seed(1), leaves or leaves_of(stages)
    grads = [torch.randn(out.shape, dtype=torch.float64, generator=generator).to(out.dtype) for out in outs]
    return list(torch.autograd.grad(outs, leaves, grads, create_graph=create_graph))


def _cases():
    for graph in ('random', 'bipartite, more targets', 'isolated nodes', 'one node with a loop'):
        for name in NAMES:
            is_slow = 'normalised' in name and graph in ('bipartite, more targets', 'isolated nodes')
            yield pytest.param(graph, name, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.usefixtures('parts')
@pytest.mark.parametrize('reduction', REDUCTIONS)
@pytest.mark.parametrize(('graph', 'name'), _cases())
@pytest.mark.parametrize('dtype', DTYPES, ids=str)
def test_values_and_gradients(graph, name, reduction, dtype):
    torch.manual_seed(0)
    example = GRAPHS[graph]()
    stages = networks(example, dtype)[name]
    found, right = results(stages, example, reduction), expected(stages, example, reduction)
    tolerance = {'rtol': 1e-4, 'atol': 1e-4} if dtype == torch.float32 else {}
    torch.testing.assert_close(found, right, **tolerance)
    torch.testing.assert_close(gradients(found, stages), gradients(right, stages), **tolerance)


class Guarded:
    """In place of ``Tensor.new_empty``: memory between marks."""

    MARK, LENGTH = -12345.0, 4096

    def __init__(self) -> None:
        self.made: list[tuple[Tensor, int]] = []

    def new_empty(self, like: Tensor, *shape, **_) -> Tensor:
        shape = torch.Size(shape[0] if isinstance(shape[0], (tuple, list)) else shape)
        whole = torch.full((shape.numel() + 2 * self.LENGTH,), self.MARK, dtype=like.dtype)
        self.made.append((whole, shape.numel()))
        return whole[self.LENGTH : self.LENGTH + shape.numel()].view(shape)

    def check(self) -> None:
        assert self.made
        for whole, length in self.made:
            assert bool((whole[: self.LENGTH] == self.MARK).all())
            assert bool((whole[self.LENGTH + length :] == self.MARK).all())


@pytest.mark.usefixtures('parts')
@pytest.mark.parametrize('reduction', REDUCTIONS)
@pytest.mark.parametrize(
    ('edges', 'name'), [*((1000, name) for name in NAMES), *((3, name) for name in NAMES if 'normalised' in name)]
)
def test_nothing_is_written_beyond_what_is_theirs(edges, name, reduction, monkeypatch):
    guarded, example = Guarded(), Example(random_edges(60, 60, edges), 60, 60)
    stages = networks(example, torch.float32)[name]
    monkeypatch.setattr(torch.Tensor, 'new_empty', lambda *given, **more: guarded.new_empty(*given, **more))
    gradients(results(stages, example, reduction), stages)
    guarded.check()


@pytest.mark.parametrize('reduction', REDUCTIONS)
@pytest.mark.parametrize('name', ['all', 'features added', 'factors', 'a number'])
def test_gradients_that_nobody_wants(name, reduction):
    torch.manual_seed(0)
    example = GRAPHS['random']()
    stages = networks(example, torch.float64)[name]
    tensors = written(stages)[1]
    for one in tensors:
        for tensor in tensors:
            tensor.requires_grad_(tensor is one)
        found, right = results(stages, example, reduction), expected(stages, example, reduction)
        torch.testing.assert_close(gradients(found, stages, [one]), gradients(right, stages, [one]))


@pytest.mark.parametrize('tiny', [False, True], ids=['in chunks', 'by torch'])
@pytest.mark.parametrize('reduction', ['sum', 'none', 'sum and values', 'max'])
@pytest.mark.parametrize('name', ['features added', 'factors', 'all', 'dropped'])
def test_gradients_of_gradients(name, reduction, tiny, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_AT_ONCE_BYTES', 2**20 if tiny else 0)
    torch.manual_seed(0)
    example = GRAPHS['random']()
    stages = networks(example, torch.float64)[name]
    both = []
    for make in (results, expected):
        first = gradients(make(stages, example, reduction), stages, create_graph=True)
        total = sum(t.square().sum() for t in first)
        both.append(torch.autograd.grad(total, leaves_of(stages), allow_unused=True, materialize_grads=True))
    torch.testing.assert_close(*both)


def test_gradients_of_gradients_keep_nothing_of_edges():
    def growth() -> int:
        found = []
        for num_edges in (2000, 4000):
            example = Example(random_edges(60, 60, num_edges), 60, 60)
            stages = networks(example, torch.float64)['two maps']
            out, *_ = results(stages, example, 'sum')
            tensors = written(stages)[1]
            kept = [example.edge_index, out, *tensors]
            first = saved_bytes(
                lambda out=out, tensors=tensors: torch.autograd.grad(out.sum(), tensors, create_graph=True),
                exclude=kept,
            )
            found.append(first)
        return found[1] - found[0]

    # the edges, sorted, are no features
    assert growth() <= 2000 * 4 * 4


def test_more_work_has_more_parts():
    network = kernels_of([Begin(torch.randn(4, 64)), Map(torch.randn(64, 64), None)], FEW, 'sum')
    found = [few_edge_stages._parts_of(network, edges, 8)[0] for edges in (1000, 2000, 20_000, 100_000, 300_000)]
    assert found == [1, 2, 4, 8, 16]
    # no more copies of rows of nodes than there are rows of edges
    assert few_edge_stages._parts_of(network, 300_000, 150_000)[0] == 4
    assert few_edge_stages._parts_of(network, 300_000, 600_000)[0] == 2


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(few_edge_stages, 'MOST_OF_ONE_PART', -1)
    torch.manual_seed(0)
    example = Example(random_edges(60, 60, 3000), 60, 60)
    stages, before, found = networks(example, torch.float32)['all'], torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            outs = results(stages, example, 'sum and values')
            found.append([*outs, *gradients(outs, stages)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for others in found[1:] for one, other in zip(found[0], others, strict=True))


def test_one_of_two_results_has_a_gradient():
    example = GRAPHS['random']()
    stages = networks(example, torch.float64)['all']
    for place in (0, 1):
        found = results(stages, example, 'sum and values')[place : place + 1]
        right = expected(stages, example, 'sum and values')[place : place + 1]
        torch.testing.assert_close(gradients(found, stages), gradients(right, stages))


@pytest.mark.usefixtures('parts')
@pytest.mark.parametrize(('row', 'bad'), [(0, 60), (1, 60), (1, -1)])
def test_an_edge_of_a_node_that_is_not_there(row, bad):
    example = GRAPHS['random']()
    stages = networks(example, torch.float32)['all']
    example.edge_index[row, 7] = bad
    with pytest.raises(ValueError, match=f'{bad}'):
        results(stages, example, 'sum')


def test_nothing_of_edges_is_kept():
    example = Example(random_edges(60, 60, 2000), 60, 60)
    stages = networks(example, torch.float32)['two maps']
    kept = [example.edge_index, *written(stages)[1]]
    assert saved_bytes(lambda: results(stages, example, 'sum')[0], exclude=kept) == 0


def test_what_is_no_number_reaches_what_it_does_in_torch():
    torch.manual_seed(0)
    example = GRAPHS['random']()
    for reduction in ('sum', 'max'):
        stages = networks(example, torch.float64)['two maps']
        with torch.no_grad():
            stages[0].source[3] = torch.nan
        found, right = results(stages, example, reduction), expected(stages, example, reduction)
        torch.testing.assert_close(found, right, equal_nan=True)


FEW = Edges(torch.tensor([[0, 1, 2], [1, 1, 3]]), 4, 4)


def test_what_has_no_kernel():
    x, ones = torch.randn(4, WIDTH), torch.ones(WIDTH)
    assert kernels_of([Begin(x)], FEW, 'sum') is not None
    assert kernels_of([Begin(x), Normalise(ones, ones, 1e-5)], FEW, 'sum') is not None
    one = Begin(torch.randn(4, 1))
    assert kernels_of([one, Normalise(torch.ones(1), None, 1e-5)], FEW, 'sum') is None
    assert kernels_of([Begin(x), Affine(ones, ones)], FEW, 'sum') is None
    assert kernels_of([Begin(x), Map(torch.randn(500, WIDTH), None)], FEW, 'sum') is None
    assert kernels_of([Begin(x.half())], FEW, 'sum') is None
    assert kernels_of([Begin(x.to('meta'))], FEW, 'sum') is None


def test_networks_of_equal_numbers_are_not_one():
    x, weight = torch.randn(4, WIDTH), torch.randn(16, WIDTH)
    mapped = kernels_of([Begin(x), Map(weight, torch.randn(16))], FEW, 'sum')
    added = kernels_of([Begin(x), Plus(torch.randn(3, 16), weight.t().contiguous())], FEW, 'sum')
    assert mapped != added
    assert mapped.widths == (WIDTH, 16)
    assert added.widths == (WIDTH, WIDTH)
    one = kernels_of([Begin(x), Map(torch.randn(1, WIDTH), torch.randn(1))], FEW, 'sum')
    assert one != kernels_of([Begin(x), Times(x, torch.randn(3, 1))], FEW, 'sum')


def of_other_sizes() -> dict[str, list[EdgeStage]]:
    """Networks whose kernels would read what is not there."""
    x, weight = torch.randn(4, WIDTH), torch.randn(5, WIDTH)
    return {
        'rows of sources': [Begin(x[:3])],
        'rows of targets': [Begin(x, x[:3])],
        'features of edges': [Begin(x, features=x[:2])],
        'columns of a weight': [Begin(x), Map(weight[:, :5], None)],
        'a bias': [Begin(x), Map(weight, torch.randn(4))],
        'features that are added': [Begin(x), Plus(x[:2, :2], torch.randn(WIDTH, 2))],
        'features as they are': [Begin(x), Plus(x[:3, :2])],
        'columns of features': [Begin(x), Plus(x[:3, :2], torch.randn(WIDTH, 3))],
        'rows of factors': [Begin(x), Times(x[:3])],
        'factors of edges': [Begin(x), Times(None, x[:3, :2])],
        'another type': [Begin(x), Map(weight.double(), None)],
    }


@pytest.mark.parametrize('name', of_other_sizes())
def test_kernels_read_no_tensor_of_another_size(name):
    assert kernels_of(of_other_sizes()[name], FEW, 'sum') is None
