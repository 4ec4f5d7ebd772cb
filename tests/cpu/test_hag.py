from __future__ import annotations

import torch

from pygfuse.cpu import hag as levels
from pygfuse.hag.components import component_bounds
from pygfuse.transforms import find_hag
from tests.support.parity import cliques


def test_both_ways_give_the_same(monkeypatch):
    edge_index = cliques(200)
    hag = find_hag(edge_index, capacity=None)
    x = torch.randn(6000, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    factors = torch.rand(6000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for way in (hag, hag.reversed):
        assert len(component_bounds(way)) > 2
        found = levels.sums(way, x, factors, factors)
        with monkeypatch.context() as patch:
            patch.setattr(levels, 'component_bounds', lambda hag: None)
            assert torch.equal(levels.sums(way, x, factors, factors), found)
        expected = torch.zeros_like(x).index_add(0, edge_index[1], (factors[:, None] * x)[edge_index[0]])
        torch.testing.assert_close(found, factors[:, None] * expected)
