"""What the grids over all convolutions share; the layers and their inputs are in `tests.support.cases`."""

from __future__ import annotations

import pytest
import torch

from tests.support import cases as table
from tests.support.cases import EDGE_CONV, LAYERS, SAGE, TRANSFORMER_EDGES
from tests.support.parity import GRAPHS, Example

RANDOM = GRAPHS['random']()
LOOPS = GRAPHS['self-loops']()
SMALL = Example(torch.tensor([[0, 1, 2, 2, 3, 1, 1, 3], [1, 2, 0, 1, 3, 1, 2, 0]]), 4, 4)
every = pytest.mark.parametrize('layer', LAYERS, ids=str)


def some(layers, fast):
    """Layers as parameters of a test, those that are not among the fast ones marked slow: each compiles kernels."""
    marks = {layer: () if layer in fast else pytest.mark.slow for layer in layers}
    return pytest.mark.parametrize('layer', [pytest.param(layer, marks=marks[layer]) for layer in layers], ids=str)


# one layer of each kind: sums with weights, extremes, softmax, products of edges, networks, Gaussians
of_each_kind = some(LAYERS, fast=[table.GCN_WEIGHTS, SAGE, TRANSFORMER_EDGES, table.CG_EDGES, EDGE_CONV, table.GMM])
