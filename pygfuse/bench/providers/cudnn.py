"""cuDNN's graph operators on a GPU: sums, means and maxima, GAT and GATv2, between PyG's linear maps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pygfuse.bench.layers import csr_of
from pygfuse.bench.providers.provider import Problem, Provider, Side
from pygfuse.bench.providers.self_loops import edges_of

Forward = Callable[[torch.nn.Module, Any, Tensor], Tensor]


def _sage(module: torch.nn.Module, graph: Any, x: Tensor) -> Tensor:
    from cudnn.gnn import agg_simple

    return module.lin_l(agg_simple(graph, node_features=x, aggr=module.aggr)) + module.lin_r(x)


def _graph(module: torch.nn.Module, graph: Any, x: Tensor) -> Tensor:
    from cudnn.gnn import agg_simple

    return module.lin_rel(agg_simple(graph, node_features=x, aggr='sum')) + module.lin_root(x)


def _gin(module: torch.nn.Module, graph: Any, x: Tensor) -> Tensor:
    from cudnn.gnn import agg_simple

    return module.nn(agg_simple(graph, node_features=x, aggr='sum') + (1 + module.eps) * x)


def _gat(module: torch.nn.Module, graph: Any, x: Tensor) -> Tensor:
    from cudnn.gnn import mha_gat

    att = torch.cat([module.att_src.flatten(), module.att_dst.flatten()])
    return mha_gat(graph, module.lin(x), att, num_heads=module.heads) + module.bias


def _gatv2(module: torch.nn.Module, graph: Any, x: Tensor) -> Tensor:
    from cudnn.gnn import mha_gat_v2

    rows = module.lin_l(x), module.lin_r(x)
    return mha_gat_v2(graph, rows, module.att.flatten(), num_heads=module.heads) + module.bias


LAYERS: dict[str, Forward] = {
    'SAGEConv': _sage,
    'SAGEConv max': _sage,
    'GraphConv': _graph,
    'GINConv': _gin,
    'GINConv identity': _gin,
    'GATConv': _gat,
    'GATv2Conv': _gatv2,
}


def side(problem: Problem) -> Side | None:
    """A layer whose aggregation is cuDNN's, where it has it."""
    if problem.name not in LAYERS:
        return None
    from cudnn.gnn import CscGraph

    module, training = copy.deepcopy(problem.plain), problem.training
    csr = csr_of(edges_of(problem.name, training), training.num_nodes)
    graph = CscGraph(csr.indptr, csr.index, num_src_nodes=training.num_nodes)
    return Side(module, lambda: LAYERS[problem.name](module, graph, training.x))


CUDNN = Provider('cuDNN', side, {'cudnn.gnn': 'pip install nvidia-cudnn-frontend'}, 'cuda')
