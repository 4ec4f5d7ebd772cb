"""Times of walks alone, within a step."""

import torch

from pygfuse.bench.graphs import power_law
from pygfuse.bench.layers import Layer, Training
from pygfuse.bench.walks import Walks


def test_walks_of_both_directions_are_timed():
    layer = Layer('GATConv', (8, 4), {'heads': 2}, features=8)
    _, fused = layer.pair()
    # too many edges for the shorter way of few, in which walks are not alone
    training = Training(layer, *power_law(4_000, 40_000))
    grad = torch.randn_like(training.forward(fused))
    for direction in ('forward', 'backward'):
        walks = Walks('side', direction)
        walks.within(training.step(fused, grad))()
        assert walks.widths == [8]
        assert [seconds > 0 for seconds in walks.times] == [True]
