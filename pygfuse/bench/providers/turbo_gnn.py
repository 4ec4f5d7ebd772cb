"""turbo-gnn on a GPU ("On Efficient Scaling of GNNs"): its tuned aggregation between PyG's linear maps."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor

from pygfuse.bench.providers.provider import Problem, Provider, Side
from pygfuse.bench.providers.self_loops import edges_of


def _gatv2(module: torch.nn.Module, graph: Any, x: Tensor) -> Tensor:
    import turbo_gnn

    neighbours, own = (lin(x).view(-1, module.heads, module.out_channels) for lin in (module.lin_l, module.lin_r))
    given = {'x_neighbors': neighbours, 'attention_weights': module.att[0], 'negative_slope': module.negative_slope}
    return turbo_gnn.gatv2_aggr(graph, own, **given, autotune=True).flatten(1) + module.bias


def _transformer(module: torch.nn.Module, graph: Any, x: Tensor) -> Tensor:
    import turbo_gnn

    maps = module.lin_query, module.lin_key, module.lin_value
    query, key, value = (lin(x).view(-1, module.heads, module.out_channels) for lin in maps)
    scale = 1 / math.sqrt(module.out_channels)
    out = turbo_gnn.graph_transformer_aggr(graph, value.flatten(1), Q=query, K=key, V=value, scale=scale, autotune=True)
    return out.flatten(1) + module.lin_skip(x)


LAYERS = {'GATv2Conv': _gatv2, 'TransformerConv': _transformer}


def side(problem: Problem) -> Side | None:
    """A layer whose aggregation is turbo-gnn's, where it has it."""
    if problem.name not in LAYERS:
        return None
    import turbo_gnn

    module, training = copy.deepcopy(problem.plain), problem.training
    kind = turbo_gnn.AdjacencyForwardBackwardWithNodeBuckets
    edges = edges_of(problem.name, training)
    graph = kind.from_edge_list(edges.cpu(), num_nodes=training.num_nodes).to(edges.device)
    return Side(module, lambda: LAYERS[problem.name](module, graph, training.x))


TURBO_GNN = Provider('turbo-gnn', side, {'turbo_gnn': 'pip install turbo-gnn'}, 'cuda')
