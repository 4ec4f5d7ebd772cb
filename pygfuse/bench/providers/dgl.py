"""DGL: its layers of the same widths, on a graph that has its formats made beforehand.

Its last wheel for CPUs that runs with a current PyTorch is 1.1.3, which needs `packaging`; give it an environment of
its own. Its parameters are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pygfuse.bench.layers import Training
from pygfuse.bench.providers.provider import Problem, Provider, Side
from pygfuse.bench.providers.self_loops import WITH_LOOPS

# each library brings a team of OpenMP threads: before one runs, the other's has to fall asleep
PAUSE = 0.05


def modules(features: int, heads: int, channels: int) -> dict[str, Callable[[], torch.nn.Module]]:
    """By the name of PyG's class, what makes DGL's."""
    import dgl.nn as dgl_nn

    width, any_degree = heads * channels, {'allow_zero_in_degree': True}
    linear = torch.nn.Linear
    return {
        'GATConv': lambda: dgl_nn.GATConv(features, channels, heads, **any_degree),
        'GATv2Conv': lambda: dgl_nn.GATv2Conv(features, channels, heads, **any_degree),
        'GCNConv': lambda: dgl_nn.GraphConv(features, width, **any_degree),
        'SAGEConv': lambda: dgl_nn.SAGEConv(features, width, 'mean'),
        'GINConv': lambda: dgl_nn.GINConv(linear(features, width), 'sum'),
        'GMMConv': lambda: dgl_nn.GMMConv(features, width, 3, 3, 'mean', **any_degree),
        'EdgeConv': lambda: dgl_nn.EdgeConv(features, width, **any_degree),
    }


def graph_of(training: Training, with_loops: bool) -> Any:
    """The graph as DGL has it."""
    import dgl

    sources, targets = training.edge_index
    graph = dgl.graph((sources, targets), num_nodes=training.num_nodes)
    if with_loops:
        graph = dgl.add_self_loop(dgl.remove_self_loop(graph))
    graph.create_formats_()
    return graph


def forward_of(module: torch.nn.Module, graph: Any, training: Training) -> Callable[[], Tensor]:
    """A layer's output, of rows that are as wide as all heads."""
    return lambda: module(graph, training.x, *training.inputs.values()).flatten(1)


def side(problem: Problem) -> Side | None:
    """DGL's layer, where it has one that computes the same."""
    training = problem.training
    known = modules(problem.layer.features, problem.heads, problem.channels)
    if problem.name not in known:
        return None
    module = known[problem.name]().to(training.x.device)
    graph = graph_of(training, problem.name in WITH_LOOPS)
    return Side(module, forward_of(module, graph, training))


DGL = Provider('DGL', side, {'dgl': 'pip install packaging dgl==1.1.3, in an environment of its own'}, pause=PAUSE)
