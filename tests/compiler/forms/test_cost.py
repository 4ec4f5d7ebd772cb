"""What a message costs as it is written."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pygfuse
from pygfuse.compiler.forms.cost import cost_as_written
from pygfuse.compiler.ir.values import EDGE, TARGET
from pygfuse.mapping import few_edges
from tests.support.parity import random_edges

WIDTH = 8


class Hops(nn.Module):
    """Weighed sums, one after the other, with a map between."""

    def __init__(self, hops):
        super().__init__()
        self.hops, self.lin = hops, nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        for _ in range(self.hops):
            x = self.lin(torch.zeros_like(x).index_add(0, col, x[row] * edge_weight[:, None]))
        return x


class Scores(Hops):
    def forward(self, x, edge_index, edge_weight):
        x = super().forward(x, edge_index, edge_weight)
        return (x[edge_index[0]] * x[edge_index[1]]).sum(dim=-1)


def plan_of(module):
    torch.manual_seed(0)
    compiled = pygfuse.compile(module)
    compiled(torch.randn(20, WIDTH), random_edges(20, 20, 130), torch.rand(130))
    (plan,) = compiled.plans()
    return plan


@pytest.mark.parametrize('hops', [1, 2, 3])
def test_what_edges_gather_again_is_on_edges(hops):
    """A product and a sum in each hop, and a map of nodes; what is gathered, weighed and mapped is kept."""
    cost = cost_as_written(plan_of(Hops(hops)).captured.output)
    assert cost.operations[EDGE] == hops * 2 * WIDTH
    assert cost.operations[TARGET] == hops * 2 * WIDTH * WIDTH


def test_scores_of_what_was_aggregated_are_on_edges():
    hop, scores = (cost_as_written(plan_of(kind(1)).captured.output) for kind in (Hops, Scores))
    assert scores.operations[EDGE] == hop.operations[EDGE] + 2 * WIDTH
    assert scores.held >= hop.held + 3 * WIDTH


@pytest.mark.parametrize('hops', [1, 3])
def test_a_plan_of_hops_computes_no_more(hops):
    plan = plan_of(Hops(hops))
    assert plan.cost.operations[EDGE] <= cost_as_written(plan.captured.output).operations[EDGE]


def test_hops_are_long_and_not_computed_again(monkeypatch):
    monkeypatch.setattr(few_edges, 'MOST_OF_COMPUTED_AGAIN', 2**12)
    assert plan_of(Hops(3)).fewest_edges <= 1
