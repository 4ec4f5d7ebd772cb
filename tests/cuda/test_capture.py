"""A captured step without a GPU: what stands in for a CUDA graph launches nothing again."""

import contextlib
import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

from pygfuse.conv import GCNConv
from pygfuse.cuda.capture import capture
from pygfuse.cuda.holding import hold, holding
from pygfuse.graph.graph import Graph


def test_a_first_run_is_needed():
    with pytest.raises(ValueError, match=r"'warmup' to be at least 1.*got 0"):
        capture(lambda: None, warmup=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_without_a_gpu_it_says_so():
    with pytest.raises(ValueError, match='no GPU'):
        capture(lambda: None)


@pytest.fixture
def replays(monkeypatch):
    """Has torch capture on a CPU; how often captured graphs were replayed."""
    found, stream = [], SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'Stream', lambda: stream)
    monkeypatch.setattr(torch.cuda, 'current_stream', lambda: stream)
    monkeypatch.setattr(torch.cuda, 'CUDAGraph', lambda: SimpleNamespace(replay=lambda: found.append(1)))
    for name in ('stream', 'graph'):
        monkeypatch.setattr(torch.cuda, name, lambda what: contextlib.nullcontext())
    return found


def edges():
    return torch.randint(20, (2, 90), generator=torch.Generator().manual_seed(0))


def test_a_replay_after_a_write_to_the_edges_is_refused(replays):
    conv, x, edge_index = GCNConv(4, 4), torch.randn(20, 4), edges()
    replay = capture(lambda: conv(x, edge_index))
    assert replay().shape == (20, 4)
    x.add_(1)
    replay()
    edge_index[0, 0] = 3
    with pytest.raises(ValueError, match=r'as it was when it was captured \(got a Tensor that was written to'):
        replay()
    assert len(replays) == 2


def test_what_a_captured_step_reads_lives_as_long_as_it(replays):
    conv, x, edge_index = GCNConv(4, 4), torch.randn(20, 4), edges()
    inputs = [edge_index]
    with torch.no_grad():  # what autograd saves would hold them, too
        replay = capture(lambda: conv(x, inputs[0]))
    rows = weakref.ref(Graph.of(edge_index, None, 'source_to_target', 20, 20).with_self_loops(20).csr)
    assert rows() is not None
    # whatever the caller does with it, the rows stay
    inputs[0] = None
    del edge_index
    gc.collect()
    assert rows() is not None
    del replay
    gc.collect()
    assert rows() is None


def test_index_tensors_of_launches_are_held():
    indptr, x = torch.arange(4, dtype=torch.int32), torch.randn(4)
    hold((3, (x, indptr)))
    with holding() as outer, holding() as inner:
        hold((3, (x, (indptr, None))))
    hold((3, (x, indptr)))
    assert [one is indptr for one in (*outer, *inner)] == [True, True]


def test_edge_weights_make_nobody_wait_twice(monkeypatch):
    # a CPU counts few edges for the report, and nobody waits for it
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    conv, x, edge_index, weight = GCNConv(4, 4), torch.randn(20, 4), edges(), torch.rand(90)
    expected = conv(x, edge_index, weight)

    def looked(tensor):
        raise AssertionError('this makes the host wait')

    for name in ('nonzero', 'item', 'tolist', '__bool__'):
        monkeypatch.setattr(torch.Tensor, name, looked)
    found = conv(x, edge_index, weight)
    monkeypatch.undo()
    assert torch.equal(found, expected)
