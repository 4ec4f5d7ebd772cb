"""Gradients of gradients of edge programs by walks, against the programs computed by torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradgradcheck

from pygfuse.memory import saved_bytes
from pygfuse.ops import Edges, aggregate
from pygfuse.program.library.crystal import CRYSTAL
from pygfuse.program.library.gat import GAT
from pygfuse.program.library.gine import GINE
from pygfuse.program.library.neighbours import NEIGHBOURS, WEIGHTED_NEIGHBOURS
from pygfuse.program.products import Product
from tests.support.parity import random_edges

NODES, CHANNELS = 6, 4
EDGES = random_edges(NODES, NODES, 15)


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def crystal() -> tuple:
    rows = {name: leaf(NODES, CHANNELS) for name in ('f', 'f_dst', 's', 's_dst')}
    features = leaf(15, 3)
    return CRYSTAL, {**rows, 'f_edge': (features, leaf(3, CHANNELS)), 's_edge': (features, leaf(3, CHANNELS))}, {}


CALLS = {
    'crystal': crystal,
    'crystal, mean': lambda: (*crystal()[:2], {'reduce': 'mean'}),
    'features wider than channels': lambda: (GINE, {'x': leaf(NODES, CHANNELS), 'edge': (leaf(15, 5), leaf(5, 4))}, {}),
    'rows of edges': lambda: (GINE, {'x': leaf(NODES, CHANNELS), 'edge': leaf(15, CHANNELS)}, {}),
    'neighbours': lambda: (NEIGHBOURS, {'x': leaf(NODES, CHANNELS)}, {'reduce': 'mean'}),
    'weights': lambda: (WEIGHTED_NEIGHBOURS, {'x': leaf(NODES, CHANNELS), 'edge_weight': leaf(15, 1)}, {}),
    'weights, dropout': lambda: (
        WEIGHTED_NEIGHBOURS,
        {'x': leaf(NODES, CHANNELS), 'edge_weight': leaf(15, 1)},
        {'dropout': 0.4, 'seed': torch.tensor([3])},
    ),
}


def flat(operands: dict) -> list[Tensor]:
    found = []
    for value in operands.values():
        found += value if isinstance(value, tuple) else [value]
    return list({id(t): t for t in found}.values())


def run(program, operands: dict, options: dict) -> Tensor:
    given = {name: Product(*value) if isinstance(value, tuple) else value for name, value in operands.items()}
    return aggregate(program, Edges(EDGES, NODES, NODES), given, 1, CHANNELS, **options)


@pytest.fixture
def no_reference(monkeypatch):
    """Fails where gradients are taken by tensors of edges x features."""

    def refused(*_):
        raise AssertionError('tensors of edges x features')

    monkeypatch.setattr('pygfuse.ops.autograd.by_reference', refused)


# forty kernels
EACH = [pytest.param(name, marks=pytest.mark.slow if name.startswith('crystal') else ()) for name in CALLS]


@pytest.mark.parametrize('name', EACH)
def test_gradients_of_gradients(name, no_reference):
    torch.manual_seed(0)
    program, operands, options = CALLS[name]()
    assert gradgradcheck(lambda *_: run(program, operands, options), tuple(flat(operands)), fast_mode=True)


def test_the_third_order(no_reference):
    torch.manual_seed(0)
    program, operands, options = CALLS['weights']()
    tensors = flat(operands)

    def forces(*_) -> Tensor:
        out = run(program, operands, options).square().sum()
        return torch.autograd.grad(out, tensors[0], create_graph=True)[0]

    assert gradgradcheck(forces, tuple(tensors), fast_mode=True)


def test_rows_of_a_hessian_at_once():
    torch.manual_seed(0)
    program, operands, options = crystal()

    def energy(f: Tensor) -> Tensor:
        return run(program, {**operands, 'f': f}, options).square().sum()

    found = [torch.autograd.functional.hessian(energy, operands['f'], vectorize=at_once) for at_once in (True, False)]
    torch.testing.assert_close(*found)
    assert found[0].any()


def test_a_softmax_takes_operators(monkeypatch):
    torch.manual_seed(0)
    operands = {'x': leaf(NODES, CHANNELS), 'alpha_src': leaf(NODES, 1), 'alpha_dst': leaf(NODES, 1)}
    monkeypatch.setattr('pygfuse.ops.autograd.twice_differentiable', None)
    assert gradgradcheck(
        lambda *_: run(GAT, {**operands, 'negative_slope': 0.2}, {}), tuple(operands.values()), fast_mode=True
    )


def test_no_row_of_edges_is_saved():
    torch.manual_seed(0)
    edge_index = random_edges(20, 20, 3000)
    x, edge = (torch.randn(20, 64).requires_grad_(), torch.randn(3000, 2).requires_grad_())
    weight = torch.randn(2, 64).requires_grad_()

    def forces() -> Tensor:
        rows = {name: x * k for k, name in enumerate(('f', 'f_dst', 's', 's_dst'), start=1)}
        given = {**rows, 'f_edge': Product(edge, weight), 's_edge': Product(edge, weight)}
        out = aggregate(CRYSTAL, Edges(edge_index, 20, 20), given, 1, 64)
        return torch.autograd.grad(out.square().sum(), edge, create_graph=True)[0]

    assert saved_bytes(forces, exclude=[x, edge, weight, edge_index]) < 3000 * 64


def test_gradients_that_nobody_takes_are_not_computed(monkeypatch):
    torch.manual_seed(0)
    program, operands, options = crystal()
    # what a layer computes of parameters; a leaf says nothing
    made = {name: value if isinstance(value, tuple) else 2 * value for name, value in operands.items()}
    made['f_edge'] = made['f_edge'][0] * 2, made['f_edge'][1] * 2
    seen = []
    plan = 'pygfuse.ops.eager.walk_few_back'
    walk = 'pygfuse.ops.eager.walk_back'
    for path in (plan, walk):
        name = path.rpartition('.')[2]
        function = getattr(__import__('pygfuse.ops.walks', fromlist=[name]), name)
        monkeypatch.setattr(path, lambda *given, function=function: seen.append(given[-1]) or function(*given))
    torch.autograd.grad(run(program, made, options).sum(), operands['f_edge'][0])
    assert {frozenset(needed.names) for needed in seen} == {frozenset({'f_edge', 's_edge'})}
    assert not seen[0].flags['f_edge'].weight
    assert seen[0].flags['f_edge'].features
