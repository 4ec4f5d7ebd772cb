"""Along how many edges PyG's operators are taken for faster."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import pygfuse
from pygfuse.mapping.few_edges import are_few_of_types, counted_bytes, fewest_of_matrices
from pygfuse.mapping.work import Work, fewest_of_work
from tests.compiler.own_convs import Own
from tests.support.parity import random_edges

ATTENTION = Work(16, 11, 208, 212, 6, 0, 1, 3, 0, 1, False)
SLICED = ATTENTION._replace(operands=11, operators=21, views=5)

pytestmark = pytest.mark.usefixtures('by_pyg')


@pytest.mark.parametrize(
    'more',
    [
        {'operands': 20},
        {'operators': 40},
        {'views': 20},
        {'returned': 2},
        {'sets': 3},
        {'is_of_a_module': True},
    ],
)
def test_what_walks_take_for_however_few_edges_asks_for_more_of_them(more):
    assert fewest_of_work(SLICED._replace(**more)) > fewest_of_work(SLICED)


@pytest.mark.parametrize(
    'more',
    [{'captured': 30}, {'walks': 9}, {'on_edges': 30}, {'numbers': 2000}, {'operations': 40_000}],
    ids=lambda more: next(iter(more)),
)
def test_what_operators_of_pyg_take_asks_for_fewer(more):
    assert fewest_of_work(SLICED._replace(**more)) < fewest_of_work(SLICED)


def test_one_edge_is_enough_where_walks_take_less_anyway():
    assert fewest_of_work(ATTENTION) == 1


def test_no_work_asks_for_more_than_the_most():
    nothing = Work(0, 0, 0, 0, 100, 100, 1, 100, 10, 5, True)
    assert fewest_of_work(nothing) == 3 * 2**11 + 1


@pytest.mark.parametrize('is_differentiated', [False, True])
def test_wide_matrices_pay_along_fewer_edges(is_differentiated):
    found = [fewest_of_matrices(width * width, is_differentiated) for width in (1, 8, 16, 32, 64, 128)]
    assert found == sorted(found, reverse=True)
    assert found[0] == found[1] > found[2] > found[3] > found[4] > found[5]


def test_wide_rows_are_mapped_by_types_along_fewer_edges():
    found = [
        sum(are_few_of_types(edges, counted_bytes(width, 4)) for edges in range(0, 5000, 100)) for width in (64, 256)
    ]
    assert found == [40, 10]


class Reading(Own):
    """Slices of a target's features, many of which a message reads."""

    def forward(self, x, edge_index, edge_weight):
        parts = x.chunk(8, dim=-1)
        return self.propagate(edge_index, parts=x, x=x, **{f'part{k}': part for k, part in enumerate(parts)})

    def message(self, x_j, part0_i, part1_i, part2_i, part3_i, part4_i, part5_i, part6_i, part7_i):
        parts = part0_i * part1_i * part2_i * part3_i * part4_i * part5_i * part6_i * part7_i
        return torch.tanh(x_j * parts.sum(dim=-1, keepdim=True))


class Gathering(nn.Module):
    """Two hops, each of a set of edges of its own."""

    def forward(self, x, edge_index, far_edge_index):
        for row, col in (edge_index, far_edge_index):
            x = torch.zeros_like(x).index_add(0, col, torch.tanh(x[row] - x[col]))
        return x


class Once(nn.Module):
    """The same along one set."""

    def forward(self, x, edge_index):
        row, col = edge_index
        return torch.zeros_like(x).index_add(0, col, torch.tanh(x[row] - x[col]))


class Chosen(nn.Module):
    """The same along some of its edges."""

    def forward(self, x, edge_index):
        row, col = edge_index[:, edge_index[0] != edge_index[1]]
        return torch.zeros_like(x).index_add(0, col, torch.tanh(x[row] - x[col]))


def fewest(module, *more):
    x = torch.randn(900, 64)
    compiled = pygfuse.compile(module)
    compiled(x, random_edges(900, 900, 9000), *more)
    (plan,) = compiled.plans()
    return plan.fewest_edges


def test_modules_with_more_sets_of_edges_ask_for_more():
    once, chosen = fewest(Once()), fewest(Chosen())
    both = fewest(Gathering(), random_edges(900, 900, 8000, seed=5))
    assert 1 < once < min(chosen, both)


def test_many_operands_ask_for_more_edges():
    assert fewest(Reading(), torch.rand(9000)) > 257


@pytest.mark.parametrize('copies', [1, 2, 4])
def test_sums_of_copies_share_the_limit(copies):
    """Stacked features are as many edges."""
    conv = pygfuse.fuse(pyg.ARMAConv(8, 8, num_stacks=copies, num_layers=1))
    reasons = []
    for edges in (512 // copies, 512 // copies + 2):
        conv(torch.randn(90, 8), random_edges(90, 90, edges))
        reasons.append(conv.note.reason is None)
    assert reasons == [False, True]
