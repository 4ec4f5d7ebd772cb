"""The walks as they are compiled for a GPU, interpreted on a machine without one: outputs and all gradients."""

import dataclasses
import itertools
import os

import pytest
import torch
import torch_geometric.nn

from pygfuse import ablation
from pygfuse.call import reference
from pygfuse.call.call import Dropout
from pygfuse.call.gradient import Gradient
from pygfuse.conv import GATConv
from pygfuse.cpu import random
from pygfuse.cuda import backend, combination, kernels
from pygfuse.cuda import row_tiling as plan
from pygfuse.cuda.arguments import describe
from pygfuse.cuda.kernel import Kernel
from pygfuse.cuda.layout import BLOCK
from pygfuse.mapping.mapping import Mapping, force_mapping
from pygfuse.program.program import PROGRAMS
from tests.support.comparison import DROPPING, NAMES, by_cpu, check, random_call, random_graph

if os.environ.get('CI', '').lower() not in ('1', 'true'):
    pytest.importorskip('numba_cuda')
from tests.support.interpreter import InterpretedKernel

TOLERANCE = 2e-5


pytestmark = pytest.mark.usefixtures('interpreted')

# together they have every kind of operand and of word; the simulator walks all programs
SOON = ('edge_conv_none', 'fa', 'gat', 'gaussian_2')


@pytest.mark.parametrize(
    'name', [name if name in SOON else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_every_program(name):
    check(backend, random_call(PROGRAMS[name], random_graph(5, 4, 14), 2, 8, torch.float32), TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['elu', 'tanh'])
def test_activations_with_words_of_their_own(name):
    program = PROGRAMS[f'edge_conv_{name}']
    check(
        backend, random_call(program, random_graph(5, 4, 14), 2, 8, torch.float32, absent=('slope', 'shift')), TOLERANCE
    )


@pytest.mark.parametrize('dtype', [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
def test_channels_are_dropped_as_torch_computes_it(dtype):
    check(backend, random_call(DROPPING, random_graph(5, 4, 14), 2, 8, dtype), TOLERANCE, needed=['x'])


@pytest.mark.slow
@pytest.mark.parametrize('name', ['gatv2', 'crystal'])
def test_edge_operands_as_products(name):
    check(backend, random_call(PROGRAMS[name], random_graph(5, 4, 14), 2, 8, torch.float32, products=True), TOLERANCE)


# what adds pieces up does not know the balance
IN_PARTS = [*((name, 'edge') for name in NAMES), *((name, 'vertex') for name in SOON)]


@pytest.mark.parametrize(
    ('name', 'balance'),
    [pair if pair == ('gat', 'edge') else pytest.param(*pair, marks=pytest.mark.slow) for pair in IN_PARTS],
)
def test_rows_in_several_parts(name, balance, monkeypatch):
    graph = _in_several_parts(monkeypatch)
    with force_mapping(Mapping(balance, part_work=3)):
        assert len(combination.levels_of(plan.parts_of(graph.csr, 32)).inner) > 0
        check(backend, random_call(PROGRAMS[name], graph, 2, 8, torch.float32), TOLERANCE)


def _in_several_parts(monkeypatch):
    """A graph of whose rows one is cut into many small parts, whose pieces are combined level by level."""
    monkeypatch.setattr('pygfuse.mapping.mapping.HEAVY_PARTS', 1)
    monkeypatch.setattr(combination, 'FAN_IN', 2)
    return random_graph(5, 4, 10, hub=12, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize('reduce', ['mean', 'max', 'min'])
def test_reductions_of_rows_in_several_parts(reduce, monkeypatch):
    graph = _in_several_parts(monkeypatch)
    with force_mapping(Mapping('edge', part_work=3)):
        check(backend, random_call(PROGRAMS['gine'], graph, 1, 8, torch.float32, reduce=reduce), TOLERANCE)


@pytest.mark.slow
def test_the_same_bits_in_any_order_of_warps():
    call, runs = random_call(PROGRAMS['gat'], random_graph(5, 4, 14), 2, 8, torch.float32), []
    for seed in (1, 2, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(InterpretedKernel, 'seeds', itertools.count(1000 * seed))
            out, statistics = backend.forward(call)
            asked = Gradient(call, out, statistics, torch.ones_like(out), list(call.tensors))
            runs.append([out, *backend.backward(asked).values()])
    for run in runs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(run, runs[0], strict=True))


@pytest.mark.parametrize(
    'reduce', [pytest.param(reduce, marks=pytest.mark.slow) for reduce in ('mean', 'max')] + ['min']
)
def test_reductions(reduce):
    call = random_call(PROGRAMS['gine'], random_graph(3, 4, 40, seed=2), 1, 8, torch.float32, reduce=reduce)
    check(backend, call, TOLERANCE)


# spare heads and channels, channels over several vectors of all lanes; several subteams, loads of one number,
# two vectors a lane
SHAPES = [(3, 12), (1, 132), (1, 4), (2, 5), (4, 64)]


@pytest.mark.slow
@pytest.mark.parametrize(('heads', 'channels'), SHAPES)
def test_rows_of_any_shape(heads, channels):
    check(backend, random_call(PROGRAMS['gatv2'], random_graph(4, 3, 30), heads, channels, torch.float32), TOLERANCE)


# vectors of four and of two numbers, of which the last lanes have fewer
BLOCKS = [
    ('gatv2', 516, torch.float32, 1e-4), ('transformer', 602, torch.float64, 1e-10),
    ('gaussian_2', 516, torch.float32, 1e-4),
]  # fmt: skip


@pytest.mark.parametrize('balance', ['edge', pytest.param('vertex', marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ('name', 'channels', 'dtype', 'tolerance'),
    [BLOCKS[0], *[pytest.param(*block, marks=pytest.mark.slow) for block in BLOCKS[1:]]],
)
def test_a_wide_head_is_dealt_to_a_block(name, channels, dtype, tolerance, balance, monkeypatch):
    graph = _in_several_parts(monkeypatch)
    with force_mapping(Mapping(balance, part_work=3)):
        call = random_call(PROGRAMS[name], graph, 1, channels, dtype, dropout=0.3)
        assert backend._tiling(call, graph.csr, plan.BACKWARD_VALUES, False, 1).layout.team == BLOCK
        check(backend, call, tolerance, against=by_cpu)
        found = backend.weights(call, backend.forward(call)[1])
    torch.testing.assert_close(found, reference.weights(call), rtol=1e-3, atol=tolerance)


TYPES = [(torch.float64, 1e-10), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)]


@pytest.mark.slow
@pytest.mark.parametrize(('dtype', 'tolerance'), TYPES)
def test_types(dtype, tolerance):
    check(backend, random_call(PROGRAMS['gat'], random_graph(6, 3, 30), 2, 16, dtype), tolerance)


def test_types_side_by_side():
    call = random_call(PROGRAMS['gat'], random_graph(6, 3, 30), 2, 16, torch.float32)
    call.tensors['x'] = call.tensors['x'].bfloat16()
    check(backend, call, 1e-2)


@pytest.mark.parametrize('dtype', [pytest.param(torch.float16, marks=pytest.mark.slow), torch.bfloat16])
def test_maxima_of_narrow_types_find_their_edges_again(dtype):
    call = random_call(PROGRAMS['gine'], random_graph(6, 3, 30), 1, 16, dtype, reduce='max')
    out, statistics = backend.forward(call)
    assert bool((statistics[:2] >= 1).all())
    found = backend.backward(Gradient(call, out, statistics, torch.ones_like(out), ['x']))['x']
    rises = (out > 0).sum(dim=0)  # where the rectifier lets a gradient through
    torch.testing.assert_close(found.float().sum(dim=0), rises.float(), rtol=2e-2, atol=2e-2)


def test_scores_far_apart_raise_the_running_maximum():
    call = random_call(PROGRAMS['gat'], random_graph(6, 3, 200), 2, 8, torch.float32)
    call.tensors['alpha_src'].mul_(40)
    with force_mapping(Mapping('vertex', part_work=1000)):  # rows of several batches, in one piece
        check(backend, call, 1e-4)


@pytest.mark.slow
def test_indices_of_64_bits():
    graph = random_graph(5, 4, 14, seed=3)
    for rows in (graph.csr, graph.csc):
        rows.indptr, rows.index, rows._edge_id = rows.indptr.long(), rows.index.long(), rows._edge_id.long()
    graph.csc.position = graph.csc.position.long()
    check(backend, random_call(PROGRAMS['gat'], graph, 2, 8, torch.float32), TOLERANCE)


def test_weights_of_edges():
    call = random_call(PROGRAMS['gatv2'], random_graph(5, 4, 14), 2, 8, torch.float32)
    torch.testing.assert_close(backend.weights(call, backend.forward(call)[1]), reference.weights(call))


def test_dropout_draws_what_the_cpu_draws():
    check(backend, random_call(PROGRAMS['gat'], random_graph(5, 4, 14), 2, 8, torch.float32, dropout=0.4), TOLERANCE)
    dropout = Dropout(0.3, 2**40 + 7)
    found = backend.dropout_factors(40, 3, dropout, torch.empty(0))
    assert torch.equal(found, random.dropout_factors(40, 3, dropout, torch.float32))


def _layers():
    torch.manual_seed(0)
    conv, pyg = GATConv(8, 8, heads=2, edge_dim=3), torch_geometric.nn.GATConv(8, 8, heads=2, edge_dim=3)
    pyg.load_state_dict(conv.state_dict())
    return conv, pyg, (torch.randn(6, 8), torch.randint(6, (2, 20)), torch.randn(20, 3))


@pytest.mark.parametrize('name', ['gat', pytest.param('transformer', marks=pytest.mark.slow)])
def test_a_softmax_in_two_passes_knows_the_greatest_score(name, monkeypatch):
    call = random_call(PROGRAMS[name], random_graph(6, 3, 200), 2, 8, torch.float32)
    call.tensors[next(iter(call.tensors))].mul_(5)
    found = []
    for two_pass in (False, True):
        with force_mapping(Mapping('vertex', part_work=1000, two_pass=two_pass)):
            check(backend, call, 1e-4)
            found.append(backend.forward(call)[1])
    # that of one pass is below it by less than the slack, or is it
    assert bool((found[0][:, 0] <= found[1][:, 0]).all())
    assert not torch.equal(found[0][:, 0], found[1][:, 0])
    graph = _in_several_parts(monkeypatch)
    with force_mapping(Mapping('edge', part_work=3, two_pass=True)):
        check(backend, random_call(PROGRAMS[name], graph, 2, 8, torch.float32, dropout=0.3), TOLERANCE, against=by_cpu)


@pytest.mark.parametrize(
    'name', ['gat', *[pytest.param(name, marks=pytest.mark.slow) for name in ('transformer', 'fa', 'gaussian_2')]]
)
def test_kept_weights_are_read(name):
    call = random_call(PROGRAMS[name], random_graph(5, 4, 14), 2, 8, torch.float32, dropout=0.3)
    (out, statistics), weights = backend.forward(call), reference.weights(call)
    grad = torch.randn_like(out)

    def gradients(kept):
        asked = dataclasses.replace(call, weights=kept)
        return backend.backward(Gradient(asked, out, statistics, grad, list(call.tensors)))

    wanted, found, doubled = gradients(None), gradients(weights), gradients(2 * weights)
    for key, expected in wanted.items():
        torch.testing.assert_close(found[key], expected, rtol=1e-4, atol=1e-4)
    assert any(not torch.allclose(doubled[key], found[key]) for key in wanted)


@pytest.mark.usefixtures('in_place_of_the_cpu')
def test_a_layer_from_end_to_end_without_recomputation():
    conv, pyg, inputs = _layers()
    with ablation(recomputation=False):
        found, expected = conv(*inputs), pyg(*inputs)
        grad = torch.randn_like(found)
        found.backward(grad)
    expected.backward(grad)
    assert conv.note.reason is None
    for mine, theirs in zip(conv.parameters(), pyg.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures('in_place_of_the_cpu')
def test_a_layer_from_end_to_end():
    conv, pyg, inputs = _layers()
    found, expected = conv(*inputs), pyg(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    grad = torch.randn_like(found)
    found.backward(grad)
    expected.backward(grad)
    assert conv.note.reason is None
    for (name, mine), theirs in zip(conv.named_parameters(), pyg.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.usefixtures('in_place_of_the_cpu')
def test_under_autocast_operands_keep_their_types(monkeypatch):
    monkeypatch.setattr('pygfuse.ops.within_torch.autocast.MIXING', ('cpu',))
    conv, pyg, inputs = _layers()
    launched = []
    run = InterpretedKernel.__call__
    monkeypatch.setattr(
        InterpretedKernel, '__call__', lambda self, *rest: (launched.append(self.layout.element), run(self, *rest))
    )
    with torch.autocast('cpu', torch.bfloat16):
        found, expected = conv(*inputs), pyg(*inputs)
    assert conv.note.reason is None
    assert 'bfloat16' in launched
    assert found.dtype == expected.dtype == torch.float32
    exact = pyg(*inputs)
    assert (found - exact).norm() <= 2 * (expected - exact).norm()
    grad = torch.randn_like(found)
    gradients = [torch.autograd.grad(out, list(pyg.parameters()), grad) for out in (expected, exact)]
    found.backward(grad)
    for parameter, plain, wanted in zip(conv.parameters(), *gradients, strict=True):
        assert (parameter.grad - wanted).norm() <= 2 * (plain - wanted).norm() + 1e-3 * wanted.norm()


def test_assembled_code_is_read_from_disk(monkeypatch, tmp_path):
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(tmp_path))
    assembled = []
    monkeypatch.setattr(Kernel, 'ptx', lambda *arguments: ('text', 'entry'))
    monkeypatch.setattr('pygfuse.cuda.toolkit.check', lambda: None)
    monkeypatch.setattr(
        'pygfuse.cuda.compilation.to_machine_code', lambda *arguments: assembled.append(arguments) or b'\x7fELF\0'
    )
    found = {Kernel(None, None, 'test', ()).code(('float32',), (9, 0)) for _ in range(2)}
    assert found == {(b'\x7fELF\0', 'entry')}
    assert assembled == [('text', (9, 0))]
    assert [path.suffix for path in tmp_path.iterdir()] == ['.kernel']


def _has_linker() -> bool:
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except Exception:  # of several kinds, as the library and its loader please
        return False
    return True


def test_machine_code_is_kept_on_disk(monkeypatch, tmp_path):
    if not _has_linker():
        pytest.skip('assembling takes the linker of a whole toolkit')
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(tmp_path))
    found = []

    class Assembled(Kernel):
        def __call__(self, device, blocks, tiles, *arguments):
            description = tuple(describe(argument) for argument in arguments)
            first = self.code(description, (9, 0))
            self.make_body = None  # the second time nothing is compiled
            found.append((first, self.code(description, (9, 0))))

    monkeypatch.setattr(kernels, 'Kernel', Assembled)
    backend.forward(random_call(PROGRAMS['gat'], random_graph(5, 4, 14), 4, 16, torch.float32))
    (first, second), *_ = found
    assert first[0].startswith(b'\x7fELF')
    assert first == second
