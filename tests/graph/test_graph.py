"""`Graph` against NumPy's stable sort and PyG's own treatment of adjacencies."""

import copy
import gc
import multiprocessing
import pickle
import threading
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.typing import torch_sparse
from torch_geometric.utils import add_self_loops, remove_self_loops, to_edge_index

from pygfuse.graph import orders
from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.graph import Graph
from tests.support.adjacencies import FLOWS, LAYOUTS, SPARSE, graphs, make

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


def graph_of(adjacency, case, flow=FLOWS[0]):
    return Graph.of(adjacency, num_sources=case[2], num_targets=case[3], flow=flow)


def ids_of(edges):
    return torch.arange(edges.num_edges) if edges.edge_id is None else edges.edge_id.long()


def check_rows(edges, rows, columns, num_rows):
    """Every row holds its edges in the order of their ids."""
    order = np.argsort(rows.numpy(), kind='stable')
    assert edges.indptr.diff().tolist() == np.bincount(rows.numpy(), minlength=num_rows).tolist()
    assert edges.indptr[0] == 0
    assert edges.num_rows == num_rows
    assert ids_of(edges).tolist() == order.tolist()
    assert edges.index.tolist() == columns.numpy()[order].tolist()
    assert edges.rows().tolist() == rows.numpy()[order].tolist()


def check_transpose(graph):
    by_target, by_source = graph.csr, graph.csc
    order = by_target.index.sort(stable=True).indices
    assert by_source.position.tolist() == order.tolist()
    assert by_source.index.tolist() == by_target.rows()[order].tolist()
    assert by_source.rows().tolist() == by_target.index[order].tolist()
    assert ids_of(by_source).tolist() == ids_of(by_target)[order].tolist()
    assert by_source.num_rows == graph.num_sources
    tensors = (by_target.indptr, by_target.index, by_source.indptr, by_source.index, by_source.position)
    assert {tensor.dtype for tensor in tensors} == {graph.index_dtype}


@pytest.mark.parametrize('layout', LAYOUTS)
@settings(max_examples=40, deadline=None)
@given(case=graphs(), flow=st.sampled_from(FLOWS))
def test_every_adjacency(layout, case, flow):
    flow = FLOWS[0] if layout in SPARSE else flow
    adjacency, targets, sources = make(layout, case, flow)
    graph = graph_of(adjacency, case, flow)
    assert (graph.num_sources, graph.num_targets) == case[2:]
    assert graph.num_edges == graph.num_user_edges == graph.num_edge_ids == len(targets)
    check_rows(graph.csr, targets, sources, case[3])
    check_transpose(graph)
    expected = adjacency if layout not in SPARSE else torch.stack((targets, sources))
    assert graph.coo().tolist() == expected.tolist()
    assert graph.edge_ids_in_coo_order().tolist() == list(range(len(targets)))


def with_loops_as_pyg(layout, adjacency, loops):
    """The rows of PyG's adjacency with self-loops, in its order."""
    if layout == 'SparseTensor':
        return torch.stack(torch_sparse.set_diag(adjacency).coo()[:2])
    adjacency, _ = remove_self_loops(adjacency)
    adjacency, _ = add_self_loops(adjacency, num_nodes=loops)
    return to_edge_index(adjacency)[0] if adjacency.layout is not torch.strided else adjacency


@pytest.mark.parametrize('rows_first', [False, True], ids=['from the adjacency', 'from the rows'])
@pytest.mark.parametrize('layout', LAYOUTS)
@settings(max_examples=40, deadline=None)
@given(case=graphs(), flow=st.sampled_from(FLOWS), fewer=st.integers(0, 2))
def test_self_loops_are_those_of_pyg(layout, rows_first, case, flow, fewer):
    flow = FLOWS[0] if layout in SPARSE else flow
    loops = min(case[2:]) if layout in SPARSE else max(0, min(case[2:]) - fewer)
    adjacency, targets, sources = make(layout, case, flow)
    base = graph_of(adjacency, case, flow)
    if rows_first:
        base.csr  # noqa: B018
    graph = base.with_self_loops(loops)
    edges, user_edges = graph.csr, len(targets)
    check_transpose(graph)
    assert graph.num_edge_ids == user_edges + loops

    ids = ids_of(edges)
    user = ids < user_edges
    assert torch.equal(edges.rows()[user], targets[ids[user]])
    assert torch.equal(edges.index[user].long(), sources[ids[user]])
    assert sorted(ids[~user].tolist()) == list(range(user_edges, user_edges + loops))
    assert torch.equal(edges.rows()[~user], ids[~user] - user_edges)
    assert torch.equal(edges.index[~user].long(), ids[~user] - user_edges)
    # in the user's order within a row, so that the loop comes last
    assert bool(((edges.rows() * (graph.num_edge_ids + 1) + ids).diff() > 0).all()) or layout in SPARSE
    last = edges.indptr[1 : loops + 1].long() - 1
    assert ids[last].tolist() == list(range(user_edges, user_edges + loops))

    if layout == 'csc':
        # PyG itself refuses this layout here
        assert graph.num_edges == int((targets != sources).sum()) + loops
        return
    expected = with_loops_as_pyg(layout, adjacency, loops)
    assert graph.coo().tolist() == expected.tolist()
    assert graph.coo().dtype == expected.dtype
    assert graph.num_edges == expected.size(1)
    in_order = graph.edge_ids_in_coo_order()
    full = torch.stack((targets, sources)).long()
    full = torch.cat((full, torch.arange(loops).expand(2, -1)), dim=1)
    full = full if graph.target_row == 0 else full.flip(0)
    assert full[:, in_order].tolist() == expected.tolist()


def test_self_loops_are_cached_and_checked():
    graph = Graph.of(torch.tensor([[0, 1, 2], [0, 2, 1]]), (5, 3))
    loops = graph.with_self_loops()
    assert graph.with_self_loops() is loops
    assert graph.with_self_loops(3) is loops
    assert loops.with_self_loops() is loops
    assert graph.with_self_loops(2) is not loops
    assert loops.num_edges == 5
    with pytest.raises(ValueError, match='between 0 and 3'):
        graph.with_self_loops(4)
    with pytest.raises(ValueError, match='already has 3 self-loops'):
        loops.with_self_loops(2)


@pytest.mark.parametrize('layout', ['edge_index', 'csr', 'uncoalesced'])
def test_int64_where_int32_is_too_small(layout, monkeypatch):
    case = (torch.tensor([0, 1, 2, 2, 2]), torch.tensor([1, 0, 2, 1, 1]), 3, 3)
    for limit, base_dtype, loops_dtype in (
        (8, torch.int32, torch.int32),
        (7, torch.int32, torch.int64),
        (4, torch.int64, torch.int64),
    ):
        limit = limit - 1 if layout == 'csr' else limit
        monkeypatch.setattr(orders, 'INT32_LIMIT', limit)
        adjacency, targets, sources = make(layout, case)
        graph = graph_of(adjacency, case)
        loops = graph.with_self_loops()
        assert (graph.index_dtype, loops.index_dtype) == (base_dtype, loops_dtype)
        check_rows(graph.csr, targets, sources, 3)
        check_transpose(graph)
        check_transpose(loops)
        graph = graph_of(make(layout, case)[0], case)
        graph.csr  # noqa: B018
        check_transpose(graph.with_self_loops())


def test_degrees():
    graph = Graph.of(torch.tensor([[0, 1, 2, 3], [0, 0, 0, 2]]))
    assert graph.degree.tolist() == [3, 0, 1, 0]
    assert graph.max_degree == 3
    empty = Graph.of(torch.zeros(2, 0, dtype=torch.int64))
    assert empty.max_degree == 0


def test_reversed_edges_keep_their_ids():
    edge_index = torch.randint(9, (2, 60))
    graph = Graph.of(edge_index, num_sources=9, num_targets=12)
    back = graph.reversed()
    assert graph.reversed() is back
    assert (back.num_sources, back.num_targets, back.num_user_edges, back.num_edge_ids) == (12, 9, 60, 60)
    expected = Graph.of(edge_index.flip(0), num_sources=12, num_targets=9)
    ids, rows = back.csr.edge_id.long(), back.csr.rows()
    assert torch.equal(torch.stack([back.csr.index.long(), rows]), edge_index.flip(0)[:, ids])
    assert torch.equal(back.csr.indptr, expected.csr.indptr)
    assert torch.equal(back.csc.indptr, graph.csr.indptr)
    assert torch.equal(back.reversed().csr.indptr, graph.csr.indptr)


@pytest.mark.parametrize('is_sorted', [False, True])
@pytest.mark.parametrize('num_targets', [0, 2, 3, 4])
def test_the_last_target(num_targets, is_sorted):
    edges = torch.tensor([[0, 1, 2, 3], [0, 2, 0, 1]]) if num_targets > 2 else torch.zeros(2, 0, dtype=torch.int64)
    graph = Graph.of(edges, num_sources=4, num_targets=num_targets)
    if is_sorted:
        graph.csr  # noqa: B018
    assert graph.has_last_target == (num_targets == 3)
    assert graph.last_target == (2 if num_targets > 2 else -1)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_the_second_call_returns_the_same_graph(layout):
    case = (torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), 3, 3)
    adjacency = make(layout, case)[0]
    graph = Graph.of(adjacency, (3, 3))
    graph.csc  # noqa: B018
    graph.with_self_loops().csc  # noqa: B018
    assert Graph.of(adjacency, (3, 3)) is graph
    assert Graph.of(adjacency, [3, 3]) is graph
    assert Graph.of(graph) is graph
    if layout not in SPARSE and layout != 'EdgeIndex':
        assert Graph.of(adjacency, (4, 4)).num_targets == 4
        assert Graph.of(adjacency, (3, 3), flow=FLOWS[1]) is not graph
        assert Graph.of(adjacency.clone(), (3, 3)) is not graph


def write(layout, adjacency):
    """Makes the first edge (1, 1) in place."""
    if layout in ('coo', 'uncoalesced'):
        adjacency._indices()[:, 0] = 1
    elif layout == 'csr':
        adjacency.col_indices()[0] = 1
    elif layout == 'csc':
        adjacency.row_indices()[0] = 1
    elif layout == 'SparseTensor':
        adjacency.storage.col()[0] = 1
    else:
        adjacency[:, 0] = 1


@pytest.mark.parametrize('layout', LAYOUTS)
def test_an_in_place_write_is_noticed(layout):
    case = (torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]), 3, 3)
    adjacency = make(layout, case)[0]
    graph = Graph.of(adjacency)
    before = graph.csr.index.tolist()
    entries = len(ATTACHED)
    write(layout, adjacency)
    other = Graph.of(adjacency)
    assert other is not graph
    assert 0 not in other.csr.index.tolist() or (layout == 'csc' and other.csr.indptr.tolist() == [0, 0, 2, 3])
    assert graph.csr.index.tolist() == before
    assert len(ATTACHED) == entries
    assert Graph.of(adjacency) is other


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_write_before_the_first_use_is_an_error(layout):
    case = (torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]), 3, 3)
    adjacency = make(layout, case)[0]
    graph = Graph.of(adjacency)
    loops = graph.with_self_loops()
    write(layout, adjacency)
    for stale in (graph, loops):
        with pytest.raises(RuntimeError, match='written to'):
            stale.csr  # noqa: B018


def test_edges_in_no_order_are_those_of_the_user_alone():
    graph = Graph.of(torch.tensor([[2, 1, 0], [0, 1, 2]]))
    coo = graph.unsorted()
    assert (coo.rows.tolist(), coo.index.tolist()) == ([0, 1, 2], [2, 1, 0])
    assert graph.with_self_loops(3).unsorted() is None
    assert graph.csr.num_edges == 3
    assert graph.unsorted() is None


def test_other_data_or_another_shape_are_noticed():
    edge_index = torch.tensor([[0, 1, 2], [0, 1, 2]])
    graph = Graph.of(edge_index)
    edge_index.data = torch.tensor([[2, 1, 0], [0, 1, 2]])
    assert Graph.of(edge_index) is not graph
    for node in range(50):
        # the memory of the last one is free and would be taken again
        edge_index.data = torch.full((2, 5), node)
        assert Graph.of(edge_index, (50, 50)).csr.index.tolist() == [node] * 5
    graph = Graph.of(edge_index)
    edge_index.resize_(2, 1)
    assert Graph.of(edge_index) is not graph
    square = torch.tensor([[0, 1], [2, 2]])
    graph = Graph.of(square)
    square.data = square.data.t()  # the same memory, shape and version
    assert Graph.of(square) is not graph
    resized = EdgeIndex([[0, 1], [1, 0]], sparse_size=(2, 2))
    graph = Graph.of(resized)
    assert Graph.of(resized.sparse_resize_(3, 3)).num_targets == 3


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('used', [False, True])
def test_the_graph_goes_with_the_adjacency(layout, used):
    case = (torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), 3, 3)
    gc.collect()
    entries = len(ATTACHED)
    adjacency = make(layout, case)[0]
    gc.disable()
    try:
        graph = Graph.of(adjacency)
        loops = graph.with_self_loops()
        if used:
            loops.csc  # noqa: B018
            graph.csc  # noqa: B018
        gone = weakref.ref(graph), weakref.ref(loops), weakref.ref(adjacency)
        del graph, loops
        assert gone[0]() is not None
        del adjacency
        assert [reference() for reference in gone] == [None, None, None]
        assert len(ATTACHED) == entries
    finally:
        gc.enable()


def test_ids_that_are_used_again():
    for node in range(200):
        edge_index = torch.full((2, 3), node)
        assert Graph.of(edge_index, (200, 200)).csr.index.tolist() == [node] * 3
        del edge_index


def test_a_graph_outlives_its_adjacency():
    edge_index = torch.tensor([[0, 1, 2], [1, 0, 2]])
    graph = Graph.of(edge_index)
    del edge_index
    gc.collect()
    assert graph.csr.index.tolist() == [1, 0, 2]
    assert graph.with_self_loops().num_edges == 5
    assert Graph.of(graph.token) is graph


def test_several_threads_get_the_same_graph():
    edge_index = torch.randint(0, 500, (2, 20_000))
    expected = Graph.of(edge_index.clone(), (500, 500)).with_self_loops().csc.position
    barrier, results, errors = threading.Barrier(4), [], []

    def work():
        try:
            for _ in range(20):
                barrier.wait()
                graph = Graph.of(edge_index, (500, 500))
                results.append((id(graph), id(graph.with_self_loops())))
                assert torch.equal(graph.with_self_loops().csc.position, expected)
        except Exception as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(set(results)) == 1


def test_inference_tensors_are_not_kept():
    with torch.inference_mode():
        edge_index = torch.tensor([[0, 1, 2], [1, 0, 2]])
        graph = Graph.of(edge_index)
        assert graph.csr.index.tolist() == [1, 0, 2]
        edge_index[0, 0] = 2
        assert Graph.of(edge_index).csr.index.tolist() == [1, 2, 2]
        assert Graph.of(graph.token) is graph


@pytest.mark.parametrize('duplicate', [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
@pytest.mark.parametrize('used', [False, True])
def test_copies(duplicate, used):
    edge_index = torch.tensor([[0, 1, 2, 2], [1, 0, 2, 1]])
    graph = Graph.of(edge_index)
    if used:
        graph.csc  # noqa: B018
        graph.token  # noqa: B018
    for original in (graph, graph.with_self_loops()):
        copied = duplicate(original)
        assert copied is not original
        assert copied.csr.index.tolist() == original.csr.index.tolist()
        assert copied.csr.index.data_ptr() != original.csr.index.data_ptr()
        assert copied.csc.position.tolist() == original.csc.position.tolist()
        assert copied.coo().tolist() == original.coo().tolist()
        assert copied.with_self_loops().coo().tolist() == original.with_self_loops().coo().tolist()
        assert Graph.of(copied.token) is copied
        assert repr(copied) == repr(original)


def test_devices():
    graph = Graph.of(torch.tensor([[0], [0]]))
    assert graph.to('cpu') is graph
    assert graph.device == torch.device('cpu')
    with pytest.raises(ValueError, match="'mps' has no fused kernels"):
        graph.to('mps')


def test_a_copy_on_another_device(monkeypatch):
    monkeypatch.setattr('pygfuse.graph.graph.why_not', lambda kind: None)
    graph = Graph.of(torch.tensor([[0, 1, 0], [1, 0, 0]]), (3, 2))
    graph.csc, graph.coo()
    moved = graph.to('meta')
    assert moved.device == moved.csc.position.device == torch.device('meta')
    assert (moved.num_sources, moved.num_targets, moved.num_edges) == (3, 2, 3)
    assert moved.csr.index.shape == graph.csr.index.shape
    assert moved.csr.edge_id.dtype == graph.csr.edge_id.dtype
    assert graph.device == torch.device('cpu')


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_a_copy_on_a_gpu_that_is_not_there():
    with pytest.raises(ValueError, match='cuda'):
        Graph.of(torch.tensor([[0], [0]])).to('cuda')


def _in_child(edge_index, queue):
    # as the workers of a DataLoader do: torch's own threads do not survive a fork
    torch.set_num_threads(1)
    known = Graph.of(edge_index, (500, 500))
    fresh = Graph.of(edge_index.clone(), (500, 500)).with_self_loops()
    queue.put((known.csr.index.sum().item(), fresh.csc.position.sum().item()))


@pytest.mark.skipif('fork' not in multiprocessing.get_all_start_methods(), reason='this system does not fork processes')
@pytest.mark.filterwarnings('ignore:.*fork:DeprecationWarning')
def test_a_forked_child():
    edge_index = torch.randint(0, 500, (2, 100_000))
    graph = Graph.of(edge_index, (500, 500))
    expected = graph.csr.index.sum().item(), graph.with_self_loops().csc.position.sum().item()
    context = multiprocessing.get_context('fork')
    queue = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(edge_index, queue))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert queue.get() == expected
