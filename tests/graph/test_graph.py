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
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor, torch_sparse
from torch_geometric.utils import add_self_loops, remove_self_loops, to_edge_index

from pygfuse.graph import graph as graph_module
from pygfuse.graph.adjacency import values_of
from pygfuse.graph.attached import ATTACHED
from pygfuse.graph.graph import Graph

LAYOUTS = [
    'edge_index',
    'int32',
    'columns of a table',
    'EdgeIndex',
    'coo',
    'uncoalesced',
    'csr',
    'csc',
    pytest.param(
        'SparseTensor',
        marks=pytest.mark.skipif(not WITH_TORCH_SPARSE, reason='torch_sparse is not installed'),
    ),
]
SPARSE = ('coo', 'uncoalesced', 'csr', 'csc', 'SparseTensor')
FLOWS = ('source_to_target', 'target_to_source')

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


@st.composite
def graphs(draw):
    """Sources, targets, and the number of each: bipartite or not, with repeats, loops, hubs and isolated nodes."""
    num_targets = draw(st.integers(1, 9))
    num_sources = num_targets if draw(st.booleans()) else draw(st.integers(1, 9))
    count = draw(st.integers(0, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    sources = torch.randint(0, num_sources, (count,), generator=generator)
    targets = torch.randint(0, num_targets, (count,), generator=generator)
    if draw(st.booleans()):
        targets[: count // 2] = num_targets - 1
    if draw(st.booleans()):
        order = targets.sort(stable=True).indices
        sources, targets = sources[order], targets[order]
    return sources, targets, num_sources, num_targets


def make(layout, case, flow=FLOWS[0]):
    """The adjacency in one layout, and its (targets, sources) in the order in which PyG sees its edges."""
    sources, targets, num_sources, num_targets = case
    size = (num_targets, num_sources)
    if layout not in SPARSE:
        first, second = (sources, targets) if flow == FLOWS[0] else (targets, sources)
        edge_index = torch.stack((first, second))
        if layout == 'int32':
            edge_index = edge_index.int()
        elif layout == 'columns of a table':
            edge_index = edge_index.t().contiguous().t()
        elif layout == 'EdgeIndex':
            rows = (num_sources, num_targets) if flow == FLOWS[0] else (num_targets, num_sources)
            edge_index = EdgeIndex(edge_index, sparse_size=rows)
        return edge_index, targets, sources
    if layout == 'SparseTensor':
        adjacency = SparseTensor(row=targets, col=sources, sparse_sizes=size)
    else:
        adjacency = torch.sparse_coo_tensor(torch.stack((targets, sources)), torch.ones(len(targets)), size)
        if layout == 'uncoalesced':
            return adjacency, targets, sources
        adjacency = adjacency.coalesce()
        if layout in ('csr', 'csc'):
            adjacency = getattr(adjacency, f'to_sparse_{layout}')()
    rows, columns = to_edge_index(adjacency)[0]
    return adjacency, rows, columns


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


def test_sizes_nobody_gives_follow_from_the_largest_node():
    edge_index = torch.tensor([[0, 6], [1, 2]])
    assert (Graph.of(edge_index).num_sources, Graph.of(edge_index).num_targets) == (7, 7)
    assert Graph.of(edge_index, num_sources=9).num_targets == 3
    assert Graph.of(edge_index, num_targets=9, flow=FLOWS[1]).num_sources == 3
    assert Graph.of(torch.zeros(2, 0, dtype=torch.int64)).num_sources == 0
    assert Graph.of(edge_index, (8, None), num_targets=4).num_targets == 4


@pytest.mark.parametrize('layout', ['edge_index', 'csr', 'uncoalesced'])
def test_int64_where_int32_is_too_small(layout, monkeypatch):
    case = (torch.tensor([0, 1, 2, 2, 2]), torch.tensor([1, 0, 2, 1, 1]), 3, 3)
    for limit, base_dtype, loops_dtype in (
        (8, torch.int32, torch.int32),
        (7, torch.int32, torch.int64),
        (4, torch.int64, torch.int64),
    ):
        limit = limit - 1 if layout == 'csr' else limit
        monkeypatch.setattr(graph_module, 'INT32_LIMIT', limit)
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


@pytest.mark.parametrize('layout', LAYOUTS)
def test_tokens(layout):
    case = (torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), 3, 3)
    adjacency = make(layout, case)[0]
    graph = Graph.of(adjacency, (3, 3))
    token = graph.token
    plain = layout not in SPARSE and layout != 'EdgeIndex'
    assert (token is adjacency) == plain
    assert type(token) is torch.Tensor
    assert Graph.of(token, (3, 3)) is graph
    loops = graph.with_self_loops()
    token = loops.token
    assert loops.token is token
    assert Graph.of(token, (7, 7), flow=FLOWS[1]) is loops
    assert Graph.of(token.clone()) is loops
    copied, gone = token.clone(), weakref.ref(loops)
    del graph, loops, adjacency
    assert Graph.of(token).num_edges == 5
    del token
    gc.collect()
    assert gone() is None
    with pytest.raises(ValueError, match='gone'):
        Graph.of(copied)


def test_a_token_that_autograd_saved():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, token):
            ctx.save_for_backward(token)
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            seen.append(Graph.of(ctx.saved_tensors[0], (3, 3)))
            return 2 * grad, None

    for loops in (False, True):
        seen = []
        edge_index = torch.tensor([[0, 1, 2], [1, 0, 2]])
        graph = Graph.of(edge_index, (3, 3))
        graph = graph.with_self_loops() if loops else graph
        out = Double.apply(torch.ones(3, requires_grad=True), graph.token)
        identity = id(graph)
        del graph, edge_index
        out.sum().backward()
        assert [id(found) for found in seen] == [identity]


@pytest.mark.parametrize('flow', FLOWS)
@pytest.mark.parametrize(
    ('row', 'position', 'node', 'size'),
    [(0, 2, 7, 5), (1, 1, -1, 4), (0, 0, 2**40, 5), (1, 3, 4, 4)],
)
def test_a_node_that_does_not_exist(flow, row, position, node, size):
    edge_index = torch.zeros(2, 4, dtype=torch.int64)
    edge_index[row, position] = node
    edge_index[row, 3] = node
    kind = 'source' if (row == 0) == (flow == FLOWS[0]) else 'target'
    message = (
        rf'edge_index\[{row}\] holds node {node} at position {position}, '
        rf'but there are only {size} {kind} nodes \(indices 0 to {size - 1}\)'
    )
    sizes = (5, 4) if flow == FLOWS[0] else (4, 5)
    graph = Graph.of(edge_index, sizes, flow)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            graph.csr  # noqa: B018
        with pytest.raises(ValueError, match=message):
            graph.with_self_loops().csc  # noqa: B018


def bad_csr(pointer, columns, size):
    return torch.sparse_csr_tensor(
        torch.tensor(pointer), torch.tensor(columns), torch.ones(len(columns)), size, check_invariants=False
    )


@pytest.mark.parametrize(
    ('pointer', 'columns', 'message'),
    [
        ([0, 1, 2], [0, 3], 'column 3 at edge 1, but there are only 3 source nodes'),
        ([0, 1, 2], [-1, 0], 'column -1 at edge 0'),
        ([0, 3, 2], [0, 1], 'rise from 0'),
        ([1, 1, 2], [0, 1], 'rise from 0'),
        ([0, 1, 5], [0, 1], 'rise from 0'),
        ([0, -4, 2], [0, 1], 'rise from 0'),
    ],
)
def test_bad_compressed_rows(pointer, columns, message):
    for loops in (False, True):
        graph = Graph.of(bad_csr(pointer, columns, (2, 3)))
        with pytest.raises(ValueError, match=message):
            (graph.with_self_loops() if loops else graph).csr  # noqa: B018


def test_a_bad_sparse_coo():
    bad = torch.sparse_coo_tensor(torch.tensor([[0, 2], [1, 0]]), torch.ones(2), (2, 2), check_invariants=False)
    for graph in (Graph.of(bad), Graph.of(bad).with_self_loops()):
        with pytest.raises(ValueError, match='row 2 at edge 1, but there are only 2 target nodes'):
            graph.csr  # noqa: B018


@pytest.mark.parametrize(
    ('adjacency', 'message'),
    [
        (torch.zeros(2, 3), 'int32 or int64 .*float32'),
        (torch.zeros(2, 3, dtype=torch.bool), 'int32 or int64 .*bool'),
        (torch.zeros(2, 3, dtype=torch.uint8), 'int32 or int64 .*uint8'),
        (torch.zeros(3, 2, dtype=torch.int64), r'shape \[2, num_edges\] \(got \[3, 2\]\)'),
        (torch.zeros(2, dtype=torch.int64), r'shape \[2, num_edges\] \(got \[2\]\)'),
        (torch.zeros(2, 2, 2, dtype=torch.int64), r'got \[2, 2, 2\]'),
        (torch.zeros(2, 3, dtype=torch.int64, device='meta'), r"on the CPU.*'meta'"),
        ([[0], [1]], 'got list'),
        (None, 'got NoneType'),
    ],
)
def test_what_is_no_adjacency(adjacency, message):
    with pytest.raises(ValueError, match=message):
        Graph.of(adjacency)


def test_sizes_that_contradict_each_other():
    edge_index = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="'num_sources' and 'size' to agree"):
        Graph.of(edge_index, (3, 3), num_sources=4)
    with pytest.raises(ValueError, match=r"'num_targets'.*size of 'edge_index'.*got 3 and 2"):
        Graph.of(EdgeIndex(edge_index, sparse_size=(2, 2)), num_targets=3)
    with pytest.raises(ValueError, match='pair'):
        Graph.of(edge_index, (3, 3, 3))
    with pytest.raises(ValueError, match='negative'):
        Graph.of(edge_index, num_sources=-1)
    with pytest.raises(ValueError, match="'flow'"):
        Graph.of(edge_index, flow='sideways')


@pytest.mark.parametrize('layout', LAYOUTS[4:])
def test_sparse_adjacencies_have_one_direction(layout):
    case = (torch.tensor([0]), torch.tensor([1]), 2, 2)
    with pytest.raises(ValueError, match='target_to_source'):
        Graph.of(make(layout, case)[0], flow=FLOWS[1])


def test_values():
    assert values_of(torch.zeros(2, 3, dtype=torch.int64)) is None
    values = torch.rand(3, 4, requires_grad=True)
    repeated = torch.tensor([[1, 0, 1], [0, 1, 0]])
    for leaf in (values.detach(), values):
        assert torch.equal(values_of(torch.sparse_coo_tensor(repeated, leaf, (2, 2, 4))), values)
    found = values_of(torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [0, 0, 1]]), values, (2, 2, 4)).coalesce())
    assert torch.equal(found, values)
    found.sum().backward()
    assert values.grad.tolist() == torch.ones(3, 4).tolist()
    csr = torch.eye(3).to_sparse_csr()
    assert values_of(csr).tolist() == [1, 1, 1]
    assert values_of(EdgeIndex([[0, 1], [1, 0]])) is None


def test_dense_dimensions_are_no_nodes():
    adjacency = torch.sparse_coo_tensor(torch.tensor([[1, 0], [0, 1]]), torch.ones(2, 7), (2, 3, 7))
    graph = Graph.of(adjacency)
    assert (graph.num_targets, graph.num_sources) == (2, 3)
    assert graph.csr.index.tolist() == [1, 0]


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
