"""PyTorch Geometric: as it is, under torch.compile, and with the sorted adjacency of torch_sparse."""

from __future__ import annotations

import copy

import torch

from pygfuse.bench.providers.provider import Problem, Provider, Side

BUILD = 'pip install --no-build-isolation {}, which compiles it'


def eager(problem: Problem) -> Side:
    """PyG's layer and a plain ``edge_index``."""
    return Side(problem.plain, lambda: problem.training.forward(problem.plain))


def compiled(problem: Problem) -> Side:
    """The same under torch.compile, which knows nothing of problems before."""
    torch.compiler.reset()
    module = copy.deepcopy(problem.plain)
    by_torch = torch.compile(module)
    return Side(module, lambda: problem.training.forward(by_torch))


def sparse(problem: Problem) -> Side | None:
    """PyG's layer and a `torch_sparse.SparseTensor`, which its kernels and those of torch_scatter walk."""
    from torch_sparse import SparseTensor

    training = problem.training
    if training.inputs:
        return None  # its layers take features of edges from the adjacency's values, one for all
    module, size = copy.deepcopy(problem.plain), (training.num_nodes, training.num_nodes)
    adjacency = SparseTensor.from_edge_index(training.edge_index.flip(0), sparse_sizes=size)
    return Side(module, lambda: module(*training.positional, adjacency))


PYG = Provider('PyG', eager)
COMPILED = Provider('PyG compiled', compiled)
SPARSE = Provider(
    'PyG, SparseTensor',
    sparse,
    {'torch_sparse': BUILD.format('torch_sparse'), 'torch_scatter': BUILD.format('torch_scatter')},
)
