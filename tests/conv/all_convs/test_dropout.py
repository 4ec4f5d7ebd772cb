"""Dropout of every convolution that has it."""

from __future__ import annotations

import pytest
import torch

from tests.support import cases as table
from tests.support.all_convs import RANDOM, some
from tests.support.cases import FA, GATV2, TRANSFORMER

pytestmark = pytest.mark.filterwarnings('ignore:Sparse', 'ignore:Converting sparse tensor', 'ignore:The usage of')


@some(table.DROPOUT, fast=[GATV2, TRANSFORMER, FA])
def test_dropout_is_decided_by_the_seed(layer):
    conv = layer.fused(dropout=0.5).double()
    inputs = layer.inputs(RANDOM, dtype=torch.float64)

    def run(seed: int | None = None):
        if seed is not None:
            torch.manual_seed(seed)
        return conv(edge_index=RANDOM.edge_index, **inputs)

    first = run(0)
    assert not torch.equal(run(), first)
    assert torch.equal(run(0), first)
    assert not torch.equal(run(1), first)
    assert conv.note.reason is None
    conv.eval()
    plain = layer.parity.fused(**{**layer.options, 'dropout': 0.0}).double()
    plain.load_state_dict(conv.state_dict())
    assert torch.equal(run(), plain(edge_index=RANDOM.edge_index, **inputs))


@some(table.DROPOUT, fast=[GATV2, TRANSFORMER, FA])
def test_dropout_keeps_the_expectation(layer):
    conv = layer.fused(dropout=0.3).double()
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    with torch.no_grad():
        expected = conv.eval()(edge_index=RANDOM.edge_index, **inputs)
        conv.train()
        torch.manual_seed(0)
        runs = torch.stack([conv(edge_index=RANDOM.edge_index, **inputs) for _ in range(400)])
    deviation = runs.std(dim=0) / 400**0.5
    assert bool(((runs.mean(dim=0) - expected).abs() <= 6 * deviation + 1e-12).all())


@some(table.DROPOUT, fast=[GATV2, TRANSFORMER, FA])
def test_dropout_of_everything(layer):
    options = {'dropout': 1.0, **({'eps': 0.0} if layer.name == 'FAConv' else {})}
    pyg, fused = layer.pair(torch.float64, **options)
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    torch.testing.assert_close(
        fused(edge_index=RANDOM.edge_index, **inputs), pyg(edge_index=RANDOM.edge_index, **inputs)
    )
    assert fused.note.reason is None
