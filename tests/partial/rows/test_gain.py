"""Whether later blocks for the same rows choose them: what the first one found that it gains."""

from __future__ import annotations

import gc

import pytest
import torch

import pygfuse
from pygfuse.conv import GCNConv
from pygfuse.partial.rows import nodes
from pygfuse.partial.rows.row_set import RowSet
from pygfuse.partial.rows.tensor import Deferred
from tests.support.parity import random_edges

WIDTH, NODES, EDGES = 8, 50, 120


def forget(mask: torch.Tensor) -> None:
    """Other tests may have asked for these rows."""
    RowSet.of(mask, NODES)._gain = None


class Layers(torch.nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.fixture
def mask():
    # rows that no other test asks for
    found = torch.zeros(NODES, dtype=torch.bool)
    found[torch.randperm(NODES)[:3]] = True
    forget(found)
    return found


@pytest.fixture
def block(mask):
    """What a block for the mask gives, of a model whose numbers are those of the whole."""
    torch.manual_seed(0)
    model, x, edge_index = Layers(), torch.randn(NODES, WIDTH), random_edges(NODES, NODES, EDGES)
    whole = model(x, edge_index)

    def run(**options):
        with pygfuse.active(mask, **options):
            out = model(x, edge_index)
        is_deferred = isinstance(out, Deferred)
        torch.testing.assert_close(out[mask], whole[mask])
        return is_deferred, out

    return run


def test_a_small_graph_is_computed_whole_from_the_second_block_on(monkeypatch, block, mask):
    monkeypatch.setattr(nodes, 'COST_OF_NODE', 140_000)
    first, out = block()
    with pytest.raises(ValueError, match='rows outside of the mask'):
        out[~mask]
    later = [block() for _ in range(2)]
    assert (first, *(is_deferred for is_deferred, _ in later)) == (True, False, False)
    assert later[0][1][~mask].isfinite().all()


def test_rows_that_gain_are_chosen_each_time(monkeypatch, block):
    monkeypatch.setattr(nodes, 'COST_OF_NODE', 1)
    assert [block()[0] for _ in range(3)] == [True] * 3


def test_nan_for_other_rows_is_given_each_time(monkeypatch, block, mask):
    monkeypatch.setattr(nodes, 'COST_OF_NODE', 140_000)
    for _ in range(3):
        is_deferred, out = block(elsewhere='nan')
        assert is_deferred
        assert out[~mask].isnan().all()


def test_a_mask_that_names_others_is_asked_again(monkeypatch, block, mask):
    monkeypatch.setattr(nodes, 'COST_OF_NODE', 140_000)
    block()
    place = int((~mask).nonzero()[0])
    mask[place] = True
    forget(mask)
    assert [block()[0] for _ in range(2)] == [True, False]


def test_one_reading_that_gains_is_enough(mask):
    rows = RowSet.of(mask, NODES)
    assert not rows.costs_more
    for gain, costs_more in ((-2.0, True), (-1.0, True), (5.0, False), (-3.0, False)):
        rows.learn(gain, ())
        assert rows.costs_more == costs_more


def test_another_model_is_asked_again(monkeypatch, mask):
    monkeypatch.setattr(nodes, 'COST_OF_NODE', 140_000)
    x, edge_index, deferred = torch.randn(NODES, WIDTH), random_edges(NODES, NODES, EDGES), []
    for _ in range(2):
        model = Layers()
        for _ in range(2):
            with pygfuse.active(mask):
                out = model(x, edge_index)
            out[mask]
            deferred.append(isinstance(out, Deferred))
        del model, out
        gc.collect()
    assert deferred == [True, False, True, False]


def test_edges_that_are_left_out_count(monkeypatch, mask):
    """A gain is that of rows and edges, so that it grows with both."""
    monkeypatch.setattr(nodes, 'COST_OF_NODE', 0)
    found = []
    for edges in (EDGES, 100 * EDGES):
        forget(mask)
        torch.manual_seed(0)
        model, edge_index = GCNConv(WIDTH, WIDTH), random_edges(NODES, NODES, edges)
        with pygfuse.active(mask):
            out = model(torch.randn(NODES, WIDTH), edge_index)
        out[mask]
        found.append(RowSet.of(mask, NODES)._gain)
    assert 0 < found[0] < found[1] / 10
