"""How many edges are few."""

import pytest


@pytest.fixture
def many_edges(monkeypatch):
    """No edges are few: they are walked, or taken in chunks."""
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', -1)
