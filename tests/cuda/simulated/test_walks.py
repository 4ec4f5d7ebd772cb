"""The walks of the CUDA backend in numba's simulator: outputs and all gradients."""

import pytest
import torch

from pygfuse._lib.modes import changed
from pygfuse._lib.note import Note
from pygfuse.call import reference
from pygfuse.call.call import Dropout
from pygfuse.call.gradient import Gradient
from pygfuse.cpu import random
from pygfuse.cuda import backend, kernels
from pygfuse.cuda import hag as levels
from pygfuse.cuda import row_tiling as plan
from pygfuse.cuda.edges import row_search as active_rows
from pygfuse.cuda.layout import BLOCK
from pygfuse.graph.graph import Graph
from pygfuse.mapping.mapping import Mapping, force_mapping
from pygfuse.partial.paths import path, policy
from pygfuse.partial.paths.policy import execution_paths
from pygfuse.program.program import PROGRAMS
from pygfuse.transforms import find_hag
from tests.support.comparison import (
    DROPPING,
    NAMES,
    WITH_EDGE_ROWS,
    by_cpu,
    by_reference,
    check,
    close,
    parts_of,
    random_call,
    random_graph,
)
from tests.support.emulation import SimulatedKernel


@pytest.fixture(autouse=True)
def _simulated(monkeypatch):
    monkeypatch.setattr(kernels, 'Kernel', SimulatedKernel)
    for value in vars(kernels).values():
        if hasattr(value, 'cache_clear'):
            value.cache_clear()


@pytest.fixture(params=['vertex', 'edge'])
def small_parts(request, monkeypatch):
    """Forces a mapping, with parts so small that rows are cut."""
    monkeypatch.setattr('pygfuse.mapping.mapping.HEAVY_PARTS', 1)
    monkeypatch.setattr('pygfuse.cuda.combination.FAN_IN', 2)
    with force_mapping(Mapping(request.param, part_work=3)):
        yield request.param


@pytest.mark.parametrize('name', NAMES)
def test_every_program_equals_the_cpu_backend(name):
    check(backend, random_call(PROGRAMS[name], random_graph(5, 4, 14), 2, 4), against=by_cpu)


@pytest.mark.parametrize('name', WITH_EDGE_ROWS)
def test_edge_operands_as_products(name):
    check(backend, random_call(PROGRAMS[name], random_graph(4, 3, 8), 2, 4, products=True))


@pytest.mark.parametrize('name', ['gat', 'gatv2', 'transformer', 'edge_conv_none', 'weighted_neighbours', 'gaussian_2'])
def test_rows_in_several_parts(name, small_parts):
    graph = random_graph(5, 4, 10, hub=12)
    assert len(plan.parts_of(graph.csr, 32).split_rows) > 0
    check(backend, random_call(PROGRAMS[name], graph, 2, 4))


@pytest.mark.parametrize('name', ['gat', 'transformer', 'gaussian_2'])
def test_a_softmax_in_two_passes(name):
    with force_mapping(Mapping('edge', part_work=6, two_pass=True)):
        check(backend, random_call(PROGRAMS[name], random_graph(5, 4, 20, hub=12), 2, 4))


@pytest.mark.parametrize('reduce', ['mean', 'max', 'min'])
@pytest.mark.parametrize('name', ['neighbours', 'gine', 'weighted_neighbours', 'res_gated_sigmoid'])
def test_reductions(name, reduce):
    check(backend, random_call(PROGRAMS[name], random_graph(5, 4, 12), 1, 4, reduce=reduce))


@pytest.mark.parametrize('reduce', ['mean', 'max'])
def test_reductions_of_rows_in_several_parts(reduce, small_parts):
    graph = random_graph(5, 4, 10, hub=12)
    check(backend, random_call(PROGRAMS['edge_conv_none'], graph, 1, 4, reduce=reduce))


def test_ties_share_the_gradient():
    call = random_call(PROGRAMS['neighbours'], random_graph(4, 3, 30), 1, 4, reduce='max')
    call.tensors['x'].round_()
    check(backend, call, against=by_cpu)


@pytest.mark.parametrize('name', ['gat', 'gatv2', 'transformer', 'fa'])
def test_dropout_draws_what_the_cpu_draws(name):
    check(backend, random_call(PROGRAMS[name], random_graph(5, 4, 14), 2, 4, dropout=0.4), against=by_cpu)


@pytest.mark.parametrize('name', ['gat', 'gatv2', 'fa'])
def test_weights_of_edges(name):
    call = random_call(PROGRAMS[name], random_graph(5, 4, 14), 2, 4)
    found = backend.weights(call, backend.forward(call)[1])
    torch.testing.assert_close(found, reference.weights(call))


@pytest.mark.parametrize('name', ['gat', 'gatv2', 'fa'])
def test_kept_weights_are_read(name):
    call = random_call(PROGRAMS[name], random_graph(5, 4, 14), 2, 4)
    out, statistics = backend.forward(call)
    grad, needed = torch.randn_like(out), list(call.tensors)
    wanted = backend.backward(Gradient(call, out, statistics, grad, needed))
    call.weights = reference.weights(call)
    found = backend.backward(Gradient(call, out, statistics, grad, needed))
    for key, expected in wanted.items():
        close(found[key], expected, 1e-10, key)


def test_factors_of_dropout():
    dropout = Dropout(0.3, 2**40 + 7)
    found = backend.dropout_factors(20, 3, dropout, torch.empty(0, dtype=torch.float64))
    assert torch.equal(found, random.dropout_factors(20, 3, dropout, torch.float64))


# a prime number of channels, several vectors a head, spare heads and channels, a head over several vectors of all lanes
SHAPES = [(3, 5), (1, 7), (3, 12), (1, 132)]


@pytest.mark.parametrize(('heads', 'channels'), SHAPES)
@pytest.mark.parametrize('name', ['gatv2', 'gat', 'crystal'])
def test_rows_of_any_shape(name, heads, channels):
    check(backend, random_call(PROGRAMS[name], random_graph(3, 2, 4), heads, channels))


@pytest.mark.parametrize('name', ['gatv2', 'transformer'])
def test_a_wide_head_is_dealt_to_a_block(name):
    call = random_call(PROGRAMS[name], random_graph(3, 2, 4), 1, 258)
    assert backend._tiling(call, call.graph.csr, plan.BACKWARD_VALUES, False, 1).layout.team == BLOCK
    check(backend, call)


@pytest.fixture
def _narrow_tiles(monkeypatch):
    # of float64 a lane holds half as many
    monkeypatch.setattr(plan, 'FORWARD_VALUES', 4)
    monkeypatch.setattr(plan, 'BACKWARD_VALUES', 4)


@pytest.mark.usefixtures('_narrow_tiles')
@pytest.mark.parametrize('name', ['gat', 'neighbours', 'transformer', 'gaussian_2'])
def test_wide_rows_are_cut_into_tiles(name):
    heads, channels = (1, 100) if name == 'neighbours' else (2, 64)
    call = random_call(PROGRAMS[name], random_graph(3, 2, 4), heads, channels)
    assert backend._tiling(call, call.graph.csr, plan.FORWARD_VALUES, call.bound.separable, 1).count == 2
    check(backend, call)


@pytest.mark.usefixtures('_narrow_tiles')
def test_tiles_know_their_heads():
    graph = random_graph(3, 2, 4)
    check(backend, random_call(PROGRAMS['gatv2'], graph, 2, 64, products=True))
    call = random_call(PROGRAMS['gat'], graph, 2, 64, dropout=0.4)
    check(backend, call)
    torch.testing.assert_close(backend.weights(call, backend.forward(call)[1]), reference.weights(call))
    dropout = Dropout(0.3, 7)
    found = backend.dropout_factors(5, 96, dropout, torch.empty(0, dtype=torch.float64))
    assert torch.equal(found, random.dropout_factors(5, 96, dropout, torch.float64))


@pytest.mark.parametrize('name', ['gat', 'gatv2', 'neighbours'])
def test_several_groups_of_lanes_walk_one_row(name):
    graph = random_graph(6, 2, 40)
    call = random_call(PROGRAMS[name], graph, 2, 4)
    assert backend._tiling(call, graph.csr, plan.FORWARD_VALUES, True, 1).layout.subteams > 1
    check(backend, call)
    if name == 'neighbours':
        check(backend, random_call(PROGRAMS[name], graph, 2, 4, reduce='max'))


@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_narrow_types(dtype, tolerance):
    check(backend, random_call(PROGRAMS['gat'], random_graph(6, 3, 30), 2, 8, dtype), tolerance)


@pytest.mark.parametrize(('dtype', 'large'), [(torch.bfloat16, 256.0), (torch.float16, 2048.0)])
def test_sums_of_narrow_types_are_in_float32(dtype, large):
    graph = Graph.of(torch.tensor([[0, *[1] * 40], [0] * 41]), num_sources=2, num_targets=1)
    call = random_call(PROGRAMS['neighbours'], graph, 1, 8, dtype)
    call.tensors['x'].fill_(1.0)[0] = large  # a sum of this type would not grow by 1
    assert torch.equal(backend.forward(call)[0][0], torch.full((8,), large + 40, dtype=dtype))


ODD = {
    'no edges': random_graph(3, 2, 0),
    'one node with a loop': Graph.of(torch.tensor([[0], [0]])),
    'repeated edges': random_graph(2, 2, 12),
    'self-loops put in': random_graph(4, 4, 9).with_self_loops(4),
}


@pytest.mark.parametrize('graph', ODD.values(), ids=ODD)
@pytest.mark.parametrize('name', ['gat', 'gatv2', 'weighted_neighbours'])
def test_odd_graphs(name, graph):
    check(backend, random_call(PROGRAMS[name], graph, 2, 4))


def test_maxima_of_narrow_types_tie_where_they_round_alike():
    call = random_call(PROGRAMS['gine'], Graph.of(torch.tensor([[0, 1], [0, 0]])), 1, 4, torch.bfloat16, reduce='max')
    call.tensors['x'].fill_(1.0)
    call.tensors['edge'].fill_(0.0)[1] = 2**-10
    out, ties = backend.forward(call)
    assert torch.equal(ties[0], torch.full((4,), 2.0))
    found = backend.backward(Gradient(call, out, ties, torch.ones_like(out), ['x']))['x']
    assert torch.equal(found, torch.full((2, 4), 0.5, dtype=torch.bfloat16))


def test_scores_far_apart_raise_the_running_maximum():
    call = random_call(PROGRAMS['gat'], random_graph(6, 3, 200), 2, 4)
    call.tensors['alpha_src'].mul_(1000)  # their exponentials overflow
    with force_mapping(Mapping('vertex', part_work=1000)):  # rows of several batches, in one piece
        check(backend, call)


@pytest.mark.parametrize('name', ['gatv2', 'gaussian_2'])
def test_sums_for_parameters_settle(name, monkeypatch):
    monkeypatch.setattr('pygfuse.cuda.walks.backward.SETTLED_AFTER', 4)
    monkeypatch.setattr(backend, 'SUMMING_TEAMS', 2)  # each walks several parts
    check(backend, random_call(PROGRAMS[name], random_graph(5, 3, 30), 2, 4))


def test_gradients_for_some_operands_only():
    call = random_call(PROGRAMS['transformer'], random_graph(5, 4, 14), 2, 4)
    for name in call.tensors:
        check(backend, call, needed=[name])


def test_features_that_begin_anywhere_in_memory():
    call = random_call(PROGRAMS['neighbours'], random_graph(5, 4, 14), 1, 4)
    shifted = torch.empty(5 * 4 + 1, dtype=torch.float64)[1:].view(5, 4)
    call.tensors['x'] = shifted.copy_(call.tensors['x'])
    check(backend, call)


@pytest.mark.parametrize('reduce', ['sum', 'max'])
def test_levels_of_hags(reduce):
    edge_index = torch.tensor([[2, 3, 4, 2, 3, 4, 2, 3, 0], [0, 0, 0, 1, 1, 1, 2, 2, 2]])
    hag = find_hag(edge_index, (5, 4), capacity=None)
    assert hag.depth > 1
    call = random_call(PROGRAMS['neighbours'], Graph.of(edge_index, (5, 4)), 1, 4, reduce=reduce)
    x, grad = call.tensors['x'].clamp_(min=0).ceil_(), torch.randn(4, 4, dtype=torch.float64)  # with ties and zeros
    expected, _, wanted = by_cpu(call, grad, ['x'])
    if reduce == 'sum':
        found, gradient = levels.sums(hag, x, None, None), levels.sums(hag.reversed, grad, None, None)
    else:
        found, ties = levels.extremes(hag, x, False)
        gradient = levels.extremes_backward(hag, x, found, ties, grad, False)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient, wanted['x'])


CALLS_ALONG_PATHS = [
    *((name, {}) for name in ('neighbours', 'weighted_neighbours', 'gat', 'transformer', 'gaussian_2')),
    *((name, {'reduce': reduce}) for name in ('neighbours', 'gine') for reduce in ('mean', 'max')),
    ('gat', {'dropout': 0.4}),
    ('gatv2', {'products': True}),
]


def check_along_a_path(name, options, loops, active, monkeypatch, against=by_reference):
    def new_call():
        # a graph of its own, of which nothing is built yet
        graph = random_graph(6, 6, 20, seed=3)
        return random_call(PROGRAMS[name], graph.with_self_loops(6) if loops else graph, 2, 4, **options)

    call, whole = new_call(), new_call()
    out, statistics = backend.forward(call)
    grad = torch.zeros_like(out)
    grad[active] = torch.randn(len(active), out.shape[1], dtype=out.dtype)
    needed = [*call.tensors, *call.products]
    with execution_paths(True):
        _, _, expected = against(whole, grad, needed)
    for module in (path, policy):
        monkeypatch.setattr(module, 'row_search_of', lambda device: active_rows)
    note = Note()
    with execution_paths(True), changed(note=note):
        found = parts_of(backend.backward(Gradient(call, out, statistics, grad, needed, list(call.products))))
    for operand, tensor in parts_of({**call.tensors, **call.products}).items():
        assert found[operand].shape == tensor.shape
        close(found[operand], expected[operand], 1e-10, operand)
    assert note.backward.rows == len(active)
    assert note.backward.walked_edges == int(whole.graph.degree[active].sum()) < whole.graph.num_edges
    # what was walked is the path: all edges were not sorted by source
    assert call.graph._csc is None


@pytest.mark.parametrize(('name', 'options'), CALLS_ALONG_PATHS, ids=str)
def test_backward_along_a_path(name, options, monkeypatch):
    check_along_a_path(name, options, False, [1, 4], monkeypatch)


@pytest.mark.parametrize('name', ['gat', 'weighted_neighbours'])
def test_paths_with_self_loops_put_in(name, monkeypatch):
    check_along_a_path(name, {}, True, [1, 4], monkeypatch)


@pytest.mark.parametrize('name', ['gat', 'neighbours'])
def test_paths_equal_those_of_the_cpu_backend(name, monkeypatch):
    check_along_a_path(name, {}, False, [0, 2], monkeypatch, against=by_cpu)


@pytest.mark.parametrize('name', ['gat', 'neighbours'])
def test_a_path_without_edges(name, monkeypatch):
    check_along_a_path(name, {}, False, [], monkeypatch)


def test_edges_that_a_path_leaves_out_have_no_gradient():
    call = random_call(PROGRAMS['gat'], random_graph(6, 6, 20, seed=3), 2, 4)
    out, statistics = backend.forward(call)
    grad = torch.zeros_like(out)
    grad[1] = 1.0
    of_edges = [name for name, tensor in call.tensors.items() if tensor.shape[0] == call.graph.num_edge_ids]
    assert of_edges
    with execution_paths(True):
        found = backend.backward(Gradient(call, out, statistics, grad, of_edges))
    walked = call.graph.coo()[1] == 1
    for name in of_edges:
        assert not found[name][~walked].any()
        assert found[name][walked].any()


def test_channels_are_dropped_as_torch_computes_it():
    check(backend, random_call(DROPPING, random_graph(5, 4, 14), 2, 8), needed=['x'])
