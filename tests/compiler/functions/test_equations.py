"""Equations of `torch.einsum` in messages: outputs and gradients are PyG's, and those that can be have a kernel."""

from __future__ import annotations

import copy

import pytest
import torch

import pygfuse
from pygfuse.compiler.forms.chunked import Chunked
from pygfuse.compiler.functions.bilinear import bilinear
from pygfuse.compiler.ir.values import leaf
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES
from pygfuse.compiler.symbols.symbol import Symbol
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

# an equation, the shape of a row of the first value, that of a parameter, or that of a row of another
WITH_KERNELS = [
    ('ij,jk->ik', (6,), (6, 5), None),
    ('ij,kj->ik', (6,), (5, 6), None),
    ('jk,ij->ik', (6,), (6, 5), None),
    ('ehf,fo->eho', (2, 3), (3, 4), None),
    ('ehf,of->eho', (2, 3), (4, 3), None),
    ('ehf,xhf->eh', (2, 3), (1, 2, 3), None),
    ('ehf,hf->eh', (2, 3), (2, 3), None),
    ('ehf,fh->eh', (2, 3), (3, 2), None),
    ('ehf,f->ehf', (2, 3), (3,), None),
    ('ei,i->e', (3,), (3,), None),
    ('ei,j->eij', (3,), (4,), None),
    ('ei,xyi->ei', (3,), (2, 2, 3), None),
    ('ei,jk->ei', (3,), (2, 4), None),
    ('ehf,ehf->eh', (2, 3), None, (2, 3)),
    ('ei,ei->e', (3,), None, (3,)),
    ('ei,ej->eij', (3,), None, (4,)),
    ('ei,ej->eji', (3,), None, (4,)),
    ('eij,ej->ei', (3, 4), None, (4,)),
    ('eij,ei->ej', (3, 4), None, (3,)),
    ('ei,eij->ej', (3,), None, (3, 4)),
    ('ehf,fho->eho', (2, 3), (3, 2, 1), None),
    ('ei,io->eo', (3,), (3, 1), None),
    ('ei,eio->eo', (3,), None, (3, 1)),
]
WITHOUT = [
    ('ei,eij->ej', (4,), None, (4, 5)),
    ('ehf,hfo->eho', (2, 3), (2, 3, 4), None),
    ('eij,ejk->eik', (2, 3), None, (3, 4)),
    ('ei,ej->ei', (3,), None, (4,)),
    ('eii,i->e', (3, 3), (3,), None),
]


class Equation(Own):
    def __init__(self, equation, weight):
        super().__init__(node_dim=0)
        self.equation = equation
        self.weight = None if weight is None else torch.nn.Parameter(torch.randn(weight))

    def message(self, x_i, x_j, z_j):
        first, second = x_i * x_j, z_j if self.weight is None else self.weight
        return torch.einsum(self.equation, *((second, first) if self.equation.startswith('jk') else (first, second)))


def has_kernel(conv, **given):
    """Compiles a layer, whose output and gradients are then PyG's; whether nothing runs by operators on chunks."""
    fused, found = pygfuse.compile(copy.deepcopy(conv)), []
    edge_index = random_edges(20, 20, 90)
    for layer in (conv, fused):
        tensors = {name: tensor.clone().requires_grad_() for name, tensor in given.items()}
        out = layer(edge_index, **tensors)
        leaves = [*tensors.values(), *layer.parameters()]
        found.append((out, *torch.autograd.grad(out.sin().sum(), leaves, allow_unused=True)))
    torch.testing.assert_close(found[1], found[0])
    assert fused.note.reason is None
    (plan,) = fused.plans()
    return not any(isinstance(form, Chunked) for form in plan.walks.values())


@pytest.mark.parametrize(('equation', 'row', 'weight', 'other'), [*WITH_KERNELS, *WITHOUT])
def test_outputs_and_gradients_are_those_of_pyg(equation, row, weight, other):
    torch.manual_seed(0)
    conv = Equation(equation, weight).double()
    x, z = torch.randn(20, *row, dtype=torch.float64), torch.randn(20, *(other or (1,)), dtype=torch.float64)
    assert has_kernel(conv, x=x, z=z) == ((equation, row, weight, other) in WITH_KERNELS)


# where each stands of the values with rows and the table, and the letters of the table
TABLES = [('ei,ej,oij->eo', 'oij'), ('ej,jio,ei->eo', 'jio'), ('ioj,ei,ej->eo', 'ioj')]


class Bilinear(Own):
    """A product of sources, of features of edges and of a table."""

    def __init__(self, equation, letters, aggr):
        super().__init__(node_dim=0, aggr=aggr)
        self.equation = equation
        self.weight = torch.nn.Parameter(torch.randn([{'i': 6, 'j': 4, 'o': 5}[letter] for letter in letters]))
        self.product = torch.nn.Bilinear(6, 4, 5)

    def message(self, x_j, e):
        if self.equation is None:
            return self.product(x_j, e)
        tensors = {'ei': x_j, 'ej': e}
        terms = self.equation.partition('->')[0].split(',')
        return torch.einsum(self.equation, *(tensors.get(term, self.weight) for term in terms))


@pytest.mark.parametrize('aggr', ['sum', 'mean', 'max'])
@pytest.mark.parametrize(('equation', 'letters'), [*TABLES, (None, 'oij')])
def test_products_of_three(equation, letters, aggr):
    torch.manual_seed(0)
    x, e = torch.randn(20, 6, dtype=torch.float64), torch.randn(90, 4, dtype=torch.float64)
    assert has_kernel(Bilinear(equation, letters, aggr).double(), x=x, e=e)


@pytest.mark.parametrize('equation', ['ei,ej,oij->e', 'ei,ej,ij->eo', 'ei,ej,oik->eo', 'ei,oj,eij->eo'])
def test_other_products_of_three_are_none(equation):
    terms, _, result = equation.partition('->')
    sizes = {'i': 6, 'j': 4, 'o': 5, 'k': 3}
    tensors = [
        Symbol(leaf(t, 'edge', [sizes[k] for k in t[1:]], torch.float32), NUM_EDGES)
        if t[0] == 'e'
        else Symbol(leaf(t, 'shared', [sizes[k] for k in t], torch.float32), None)
        for t in terms.split(',')
    ]
    assert bilinear(terms.split(','), result, tensors) is None
