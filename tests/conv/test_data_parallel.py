"""Two processes under DistributedDataParallel, each with its own graphs, train as one process with all of them."""

import socket

import pytest
import torch
import torch.distributed as dist
import torch_geometric.nn as pyg

import pygfuse
from tests.support import limits
from tests.support.parity import random_edges

FEATURES, PROCESSES = 6, 2
MODELS = {
    'GCN': lambda: pyg.GCN(FEATURES, 8, 2, 3),
    'GAT': lambda: pyg.GAT(FEATURES, 8, 2, 3, heads=2),
    'compiled': lambda: pyg.Sequential(
        'x, edge_index', [(pyg.TAGConv(FEATURES, 8), 'x, edge_index -> x'), (pyg.TAGConv(8, 3), 'x, edge_index -> x')]
    ),
}


def model_of(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return pygfuse.fuse(MODELS[name]()).double()


def loss_of(model: torch.nn.Module, part: int) -> torch.Tensor:
    """The loss on the graph of one process."""
    x = torch.randn(30, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(part))
    return model(x, random_edges(30, 30, 90 + 10 * part, seed=part)).square().mean()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


def train(rank: int, name: str, folder: str, port: int) -> None:
    torch.set_num_threads(1)
    limits.lift()
    dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=PROCESSES)
    found = gradients_of(model_of(name), rank)
    if rank == 0:
        torch.save(found, f'{folder}/gradients')
    # nobody leaves while the other still talks
    dist.barrier()
    dist.destroy_process_group()


def gradients_of(model: torch.nn.Module, rank: int) -> tuple[list[torch.Tensor], list[str | None]]:
    """The gradients on one of the processes, and why layers ran the path of PyG."""
    # torch wants it gone before the group of processes is
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    loss_of(parallel, rank).backward()
    reasons = [layer.note.reason for layer in model.modules() if isinstance(layer, pyg.MessagePassing)]
    return [parameter.grad for parameter in model.parameters()], reasons


@pytest.mark.slow
@pytest.mark.parametrize('name', MODELS)
def test_two_processes_have_the_gradients_of_one(name, tmp_path):
    torch.multiprocessing.spawn(train, (name, str(tmp_path), free_port()), nprocs=PROCESSES)
    found, reasons = torch.load(tmp_path / 'gradients')
    assert reasons == [None, None]
    model = model_of(name)
    sum(loss_of(model, part) for part in range(PROCESSES)).div(PROCESSES).backward()
    for gradient, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-12, atol=1e-12)
