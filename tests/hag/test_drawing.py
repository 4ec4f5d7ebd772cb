from __future__ import annotations

import sys

import pytest
import torch

from pygfuse.hag import drawing as hag_drawing
from pygfuse.transforms import find_hag

EDGES = torch.tensor([[2, 3, 4, 2, 3, 4], [0, 0, 0, 1, 1, 1]])


@pytest.fixture
def axes():
    matplotlib = pytest.importorskip('matplotlib')
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def arrows(axes) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return [(text.xyann, text.xy) for text in axes.texts if getattr(text, 'arrow_patch', None) is not None]


def test_edges_and_nodes(axes):
    hag = find_hag(EDGES)
    assert hag.draw(axes) is axes
    # three sources into the aggregation node over their middle, and from there to the targets
    middle = (3.0, 1.0)
    below, above = [((float(u), 0.0), middle) for u in (2, 3, 4)], [(middle, (float(v), 2.0)) for v in (0, 1)]
    assert sorted(arrows(axes)) == sorted(below + above)
    assert [text.get_text() for text in axes.texts if text.get_text()] == [*'01234', *'01234', '+']


def test_without_aggregation_nodes_it_is_the_graph(axes):
    find_hag(EDGES, capacity=0).draw(axes, names='ABCDE')
    assert sorted(arrows(axes)) == sorted(((float(u), 0.0), (float(v), 2.0)) for u, v in EDGES.t().tolist())
    assert [text.get_text() for text in axes.texts if text.get_text()] == [*'ABCDE', *'ABCDE']


def test_nodes_of_a_level_do_not_hide_each_other(axes):
    # both aggregate sources whose middle is the same
    edge_index = torch.tensor([[1, 4, 2, 3] * 2 + [1, 4] + [2, 3], [0] * 4 + [5] * 4 + [1] * 2 + [2] * 2])
    hag = find_hag(edge_index, capacity=None)
    hag.draw(axes)
    places = {end for _, end in arrows(axes) if 0.0 < end[1] < 2.0}
    assert len(places) == hag.num_aggregation_nodes > 1


def test_what_is_no_picture(axes):
    with pytest.raises(ValueError, match="'names'"):
        find_hag(EDGES).draw(axes, names='ABC')
    many = torch.randint(100, (2, hag_drawing.EDGES_LIMIT + 1))
    with pytest.raises(ValueError, match='at most 500 edges'):
        find_hag(many, capacity=0).draw(axes)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    monkeypatch.setitem(sys.modules, 'matplotlib.pyplot', None)
    with pytest.raises(ImportError, match='needs matplotlib'):
        find_hag(EDGES).draw()
