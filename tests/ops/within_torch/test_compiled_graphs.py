"""Graphs that torch's compiler keeps on disk, and a package that has changed since."""

from pathlib import Path

import pytest
import torch
import torch_geometric.nn as pyg
from torch._dynamo.utils import counters

import pygfuse
from pygfuse.ops.within_torch import compiled_graphs
from tests.support.parity import random_edges

NODES, EDGES, WIDTH = 60, 5000, 8


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """What a user has chosen: a folder of caches, and what their keys hold."""
    monkeypatch.setenv('TORCHINDUCTOR_CACHE_DIR', str(tmp_path))
    with torch.compiler.config.patch(cache_key_tag='theirs'):
        yield


def compiled_before():
    """Whether a layer's graphs were taken from disk."""
    torch._dynamo.reset()
    counters.clear()
    conv = pygfuse.fuse(pyg.SAGEConv(WIDTH, WIDTH))
    torch.compile(conv)(torch.randn(NODES, WIDTH), random_edges(NODES, NODES, EDGES)).sum().backward()
    assert conv.note.reason is None
    assert 'pygfuse-' in torch.compiler.config.cache_key_tag
    hits, misses = (counters['inductor'][f'fxgraph_cache_{found}'] for found in ('hit', 'miss'))
    assert bool(hits) != bool(misses)
    return bool(hits)


@pytest.mark.slow
@pytest.mark.usefixtures('theirs')
def test_graphs_of_another_state_of_the_package_are_not_taken(monkeypatch):
    pytest.importorskip('torch._inductor.config')
    assert [compiled_before(), compiled_before()] == [False, True]
    monkeypatch.setattr(compiled_graphs, '_digest', lambda: 'other')
    assert [compiled_before(), compiled_before()] == [False, True]
    assert torch.compiler.config.cache_key_tag.startswith('theirs ')


def test_all_operators_are_registered_here():
    sources = Path(pygfuse.__file__).parent.rglob('*.py')
    assert [path.stem for path in sources if '.register_fake(' in path.read_text()] == ['compiled_graphs']


def test_the_digest_is_of_all_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(
        compiled_graphs, '__file__', str(tmp_path / 'package' / 'ops' / 'within_torch' / 'compiled_graphs.py')
    )
    (tmp_path / 'package' / 'ops' / 'within_torch').mkdir(parents=True)
    source = tmp_path / 'package' / 'ops' / 'operator.py'
    found = set()
    for text in ('one', 'another', 'one'):
        source.write_text(text)
        found.add(compiled_graphs._digest.__wrapped__())
    assert len(found) == 2
