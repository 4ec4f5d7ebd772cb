"""How many edges are few."""

import pytest


@pytest.fixture(params=['few', 'many'])
def few_or_many(request):
    """Edges are few, or none are."""
    if request.param == 'many':
        request.getfixturevalue('many_edges')


@pytest.fixture
def many_edges(monkeypatch):
    """No edges are few: they are walked, or taken in chunks."""
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', -1)
