"""Maps of nodes as products of a list: torch's numbers and derivatives, and which maps are taken so."""

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch.nn import Linear
from torch.nn.utils.parametrizations import weight_norm

import pygfuse
from pygfuse.cpu.products import product_list
from pygfuse.ops.nodes import linear
from pygfuse.ops.nodes.linear import apply_linear
from pygfuse.ops.nodes.several_maps import apply_both
from pygfuse.ops.nodes.sum_maps import map_by_list
from tests.support.parity import Parity, random_edges

NAMES = 'x', 'weight', 'bias', 'own', 'root'
every = pytest.mark.parametrize('there', [('bias', 'own', 'root'), ('own', 'root'), ('bias',), ()], ids=str)


def given(there=NAMES, rows=7):
    shapes = {'x': (rows, 4), 'weight': (3, 4), 'bias': (3,), 'own': (rows, 5), 'root': (3, 5)}
    generator, found = torch.Generator().manual_seed(1), {}
    for name, shape in shapes.items():
        if name in ('x', 'weight', *there):
            found[name] = torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
    return found


def by_torch(x, weight, bias=None, own=None, root=None):
    out = F.linear(x, weight, bias)
    return out if root is None else out + F.linear(own, root)


@every
def test_numbers_and_derivatives(there):
    leaves = given(there)

    def run(*tensors):
        return map_by_list(**dict(zip(leaves, tensors, strict=True)))

    found, expected = run(*leaves.values()), by_torch(**leaves)
    torch.testing.assert_close(found, expected)
    with torch.no_grad():
        assert torch.equal(run(*leaves.values()), found)
    assert torch.autograd.gradcheck(run, [*leaves.values()], check_batched_grad=True)
    assert torch.autograd.gradgradcheck(run, [*leaves.values()])


@pytest.mark.parametrize('wanted', NAMES)
def test_only_gradients_that_are_needed(wanted):
    leaves = given()
    (expected,) = torch.autograd.grad(by_torch(**leaves).sin().sum(), leaves[wanted])
    for name, tensor in leaves.items():
        tensor.requires_grad_(name == wanted)
    map_by_list(**leaves).sin().sum().backward()
    assert [name for name, tensor in leaves.items() if tensor.grad is not None] == [wanted]
    torch.testing.assert_close(leaves[wanted].grad, expected)


def test_tensors_that_are_not_contiguous():
    leaves = {name: tensor.detach().t().contiguous().t() for name, tensor in given().items()}
    leaves['bias'] = torch.tensor(2.0, dtype=torch.float64).expand(3)
    for tensor in leaves.values():
        tensor.requires_grad_()
    gradients = (torch.autograd.grad(run(**leaves).sum(), [*leaves.values()]) for run in (map_by_list, by_torch))
    torch.testing.assert_close(*gradients)


@pytest.fixture
def listed(monkeypatch):
    """The sizes of lists that run, where torch's products are said to be slow and all maps large enough."""
    found, run = [], product_list.multiply_listed
    monkeypatch.setattr(product_list, 'is_faster', lambda *_: True)
    monkeypatch.setattr(linear, 'LEAST_LISTED', 0)
    monkeypatch.setattr(
        product_list, 'multiply_listed', lambda *arguments: found.append(arguments[1].count) or run(*arguments)
    )
    return found


def test_maps_of_layers(listed):
    module, other = Linear(4, 3).double(), Linear(5, 3, bias=False).double()
    x, own = (given()[name] for name in ('x', 'own'))
    for found, expected in (
        (apply_linear(module, x), module(x)),
        (apply_both(module, x, other, own), module(x) + other(own)),
    ):
        listed.clear()
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        assert listed
    listed.clear()
    with torch.no_grad():
        torch.testing.assert_close(apply_linear(module, x), module(x))
    assert len(listed) == 1


@pytest.mark.parametrize(
    'make', [lambda: weight_norm(Linear(4, 3)), lambda: torch.nn.Sequential(Linear(4, 3)), lambda: hooked(Linear(4, 3))]
)
def test_modules_that_are_more_than_a_map_are_called(listed, make):
    module, x = make(), torch.randn(7, 4)
    torch.testing.assert_close(apply_linear(module, x), module(x))
    assert not listed


def hooked(module):
    module.register_forward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize('is_large', [False, True])
def test_calls_that_torch_computes(is_large, listed, monkeypatch):
    module, x = Linear(4, 3), torch.randn(7, 4)
    if is_large:
        monkeypatch.setattr(linear, 'LEAST_BYTES', 0)
    with torch.autocast('cpu'):
        assert apply_linear(module, x).dtype is torch.bfloat16
    torch.func.vmap(lambda rows: apply_linear(module, rows))(x[None])
    assert not listed


@pytest.mark.parametrize(('is_slow', 'register_bytes', 'widest'), [(True, 32, 512), (False, 64, 128), (False, 32, 0)])
def test_types_and_sizes(is_slow, register_bytes, widest, monkeypatch):
    monkeypatch.setattr(product_list, 'is_mkl_slow', lambda: is_slow)
    monkeypatch.setattr(product_list.simd, 'register_bytes', lambda: register_bytes)
    assert product_list.is_faster(torch.float64, 256, 64, 64) == (widest >= 64)
    assert not product_list.is_faster(torch.bfloat16, 256, 64, 64)
    assert not product_list.is_faster(torch.float32, 255, 64, 64)
    for inputs, outputs in ((widest, 64), (64, widest)):
        assert product_list.is_faster(torch.float32, 10_000, inputs, outputs) == (widest > 0)
    if widest == 128:
        assert not product_list.is_faster(torch.float32, 10_000, 64, 129)
        assert not product_list.is_faster(torch.float32, 10_000, 129, 64)


NETWORK = torch.nn.Sequential(Linear(16, 24), torch.nn.ReLU(), Linear(24, 8))


@pytest.mark.parametrize('is_large', [False, True])
@pytest.mark.parametrize('name', ['GINConv', 'SAGEConv', 'GraphConv', 'GCNConv', 'GATConv', 'TransformerConv'])
def test_layers_over_many_nodes(name, is_large, listed, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    if is_large:
        monkeypatch.setattr(linear, 'LEAST_BYTES', 0)
    options = {'nn': NETWORK} if name == 'GINConv' else {'in_channels': 16, 'out_channels': 8}
    x, edge_index = torch.randn(500, 16, generator=torch.Generator().manual_seed(2)), random_edges(500, 500, 4000, 3)
    Parity(getattr(pyg, name), getattr(pygfuse.conv, name)).check(options, x=x, edge_index=edge_index)
    assert listed
