"""Layers over typed edges that were made within ``torch.inference_mode``, as batches of a loader there are."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg

import pygfuse
from tests.support.parity import random_edges

NODES, CHANNELS, RELATIONS, EDGES = 20, 8, 3, 120


class ByType(torch.nn.Module):
    """A matrix for each type, chosen by the edge."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(RELATIONS, CHANNELS, CHANNELS))

    def forward(self, x, edge_index, edge_type):
        messages = torch.bmm(x[edge_index[0]].unsqueeze(1), self.weight[edge_type]).squeeze(1)
        return torch.zeros_like(x).index_add(0, edge_index[1], messages)


LAYERS = {
    'RGCNConv': lambda: pyg.RGCNConv(CHANNELS, CHANNELS, RELATIONS),
    'RGCNConv of maxima': lambda: pyg.RGCNConv(CHANNELS, CHANNELS, RELATIONS, aggr='max'),
    'FastRGCNConv': lambda: pyg.FastRGCNConv(CHANNELS, CHANNELS, RELATIONS),
    'RGATConv': lambda: pyg.RGATConv(CHANNELS, CHANNELS, RELATIONS),
    'FiLMConv': lambda: pyg.FiLMConv(CHANNELS, CHANNELS, RELATIONS),
    'a module': ByType,
}


@pytest.mark.parametrize('is_met', [False, True])
@pytest.mark.parametrize('name', LAYERS)
def test_typed_edges_that_were_made_in_inference_mode(name, is_met):
    torch.manual_seed(0)
    plain = LAYERS[name]()
    fused = (pygfuse.compile if name == 'a module' else pygfuse.fuse)(copy.deepcopy(plain))
    x, given = torch.randn(NODES, CHANNELS), (random_edges(NODES, NODES, EDGES), torch.randint(RELATIONS, (EDGES,)))
    if is_met:
        fused(x, *given)
    for kinds in ((True, True), (True, False), (False, True)):
        with torch.inference_mode():
            # one of the two may have been made outside
            made = [tensor.clone() if is_new else tensor for tensor, is_new in zip(given, kinds, strict=True)]
            for _ in range(2):
                torch.testing.assert_close(fused(x, *made), plain(x, *made), rtol=1e-4, atol=1e-5)
    assert fused.note.reason is None
