"""Four processes, each with its nodes of one graph, compute what one process does with all of it."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
import torch_geometric.nn as pyg
from torch import Tensor

import pygfuse
from pygfuse.distributed import Partition
from pygfuse.mapping import few_edges
from tests.support.parity import random_edges

NODES, FEATURES, CHANNELS, PROCESSES = 60, 6, 8, 4
EDGES = random_edges(NODES, NODES, 400, seed=0)
WEIGHTS = torch.rand(EDGES.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(1))
PARTS = {
    'random': torch.randint(PROCESSES, (NODES,), generator=torch.Generator().manual_seed(2)),
    'contiguous': torch.arange(NODES) * PROCESSES // NODES,
    'one of no nodes': torch.arange(NODES) % (PROCESSES - 1),
}


class Case(NamedTuple):
    """A convolution, what it takes beside nodes and edges, and whether its edges are normalised beforehand."""

    conv: Any
    edge: str | None = None
    is_normed: bool = False


def gcn(sizes: tuple[int, int], is_divided: bool) -> torch.nn.Module:
    return pyg.GCNConv(*sizes, normalize=not is_divided)


CASES = {
    'GCN': Case(gcn, is_normed=True),
    'GCN with weights': Case(gcn, 'edge_weight', is_normed=True),
    'improved GCN with weights': Case(
        lambda sizes, is_divided: pyg.GCNConv(*sizes, improved=True, normalize=not is_divided), 'edge_weight', True
    ),
    'GAT': Case(lambda sizes, _: pyg.GATConv(*sizes, heads=2, concat=False)),
    'GAT with edge features': Case(lambda sizes, _: pyg.GATConv(*sizes, edge_dim=1), 'edge_attr'),
    'SAGE': Case(lambda sizes, _: pyg.SAGEConv(*sizes, aggr='max')),
    'compiled': Case(lambda sizes, _: pyg.LEConv(*sizes)),
}


def model_of(case: Case, is_divided: bool) -> torch.nn.ModuleList:
    torch.manual_seed(0)
    sizes = (FEATURES, CHANNELS), (CHANNELS, 3)
    return pygfuse.fuse(torch.nn.ModuleList(case.conv(pair, is_divided) for pair in sizes)).double()


def features() -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(NODES, FEATURES, dtype=torch.float64, generator=generator).requires_grad_()


def of_one_process(case: Case) -> tuple[float, list[Tensor]]:
    """The loss, and gradients of parameters and features."""
    model, x = model_of(case, is_divided=False), features()
    edge = {} if case.edge is None else {case.edge: WEIGHTS if case.edge == 'edge_weight' else WEIGHTS.unsqueeze(-1)}
    out = model[1](model[0](x, EDGES, **edge).relu(), EDGES, **edge)
    loss = out.square().mean()
    loss.backward()
    return loss.item(), [*(parameter.grad for parameter in model.parameters()), x.grad]


class Counted:
    """`all_to_all_single`, and how many bytes it sent to other processes."""

    def __init__(self) -> None:
        self.nbytes, self._function = 0, dist.all_to_all_single

    def __call__(self, out: Tensor, given: Tensor, received: Any = None, sent: Any = None, **named: Any) -> Any:
        rows = [len(given) // PROCESSES] * PROCESSES if sent is None else sent
        to_others = sum(rows) - rows[dist.get_rank()]
        self.nbytes += to_others * given[:1].numel() * given.element_size() if to_others else 0
        return self._function(out, given, received, sent, **named)


def of_a_part(case: Case, part: Tensor, counted: Counted) -> dict[str, Any]:
    """What one of the processes has of `of_one_process`: gradients of parameters are summed over all."""
    partition, x = Partition(EDGES, part), features()
    model, own = model_of(case, is_divided=True), partition.own
    edges, edge = partition.edge_index, {}
    if case.is_normed:
        weights = WEIGHTS[partition.edge_id] if case.edge else None
        edges, edge['edge_weight'] = partition.gcn_norm(weights, getattr(model[0], 'improved', False), torch.float64)
    elif case.edge is not None:
        edge[case.edge] = WEIGHTS[partition.edge_id].unsqueeze(-1)
    before, noted = counted.nbytes, partition.bytes_sent
    hidden = model[0](partition.exchange(x[own]), edges, **edge)[: partition.num_own].relu()
    out = model[1](partition.exchange(hidden), edges, **edge)[: partition.num_own]
    loss = out.square().sum() / (3 * NODES)
    loss.backward()
    nbytes = counted.nbytes - before
    assert nbytes == partition.bytes_sent - noted
    total = loss.detach()
    # without edges, PyG's layers leave their maps of edges out
    gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in model.parameters()]
    for tensor in (total, *gradients):
        dist.all_reduce(tensor)
    return {
        'loss': total.item(),
        'gradients': [*gradients, x.grad[own]],
        'own': own,
        'bytes': nbytes,
        'halo': len(partition.halo),
        'sent': partition.num_sent,
        'reasons': [conv.note.reason for conv in model],
    }


def run(rank: int, folder: str, port: int) -> None:
    # so few edges would be left to PyG
    few_edges.MOST_OF_OPERATORS = few_edges.MOST_OF_ONE_OPERATOR = 0
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=PROCESSES)
    counted = dist.all_to_all_single = Counted()
    found = {(name, kind): of_a_part(CASES[name], PARTS[kind], counted) for name in CASES for kind in PARTS}
    other = torch.where(torch.arange(NODES) == 0, (rank + 1) % PROCESSES, PARTS['random'])
    try:
        Partition(EDGES, other)
        found['other parts'] = None
    except ValueError as error:
        found['other parts'] = str(error)
    torch.save(found, f'{folder}/{rank}')
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope='module')
def of_four_processes(tmp_path_factory) -> list[dict]:
    folder = str(tmp_path_factory.mktemp('processes'))
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(run, (folder, port), nprocs=PROCESSES)
    return [torch.load(f'{folder}/{rank}') for rank in range(PROCESSES)]


@pytest.mark.slow
@pytest.mark.parametrize('kind', PARTS)
@pytest.mark.parametrize('name', CASES)
def test_four_processes_have_the_loss_and_gradients_of_one(name, kind, of_four_processes):
    loss, expected = of_one_process(CASES[name])
    for found in (of_process[name, kind] for of_process in of_four_processes):
        assert found['loss'] == pytest.approx(loss, rel=1e-12)
        *of_parameters, of_x = found['gradients']
        for got, wanted in zip(of_parameters, expected[:-1], strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(of_x, expected[-1][found['own']], rtol=1e-10, atol=1e-13)
        if len(found['own']):
            assert found['reasons'] == [None, None]
    owned = torch.cat([of_process[name, kind]['own'] for of_process in of_four_processes])
    assert torch.equal(owned.sort().values, torch.arange(NODES))


@pytest.mark.slow
@pytest.mark.parametrize('kind', PARTS)
def test_what_is_sent_is_the_halo_and_no_more(kind, of_four_processes):
    part = PARTS[kind]
    source, target = EDGES
    crossing = part[source] != part[target]
    # a row once for each process that reads it
    wanted = torch.stack([part[target], source])[:, crossing].unique(dim=1)
    rows = wanted.shape[1]
    assert 0 < rows < int(crossing.sum())
    for name in CASES:
        found = [of_process[name, kind] for of_process in of_four_processes]
        assert [one['halo'] for one in found] == wanted[0].bincount(minlength=PROCESSES).tolist()
        assert [one['sent'] for one in found] == part[wanted[1]].bincount(minlength=PROCESSES).tolist()
        # both layers' inputs, and their gradients
        assert sum(one['bytes'] for one in found) == 2 * rows * (FEATURES + CHANNELS) * 8


@pytest.mark.slow
def test_parts_that_differ_between_processes_are_an_error(of_four_processes):
    messages = [of_process['other parts'] for of_process in of_four_processes]
    assert any(message is not None and "Expected 'part' to be the same" in message for message in messages)


@pytest.fixture
def one_process():
    dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ('edge_index', 'part', 'message'),
    [
        (EDGES[0], PARTS['random'], r"'edge_index' to be of shape \[2, E\].*got shape \[400\]"),
        (EDGES.int(), PARTS['random'], r"'edge_index'.*torch.int64.*torch.int32"),
        (EDGES, torch.zeros(NODES), r"'part' to be one integer for each node \(got shape \[60\], torch.float32\)"),
        (EDGES, torch.zeros(NODES, 1).long(), r"'part' to be one integer for each node \(got shape \[60, 1\]"),
        (EDGES, torch.full((NODES,), 1), r"'part' to hold numbers from 0 to 0 \(got 1 to 1\)"),
        (EDGES + 1, torch.zeros(NODES).long(), r"'edge_index' to hold numbers from 0 to 59 \(got \d+ to 60\)"),
    ],
    ids=str,
)
def test_what_a_partition_refuses(edge_index, part, message, one_process):
    with pytest.raises(ValueError, match=message):
        Partition(edge_index, part)


def test_an_exchange_wants_the_rows_of_own_nodes(one_process):
    partition = Partition(EDGES, torch.zeros(NODES).long())
    with pytest.raises(ValueError, match=r"'x' to have 60 rows, those of own nodes \(got shape \[59, 2\]\)"):
        partition.exchange(torch.zeros(59, 2))


def test_gradients_of_an_exchange(one_process):
    partition = Partition(EDGES, torch.zeros(NODES).long())
    x = torch.randn(NODES, 1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: partition.exchange(x.square()), x)
    assert torch.autograd.gradgradcheck(lambda x: partition.exchange(x.square()), x)
