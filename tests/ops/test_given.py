"""Operands that do not fit a program are refused by name, before any kernel reads them."""

from __future__ import annotations

import re

import pytest
import torch

from pygfuse.ops import Edges, aggregate
from pygfuse.program import Product
from pygfuse.program.library.gat import GAT
from pygfuse.program.library.gatv2 import GATV2
from pygfuse.program.library.neighbours import NEIGHBOURS, WEIGHTED_NEIGHBOURS

HEADS, CHANNELS = 2, 4
EDGES = Edges(torch.tensor([[0, 1, 2, 2, 3, 0], [1, 0, 1, 3, 3, 2]]), 4, 4)
X, ALPHA = torch.ones(4, HEADS, CHANNELS), torch.ones(4, HEADS)
V2 = {'x': X, 'x_dst': X, 'att': torch.ones(1, HEADS, CHANNELS), 'negative_slope': 0.2}

REFUSED = {
    'rows of sources': (NEIGHBOURS, {'x': torch.ones(5, 8)}, "'x' to hold 8 values for each of 4 source rows"),
    'width of rows': (NEIGHBOURS, {'x': torch.ones(4, 7)}, "'x' to hold 8 values for each of 4 source rows"),
    'rows of targets': (
        GAT,
        {'x': X, 'alpha_src': ALPHA, 'alpha_dst': torch.ones(3, HEADS), 'negative_slope': 0.2},
        "'alpha_dst' to hold 2 values for each of 4 target rows",
    ),
    'values of heads': (
        GAT,
        {'x': X, 'alpha_src': torch.ones(4, 3), 'negative_slope': 0.2},
        "'alpha_src' to hold 2 values for each of 4 source rows",
    ),
    'rows of parameters': (
        GATV2,
        {**V2, 'att': torch.ones(2, 8)},
        "'att' to hold 8 values for each of 1 parameter rows",
    ),
    'weight of a product': (
        GATV2,
        {**V2, 'edge': Product(torch.ones(6, 3), torch.ones(3, 7))},
        "'edge.weight' to hold 8 values for each of 3 feature rows",
    ),
    'rows of edges': (
        WEIGHTED_NEIGHBOURS,
        {'x': X, 'edge_weight': torch.ones(5, HEADS)},
        "'edge_weight' to have a row for each of 6 edges (got 5)",
    ),
    'rows of edge features': (
        GATV2,
        {**V2, 'edge': Product(torch.ones(7, 3), torch.ones(3, 8))},
        "'edge' to have a row for each of 6 edges (got 7)",
    ),
    'types': (
        WEIGHTED_NEIGHBOURS,
        {'x': X, 'edge_weight': torch.ones(6, HEADS, dtype=torch.float64)},
        "'edge_weight' of the type of 'x', torch.float32 (got torch.float64)",
    ),
}  # fmt: skip


@pytest.mark.parametrize('kind', REFUSED)
def test_operands_of_other_shapes_and_types_are_refused(kind):
    program, operands, message = REFUSED[kind]
    with pytest.raises(ValueError, match=re.escape(f'Expected {message}')):
        aggregate(program, EDGES, operands, HEADS, CHANNELS)


@pytest.mark.parametrize('reduce', ['max', 'min'])
def test_extremes_of_what_a_softmax_weighs_are_refused(reduce):
    with pytest.raises(ValueError, match=f"'reduce' to be 'sum' or 'mean'.*[(]got '{reduce}'"):
        aggregate(GAT, EDGES, {'x': X, 'alpha_src': ALPHA, 'negative_slope': 0.2}, HEADS, CHANNELS, reduce)
