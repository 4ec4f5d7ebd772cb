"""Softmaxes that an author wrote out of a maximum, exponentials and their sum, in a pass and in layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.utils import scatter

import pygfuse
from pygfuse.compiler.ir.values import Node, value
from pygfuse.compiler.passes.written_softmax import softmaxes_recognised
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.compiler.support import check, edge, on_edges, source, target
from tests.support.parity import random_edges

WIDTH, NODES, EDGES = 6, 11, 50


def grown(score: Node, detached: str = '') -> Node:
    """Exponentials of scores below the highest of each target, which or of which a detached value is taken."""
    of = value('detach', score) if detached == 'score' else score
    highest = value('reduce', of, reduce='max')
    return value('exp', value('sub', score, value('detach', highest) if detached == 'highest' else highest))


def total(e: Node, epsilon: float = 1e-16) -> Node:
    return value('add', value('reduce', e, reduce='sum'), epsilon)


@pytest.mark.parametrize('detached', ['', 'score', 'highest'])
def test_a_quotient_of_exponentials(detached):
    e = grown(value('add', source(2), target(2)), detached)
    found = check(softmaxes_recognised, value('mul', value('div', e, total(e)), edge(2)))
    assert not on_edges(found, 'exp')


def test_totals_with_nothing_added_or_held_above_a_number():
    e = grown(source(2))
    summed = value('reduce', e, reduce='sum')
    for below in (summed, value('clamp', summed, 1e-16, None), value('add', 1e-16, summed)):
        assert check(softmaxes_recognised, value('div', e, below)).op == 'softmax'


def test_weighted_sums_that_are_divided():
    e = grown(source(2, 1))
    found = check(
        softmaxes_recognised, value('div', value('reduce', value('mul', e, edge(2, 3)), reduce='sum'), total(e))
    )
    assert found.op == 'reduce'
    assert found.args[0].args[0].op == 'softmax'


def others() -> dict[str, Node]:
    e, score = grown(source(2)), source(2)
    of_other = value('exp', value('sub', score, value('reduce', edge(2), reduce='max')))
    summed = value('reduce', e, reduce='sum')
    weighed = value('reduce', value('mul', e, edge(2)), reduce='sum')
    return {
        'an epsilon that is seen': value('div', e, total(e, 1e-6)),
        'a total of others': value('div', e, total(edge(2))),
        'the highest of others': value('div', of_other, total(of_other)),
        'a mean': value('div', e, value('reduce', e, reduce='mean')),
        'a weighted mean': value('div', value('reduce', value('mul', e, edge(2)), reduce='mean'), total(e)),
        'nothing divided by nothing': value('div', weighed, summed),
        'squares': value('div', value('reduce', value('mul', e, e), reduce='sum'), total(e)),
    }


@pytest.mark.parametrize('name', others())
def test_what_is_none(name):
    output = others()[name]
    assert softmaxes_recognised(output) is output


@torch.jit.script
def by_hand(src: Tensor, index: Tensor, num_nodes: int) -> Tensor:
    highest = scatter(src.detach(), index, 0, num_nodes, 'max')
    e = (src - highest.index_select(0, index)).exp()
    return e / (scatter(e, index, 0, num_nodes, 'sum') + 1e-16).index_select(0, index)


class ByHand(Own):
    def message(self, x_i, x_j, index, size_i):
        score = (x_i * x_j).sum(dim=-1, keepdim=True)
        return by_hand(score, index, size_i) * x_j


class DividedLast(Own):
    def message(self, x_i, x_j):
        return torch.tanh(x_i + x_j)

    def aggregate(self, inputs, index, x_j, dim_size):
        e = (inputs - scatter(inputs, index, 0, dim_size, 'max')[index]).exp()
        return scatter(e * x_j, index, 0, dim_size, 'sum') / (scatter(e, index, 0, dim_size, 'sum') + 1e-16)


@pytest.mark.parametrize('kind', [ByHand, DividedLast])
def test_in_layers(kind):
    torch.manual_seed(0)
    given = {'edge_index': random_edges(NODES, NODES, EDGES), 'x': torch.randn(NODES, WIDTH)}
    conv = kind()
    assert_as_pyg(conv, given)
    assert ' softmax(' in str(pygfuse.explain(conv))


def layer_of_torch_scatter(kind):
    import torch_scatter

    class ByScatter(Own):
        def message(self, x_i, x_j, index, size_i):
            score = x_i * x_j
            if kind == 'without gradients':
                with torch.no_grad():
                    highest, _ = torch_scatter.scatter_max(score, index, dim=0, dim_size=size_i)
            else:
                highest = torch_scatter.scatter_max(score, index, dim=0, dim_size=size_i)[0]
            if kind == 'maximum alone':
                return x_j - highest[index]
            e = (score - highest[index]).exp()
            return e / (torch_scatter.scatter_add(e, index, dim=0, dim_size=size_i)[index] + 1e-16) * x_j

    return ByScatter()


@pytest.mark.parametrize('kind', ['softmax', 'without gradients', 'maximum alone'])
def test_maxima_of_torch_scatter(kind, needs_torch_sparse):
    torch.manual_seed(0)
    conv = layer_of_torch_scatter(kind)
    given = {'edge_index': random_edges(NODES, NODES, EDGES), 'x': torch.randn(NODES, WIDTH)}
    assert_as_pyg(conv, given)
    assert (' softmax(' in str(pygfuse.explain(conv))) == (kind != 'maximum alone')
