"""Every kind of program, eagerly and through the operator, against the same program computed by torch."""

import contextlib
import dataclasses
import inspect
from types import SimpleNamespace

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from pygfuse._lib.modes import ablation, modes
from pygfuse.call import reference
from pygfuse.call.call import Call, Dropout
from pygfuse.cpu.random import dropout_factors
from pygfuse.graph.graph import Graph
from pygfuse.mapping.group_sizes.chooser import group_sizes
from pygfuse.mapping.mapping import Mapping, copies_for_adding, cut, force_mapping, scattered_bounds
from pygfuse.memory import saved_bytes
from pygfuse.ops import Edges, aggregate, aggregate_with_weights, new_seed
from pygfuse.ops.autograd import as_in_forward, said_of_backward
from pygfuse.ops.walked_products import as_walked
from pygfuse.partial.paths.policy import execution_paths
from pygfuse.program.products import Product
from pygfuse.program.program import EdgeProgram, Operand
from pygfuse.program.vocabulary import exp, leaky_relu, relu, sigmoid, softplus, sum_channels, tanh

OPERANDS = {
    'x': Operand('source', 'channels'),
    'y': Operand('target', 'channels'),
    'e': Operand('edge', 'channels'),
    'f': Operand('edge', 'channels'),
    'p': Operand('parameter', 'channels'),
    'a': Operand('source', 'heads'),
    'b': Operand('target', 'heads'),
    'c': Operand('edge', 'heads'),
    'k': Operand('parameter', 'scalar'),
    'd': Operand('edge', 'scalar'),
    'm': Operand('parameter', 'heads'),
}


def program(name, message, score=None, softmax=False):
    return EdgeProgram(f'test_{name}', OPERANDS, message, score, softmax)


PROGRAMS = {
    'copy': program('copy', lambda x: x),
    'add': program('add', lambda x, y: x + y),
    'gate': program('gate', lambda x, y, e, f: sigmoid(x + y + e) * softplus(y - x + f)),
    'rectified': program('rectified', lambda x, e, p: relu(x + e) * p),
    'weighted': program('weighted', lambda weight, x: weight * x, lambda c: c),
    'scored': program('scored', lambda weight, x: weight * x, lambda x, y, p: tanh(sum_channels(x * y * p))),
    'summed': program('summed', lambda weight, x: weight * x, lambda a, b, c: a * b + c),
    'bounded': program('bounded', lambda weight, x: weight * x, lambda a, b, c: tanh(a + b) * c),
    'gaussian': program('gaussian', lambda weight, x: weight * x, lambda d, m, c: exp(-(d - m) * (d - m)) * c),
    'additive': program(
        'additive', lambda weight, x: weight * x, lambda a, b, c, k: leaky_relu(a + b + c, k), softmax=True
    ),
    'multiplied': program('multiplied', lambda weight, x: weight * x, lambda a, b: a * b, softmax=True),
    'slope': program('slope', lambda weight, x: weight * x, lambda a, b, k: leaky_relu(a + b, k), softmax=True),
    'dot': program(
        'dot', lambda weight, x, e: weight * (x + e), lambda x, y, e: sum_channels(y * (x + e)), softmax=True
    ),
    'deep': program(
        'deep',
        lambda weight, x: weight * x,
        lambda x, y, e, p, k: sum_channels(leaky_relu(x + y + e, k) * p),
        softmax=True,
    ),
}


@pytest.fixture(params=['eager', 'operator'], autouse=True)
def way(request, monkeypatch):
    """Runs every test without the operator and with it."""
    if request.param == 'operator':
        monkeypatch.setattr('pygfuse.ops.aggregation.is_watched', lambda tensors: True)


def random_edges(num_sources=7, num_targets=5, num_edges=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sources = torch.randint(num_sources, (num_edges,), generator=generator)
    # the last target stays isolated
    targets = torch.randint(num_targets - 1, (num_edges,), generator=generator)
    return Edges(torch.stack([sources, targets]), num_sources, num_targets)


def random_operands(bound_names, edges, heads, channels, products=0):
    torch.manual_seed(1)
    num_edges = edges.token.shape[1]
    rows = {'source': edges.num_sources, 'target': edges.num_targets, 'edge': num_edges, 'parameter': 1}
    operands = {}
    for name in bound_names:
        operand = OPERANDS[name]
        if name == 'k':
            operands[name] = 0.2
            continue
        width = {'scalar': 1, 'heads': heads}.get(operand.level, heads * channels)
        if products and operand.side == 'edge':
            pair = (torch.randn(num_edges, products), torch.randn(products, width))
            operands[name] = Product(*(tensor.double().requires_grad_() for tensor in pair))
        else:
            operands[name] = torch.randn(rows[operand.side], width).double().requires_grad_()
    return operands


def leaves(operands):
    found = []
    for value in operands.values():
        found += (
            [t for t in value if t is not None]
            if isinstance(value, tuple)
            else [value] * isinstance(value, torch.Tensor)
        )
    return found


def expected(chosen, edges, operands, heads, channels, reduce, dropout=0.0, seed=None):
    scalars = {name: value for name, value in operands.items() if isinstance(value, float)}
    tensors, products = {}, {}
    for name, value in operands.items():
        value = as_walked(chosen, name, value) if isinstance(value, Product) else value
        if isinstance(value, Product):
            products[name] = value
        elif isinstance(value, torch.Tensor):
            tensors[name] = value
    bound = chosen.bind(tuple(operands), tuple(products))
    call = Call(bound, edges.graph(), tensors, scalars, heads, channels, reduce, products=products)
    kept = None
    if seed is not None:
        kept = dropout_factors(call.graph.num_edge_ids, heads, Dropout(dropout, int(seed)), torch.float64)
    return reference.aggregate(call, kept).view(-1, heads, channels)


def used(chosen):
    names = [*inspect.signature(chosen.message).parameters]
    if chosen.score is not None:
        names += [*inspect.signature(chosen.score).parameters]
    return [name for name in OPERANDS if name in names]


def check(chosen, edges, operands, heads, channels, reduce='sum', dropout=0.0):
    seed = new_seed() if dropout else None
    out = aggregate(chosen, edges, operands, heads, channels, reduce, dropout, seed)
    wanted = expected(chosen, edges, operands, heads, channels, reduce, dropout, seed)
    torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-10)
    grad = torch.randn_like(out)
    inputs = leaves(operands)
    for found, right in zip(
        torch.autograd.grad(out, inputs, grad), torch.autograd.grad(wanted, inputs, grad), strict=True
    ):
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)


@pytest.fixture(params=['vertex', 'edge', 'edge in two passes'])
def small_parts(request, monkeypatch):
    """Forces a mapping, with parts so small that rows are cut."""
    monkeypatch.setattr('pygfuse.mapping.mapping.HEAVY_PARTS', 1)
    mapping = Mapping(request.param.split()[0], part_work=3, two_pass='two' in request.param)
    with force_mapping(mapping):
        yield mapping


SHAPES = [(1, 5), (2, 8), (3, 17)]


@pytest.mark.parametrize('name', PROGRAMS)
@pytest.mark.parametrize(('heads', 'channels'), SHAPES)
def test_program_equals_its_reference(name, heads, channels):
    chosen, edges = PROGRAMS[name], random_edges()
    check(chosen, edges, random_operands(used(chosen), edges, heads, channels), heads, channels)


# 16 features are as wide as a row
@pytest.mark.parametrize('features', [3, 16, 41])
@pytest.mark.parametrize('name', ['gate', 'rectified', 'dot', 'deep', 'weighted', 'additive', 'gaussian'])
def test_edge_operands_may_be_products(name, features):
    chosen, edges = PROGRAMS[name], random_edges()
    check(chosen, edges, random_operands(used(chosen), edges, 2, 8, products=features), 2, 8)


# several chunks, with edges of a row in two of them; rows of several blocks of registers, the last of which is not full
@pytest.mark.parametrize(('heads', 'channels'), [(1, 8), (3, 17), (1, 300), (4, 64)])
@pytest.mark.parametrize('features', [1, 17])
@pytest.mark.parametrize('name', ['rectified', 'dot', 'deep'])
def test_products_of_many_edges(name, features, heads, channels):
    chosen, edges = PROGRAMS[name], random_edges(num_edges=400)
    operands = random_operands(used(chosen), edges, heads, channels, products=features)
    for value in operands.values():
        if isinstance(value, Product):
            value.weight.data /= heads * channels
    check(chosen, edges, operands, heads, channels)


@pytest.mark.parametrize('reduce', ['mean', 'max', 'min'])
def test_reductions_of_products(reduce):
    chosen, edges = PROGRAMS['rectified'], random_edges(num_edges=400)
    check(chosen, edges, random_operands(used(chosen), edges, 2, 8, products=17), 2, 8, reduce)


def test_an_extreme_of_products_is_found_again_in_float32():
    """Backward asks which edges attain it: chunks that begin elsewhere, by other kernels, round alike."""
    chosen, edges = PROGRAMS['rectified'], random_edges(num_edges=400)
    operands = random_operands(used(chosen), edges, 2, 8, products=17)
    given = {
        name: Product(*(part.detach().float().requires_grad_() for part in value[:2]))
        if isinstance(value, Product)
        else value.detach().float().requires_grad_()
        for name, value in operands.items()
    }
    out = aggregate(chosen, edges, given, 2, 8, 'max')
    (found,) = torch.autograd.grad(out.sum(), given['p'])
    right = expected(chosen, edges, operands, 2, 8, 'max')
    (wanted,) = torch.autograd.grad(right.sum(), operands['p'])
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('shape', [(2, 4), (1, 40)])
@pytest.mark.parametrize('recomputation', [True, False])
@pytest.mark.parametrize('name', ['scored', 'summed'])
def test_an_extreme_of_weighted_rows_is_found_again(name, recomputation, shape):
    """A weight that forward computed and one that is kept for backward are the same to the last bit."""
    chosen, edges = PROGRAMS[name], random_edges(num_edges=400)
    with ablation(recomputation=recomputation):
        check(chosen, edges, random_operands(used(chosen), edges, *shape), *shape, 'max')


@pytest.mark.parametrize('said', [None, Mapping('vertex'), Mapping('vertex', two_pass=True)])
@pytest.mark.parametrize('name', ['multiplied', 'slope'])
def test_scores_are_rounded_before_they_are_compared(name, said):
    """An edge that is alone has the weight 1, in every walk: its score less the largest is 0 and no rounding error."""
    chosen, nodes = PROGRAMS[name], torch.arange(50)
    edges = Edges(torch.stack([nodes, nodes]), 50, 50)
    operands = random_operands(used(chosen), edges, 2, 8)
    given = {
        key: value if key == 'k' else (value.abs() * (1 if key == 'x' else -1e3)).detach().float().requires_grad_()
        for key, value in operands.items()
    }
    with contextlib.nullcontext() if said is None else force_mapping(said):
        out, weights = aggregate_with_weights(chosen, edges, given, 2, 8)
        (found,) = torch.autograd.grad(out, given['x'], torch.ones_like(out))
    torch.testing.assert_close(out.flatten(1), given['x'], rtol=1e-6, atol=0)
    for ones in (weights, found):
        torch.testing.assert_close(ones, torch.ones_like(ones), rtol=1e-6, atol=0)


def test_products_of_channels_are_formed_in_walks(monkeypatch):
    edges = random_edges()
    for features, elsewhere in ((15, Product), (16, torch.Tensor)):
        operands = random_operands(['x', 'e', 'p', 'c'], edges, 2, 8, products=features)
        assert isinstance(as_walked(PROGRAMS['rectified'], 'e', operands['e']), Product)
        assert isinstance(as_walked(PROGRAMS['weighted'], 'c', operands['c']), torch.Tensor)
        with monkeypatch.context() as patched:
            patched.setattr('pygfuse.ops.walked_products.forms_products_by_chunks', lambda kind: False)
            assert isinstance(as_walked(PROGRAMS['rectified'], 'e', operands['e']), elsewhere)


@pytest.mark.parametrize('features', [3, 16])
@pytest.mark.parametrize('name', ['additive', 'deep'])
def test_products_with_features_of_loops(name, features):
    chosen, plain = PROGRAMS[name], random_edges(6, 6)
    edges = Edges(plain.token, 6, 6, loops=6)
    operands = random_operands(used(chosen), edges, 2, 8, products=features)
    for key, value in operands.items():
        if isinstance(value, Product):
            operands[key] = value._replace(loops=torch.randn(6, features).double().requires_grad_())
    check(chosen, edges, operands, 2, 8)


@pytest.mark.parametrize('name', ['copy', 'add', 'gate', 'rectified', 'weighted'])
@pytest.mark.parametrize('reduce', ['mean', 'max', 'min'])
def test_reductions(name, reduce):
    chosen, edges = PROGRAMS[name], random_edges()
    check(chosen, edges, random_operands(used(chosen), edges, 2, 8), 2, 8, reduce)


@pytest.mark.parametrize('name', ['weighted', 'bounded', 'additive', 'dot', 'deep'])
def test_dropout_of_weights(name):
    torch.manual_seed(3)
    chosen, edges = PROGRAMS[name], random_edges()
    check(chosen, edges, random_operands(used(chosen), edges, 2, 8), 2, 8, dropout=0.4)


@pytest.mark.parametrize('name', ['copy', 'add'])
def test_ties_share_the_gradient_as_in_torch(name):
    chosen, edges = PROGRAMS[name], random_edges(num_edges=200)
    operands = random_operands(used(chosen), edges, 1, 5)
    operands = {key: value.detach().round().requires_grad_() for key, value in operands.items()}
    check(chosen, edges, operands, 1, 5, 'max')


@pytest.mark.parametrize('absent', ['b', 'c'])
def test_absent_operands_count_as_zero(absent):
    chosen, edges = PROGRAMS['additive'], random_edges()
    operands = random_operands([name for name in used(chosen) if name != absent], edges, 2, 8)
    check(chosen, edges, operands, 2, 8)


@pytest.mark.parametrize('name', PROGRAMS)
def test_wide_rows_are_cut_into_tiles(name):
    chosen, edges = PROGRAMS[name], random_edges()
    heads, channels = (1, 300) if name in ('copy', 'additive') else (4, 64)
    check(chosen, edges, random_operands(used(chosen), edges, heads, channels), heads, channels)


@pytest.mark.parametrize('name', PROGRAMS)
def test_no_edges_at_all(name):
    chosen = PROGRAMS[name]
    edges = Edges(torch.empty(2, 0, dtype=torch.int64), 4, 3)
    check(chosen, edges, random_operands(used(chosen), edges, 2, 8), 2, 8)


@pytest.fixture
def nan_in_new_memory():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


# what is not saved holds NaN: a gradient that read it would show it
@pytest.mark.parametrize('name', PROGRAMS)
def test_gradients_for_some_operands_only(name, nan_in_new_memory):
    chosen, edges = PROGRAMS[name], random_edges()
    for alone in used(chosen):
        operands = random_operands(used(chosen), edges, 2, 8)
        if not isinstance(operands[alone], torch.Tensor):
            continue
        operands = {
            key: value.detach().requires_grad_(key == alone) if isinstance(value, torch.Tensor) else value
            for key, value in operands.items()
        }
        out = aggregate(chosen, edges, operands, 2, 8)
        wanted = expected(chosen, edges, operands, 2, 8, 'sum')
        grad = torch.randn_like(out)
        (found,), (right,) = (torch.autograd.grad(y, operands[alone], grad) for y in (out, wanted))
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize('name', PROGRAMS)
def test_both_mappings(name, small_parts):
    chosen, edges = PROGRAMS[name], random_edges(num_edges=60, seed=4)
    assert len(cut(edges.graph().csr, small_parts).split_rows) > 0
    check(chosen, edges, random_operands(used(chosen), edges, 2, 8), 2, 8)


@pytest.mark.parametrize('name', ['add', 'weighted'])
@pytest.mark.parametrize('reduce', ['mean', 'max'])
def test_reductions_in_both_mappings(name, reduce, small_parts):
    chosen, edges = PROGRAMS[name], random_edges(num_edges=60, seed=4)
    check(chosen, edges, random_operands(used(chosen), edges, 2, 8), 2, 8, reduce)


@pytest.mark.parametrize('name', ['additive', 'bounded'])
@pytest.mark.parametrize('heads', [1, 3])
def test_values_of_target_heads_are_added_up_in_copies(name, heads, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.mapping.ADDING_PARTS', (1, 64))
    chosen, edges = PROGRAMS[name], random_edges(num_edges=300, seed=4)
    assert copies_for_adding(edges.graph().csr, 8 * heads) > 16
    check(chosen, edges, random_operands(used(chosen), edges, heads, 8), heads, 8)


UNSORTED = ['copy', 'add', 'gate', 'rectified', 'weighted', 'bounded', 'gaussian']


@pytest.mark.parametrize('name', UNSORTED)
@pytest.mark.parametrize('reduce', ['sum', 'mean'])
def test_edges_that_are_used_once_are_not_sorted(name, reduce):
    chosen, edges = PROGRAMS[name], random_edges(num_edges=300, seed=4)
    operands = random_operands(used(chosen), edges, 2, 8, products=3 * (name == 'gate'))
    wanted = expected(chosen, dataclasses.replace(edges, token=edges.token.clone()), operands, 2, 8, reduce)
    grad, inputs = torch.randn_like(wanted), leaves(operands)
    rights = torch.autograd.grad(wanted, inputs, grad)
    with force_mapping('scatter'):
        out = aggregate(chosen, edges, operands, 2, 8, reduce)
        founds = torch.autograd.grad(out, inputs, grad)
    assert not edges.graph().is_sorted
    assert len(scattered_bounds(edges.graph().unsorted())) > 4
    torch.testing.assert_close(out, wanted, rtol=1e-10, atol=1e-10)
    for found, right in zip(founds, rights, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-9)


SOME_THREADS = 4
# wider than a tile of forward's walk in some type, and no multiple of it
RAGGED = [129, 130, 192, 257, 300, 384]


@pytest.fixture
def several_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(SOME_THREADS)
    yield
    torch.set_num_threads(threads)


def check_in_type(chosen, edges, operands, heads, channels, reduce, dtype):
    """The output and all gradients, computed in a type, against the reference in float64."""
    wanted = expected(chosen, dataclasses.replace(edges, token=edges.token.clone()), operands, heads, channels, reduce)
    grad, inputs = torch.randn_like(wanted), leaves(operands)
    rights = torch.autograd.grad(wanted, inputs, grad)
    cast = {
        name: value.detach().to(dtype).requires_grad_() if isinstance(value, torch.Tensor) else value
        for name, value in operands.items()
    }
    out = aggregate(chosen, edges, cast, heads, channels, reduce)
    founds = torch.autograd.grad(out, leaves(cast), grad.to(dtype))
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for found, right in zip((out, *founds), (wanted, *rights), strict=True):
        assert (found.double() - right).abs().max() <= tolerance * right.abs().max().clamp(min=1)


@pytest.mark.parametrize('channels', RAGGED)
@pytest.mark.parametrize('dtype', [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize(('name', 'reduce'), [('copy', 'sum'), ('copy', 'mean'), ('weighted', 'sum')])
def test_ragged_rows_of_unsorted_edges(name, reduce, dtype, channels, several_threads):
    chosen, edges = PROGRAMS[name], random_edges(num_edges=300, seed=4)
    operands = random_operands(used(chosen), edges, 1, channels)
    with force_mapping('scatter'):
        check_in_type(chosen, edges, operands, 1, channels, reduce, dtype)
    assert not edges.graph().is_sorted


@pytest.mark.parametrize('name', UNSORTED)
@pytest.mark.parametrize(('dtype', 'heads', 'channels'), [(torch.float32, 2, 300), (torch.float64, 1, 129)])
def test_programs_on_ragged_rows_of_unsorted_edges(name, dtype, heads, channels, several_threads):
    chosen, edges = PROGRAMS[name], random_edges(num_edges=300, seed=4)
    operands = random_operands(used(chosen), edges, heads, channels)
    with force_mapping('scatter'):
        check_in_type(chosen, edges, operands, heads, channels, 'sum', dtype)


@pytest.mark.parametrize('balance', ['vertex', 'edge', 'edge in two passes'])
@pytest.mark.parametrize(('name', 'reduce'), [('copy', 'sum'), ('copy', 'max'), ('gate', 'mean'), ('additive', 'sum')])
def test_ragged_rows_in_other_mappings(name, reduce, balance, several_threads, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.mapping.HEAVY_PARTS', 1)
    chosen, edges = PROGRAMS[name], random_edges(num_edges=300, seed=4)
    operands = random_operands(used(chosen), edges, 1, 129)
    with force_mapping(Mapping(balance.split()[0], part_work=20, two_pass='two' in balance)):
        check_in_type(chosen, edges, operands, 1, 129, reduce, torch.float64)


@pytest.mark.parametrize('name', ['dot', 'add'])
def test_what_needs_whole_rows_sorts_the_edges(name):
    chosen, edges = PROGRAMS[name], random_edges()
    with force_mapping('scatter'):
        check(chosen, edges, random_operands(used(chosen), edges, 2, 8), 2, 8, 'sum' if chosen.softmax else 'max')
    assert edges.graph().is_sorted


def test_dropout_of_unsorted_edges_is_that_of_sorted_ones():
    chosen, edges, seed = PROGRAMS['weighted'], random_edges(num_edges=300), new_seed()
    operands = random_operands(used(chosen), edges, 2, 8)
    with force_mapping('scatter'):
        scattered = aggregate(chosen, edges, operands, 2, 8, 'sum', 0.5, seed)
    out = aggregate(chosen, edges, operands, 2, 8, 'sum', 0.5, seed)
    torch.testing.assert_close(scattered, out, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('name', PROGRAMS)
def test_the_same_bits_for_any_number_of_threads(name):
    chosen, threads = PROGRAMS[name], torch.get_num_threads()
    generator = torch.Generator().manual_seed(0)
    token = torch.randint(300, (2, 20_000), generator=generator)
    token[1, :12_000] = 7  # a row that is cut
    results = []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            edges = Edges(token.clone(), 300, 300)
            operands = random_operands(used(chosen), edges, 2, 8)
            out = aggregate(chosen, edges, operands, 2, 8)
            results.append([out, *torch.autograd.grad(out.square().sum(), leaves(operands))])
    finally:
        torch.set_num_threads(threads)
    for found in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found, results[0], strict=True))


@pytest.mark.parametrize(
    ('name', 'reduce', 'needed', 'saved'),
    [
        ('copy', 'sum', 'x', ''),
        ('copy', 'mean', 'x', ''),
        ('copy', 'max', 'x', 'x out ties'),
        ('add', 'sum', 'xy', ''),
        ('weighted', 'sum', 'x', 'c'),
        ('weighted', 'sum', 'c', 'x c'),
        ('bounded', 'mean', 'x', 'a b c'),
        ('rectified', 'sum', 'p', 'x e p'),
    ],
)
def test_a_sum_saves_what_its_adjoint_reads(name, reduce, needed, saved):
    chosen, edges = PROGRAMS[name], random_edges()
    operands = random_operands(used(chosen), edges, 2, 8)
    for key, value in operands.items():
        value.requires_grad_(key in needed)
    width = {'x': 7 * 16, 'out': 5 * 16, 'ties': 5 * 16, 'a': 7 * 2, 'b': 5 * 2, 'c': 40 * 2, 'e': 40 * 16, 'p': 16}
    found = saved_bytes(lambda: aggregate(chosen, edges, operands, 2, 8, reduce), exclude=[edges.token])
    assert found == 8 * sum(width[key] for key in saved.split())


def test_a_sum_can_be_differentiated_twice(nan_in_new_memory):
    edges, chosen = random_edges(), PROGRAMS['weighted']
    operands = random_operands(['x', 'c'], edges, 2, 8)
    weight = operands['c'].detach().requires_grad_()
    for given in (operands['c'].detach(), weight):
        both = {'x': operands['x'], 'c': given}
        grad = torch.randn(5, 2, 8, dtype=torch.float64, requires_grad=True)
        found, wanted = (
            torch.autograd.grad(out, operands['x'], grad, create_graph=True)[0]
            for out in (aggregate(chosen, edges, both, 2, 8), expected(chosen, edges, both, 2, 8, 'sum'))
        )
        torch.testing.assert_close(found, wanted)
        inputs = [grad, *[given] * given.requires_grad]
        for of_found, of_wanted in zip(
            torch.autograd.grad(found.square().sum(), inputs),
            torch.autograd.grad(wanted.square().sum(), inputs),
            strict=True,
        ):
            torch.testing.assert_close(of_found, of_wanted)


@pytest.mark.parametrize('reduce', ['sum', 'max'])
def test_a_checkpoint_that_is_computed_when_backward_reads_it(reduce):
    chosen, edges = PROGRAMS['weighted'], random_edges()
    operands = random_operands(used(chosen), edges, 2, 8)

    def run(*tensors):
        return aggregate(chosen, edges, dict(zip(operands, tensors, strict=True)), 2, 8, reduce)

    kept = run(*operands.values())
    again = checkpoint(run, *operands.values(), use_reentrant=False)
    grad, inputs = torch.randn_like(kept), leaves(operands)
    for found, right in zip(
        torch.autograd.grad(again, inputs, grad), torch.autograd.grad(kept, inputs, grad), strict=True
    ):
        assert torch.equal(found, right)


def test_saved_tensors_may_pass_through_hooks():
    x = torch.randn(7, 4, requires_grad=True)

    def run() -> torch.Tensor:
        # nobody else keeps the graph
        graph = Graph.of(random_edges().token, num_sources=7, num_targets=5)
        return aggregate(PROGRAMS['copy'], Edges(graph.token, 7, 5), {'x': x}, 1, 4).square().sum()

    (expected,) = torch.autograd.grad(run(), x)
    (found,) = torch.autograd.grad(checkpoint(run, use_reentrant=False), x)
    assert torch.equal(found, expected)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda copy: copy):
        loss = run()
    (found,) = torch.autograd.grad(loss, x)
    assert torch.equal(found, expected)


def test_what_forward_was_told_holds_where_backward_is_told_nothing():
    def any_size(csr, row_bytes):
        return None

    edge, vertex = Mapping('edge'), Mapping('vertex')
    with execution_paths(True), force_mapping(edge), group_sizes(any_size):
        said_in_forward = SimpleNamespace(note=None, said=said_of_backward(is_cuda=True))
        assert said_of_backward(is_cuda=False) == {}
    with as_in_forward(said_in_forward):
        assert (modes().execution_paths, modes().mapping, modes().group_sizes) == (True, edge, any_size)
        with execution_paths(False), force_mapping(vertex), as_in_forward(said_in_forward):
            assert (modes().execution_paths, modes().mapping, modes().group_sizes) == (False, vertex, any_size)
    assert (modes().execution_paths, modes().mapping, modes().group_sizes) == (None, None, None)
