"""The adjoint along the edges into the first rows of a graph that is new, where the gradient of all others is zero.

A loader that samples neighbourhoods lists the seeds first, and the loss is theirs. Neither the edges by source nor an
execution path is worth making for one step: the edges into the first rows lie side by side among those by target, and
are walked as few edges are, as they come.
"""

from __future__ import annotations

import array
import dataclasses

import torch
from torch import Tensor

from pygfuse._lib.modes import modes
from pygfuse._lib.note import Activity
from pygfuse.call.call import Call
from pygfuse.call.gradient import Gradient
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.edges.row_search import leading_rows
from pygfuse.cpu.few_edges import listed
from pygfuse.cpu.nodes.rows import zeros
from pygfuse.cpu.vectors.memory import place_at
from pygfuse.graph.graph import Graph
from pygfuse.graph.listed import Listed
from pygfuse.mapping.few_edges import MOST_BYTES
from pygfuse.program.products import Product
from pygfuse.program.program import EDGE, TARGET

# the most of the edges; and the bytes of rows of all of them from which on a look at the gradient is worth its time
MOST_SHARE, LEAST_BYTES = 0.25, 2**22


def backward_of_leading_rows(asked: Gradient) -> dict[str, Tensor | Product] | None:
    """As `pygfuse.cpu.adjoint.backward`, where few edges lead to the rows up to the last one that has a gradient.

    None of other gradients, of graphs whose edges by source are there, and of calls with dropout, which is drawn by the
    ids of edges.
    """
    call, graph = asked.call, asked.call.graph
    if not _is_worth_a_look(call):
        return None
    num_rows = leading_rows(asked.grad_out)
    num_edges = int(graph.csr.indptr[num_rows])
    if num_edges > min(MOST_SHARE * graph.num_edges, MOST_BYTES / call.row_bytes):
        return None
    note = modes().note
    if note is not None:
        note.backward = Activity(num_rows, num_edges, num_edges, graph.num_targets, graph.num_edges)
    return _walked(asked, num_rows, num_edges)


def _list(part, indptr, index, num_rows, num_edges, edges):
    """The sources and targets of the edges into the first rows, side by side."""
    for row in range(num_rows):
        for q in range(place_at(indptr, row), place_at(indptr, row + 1)):
            edges[q] = place_at(index, q)
            edges[num_edges + q] = row


_list_edges = Kernel(_list, 'edges into the first rows')


def _is_worth_a_look(call: Call) -> bool:
    graph, said = call.graph, modes()
    is_said = said.execution_paths is not None or said.mapping is not None or said.group_sizes is not None
    if is_said or not isinstance(graph, Graph) or graph.is_transposed:
        return False
    has_ids = call.dropout is not None or call.weights is not None
    loops = any(product.loops is not None for product in call.products.values())
    is_large = graph.num_targets > 0 and graph.num_edges * call.row_bytes >= LEAST_BYTES
    return is_large and not (has_ids or loops) and call.dtype in (torch.float32, torch.float64)


def _walked(asked: Gradient, num_rows: int, num_edges: int) -> dict[str, Tensor | Product]:
    """The gradients along the edges into the first rows: of a graph of these rows alone, and zeros behind them."""
    call, graph, csr = asked.call, asked.call.graph, asked.call.graph.csr
    edges = torch.empty(2, num_edges, dtype=torch.int64)
    # self-loops that were put in are edges like others
    _list_edges(1, csr.indptr, csr.index, num_rows, num_edges, edges)
    rows = slice(num_rows)
    ids = slice(num_edges) if csr.edge_id is None else csr.edge_id[:num_edges].long()
    sides = {name: call.bound.program.operands[name].side for name in call.bound.present}
    some = dataclasses.replace(
        call,
        graph=Listed(edges, 1, graph.num_sources, num_rows, None, array.array('q', (0,))),
        tensors={name: tensor[ids] if sides[name] == EDGE else tensor for name, tensor in call.tensors.items()},
        products={name: Product(product.features[ids], product.weight) for name, product in call.products.items()},
    )
    statistics = None if asked.statistics is None else asked.statistics[rows]
    found = listed.backward(
        dataclasses.replace(asked, call=some, out=asked.out[rows], statistics=statistics, grad_out=asked.grad_out[rows])
    )
    for name, value in found.items():
        if isinstance(value, Product):
            features = value.features
            features = None if features is None else _among_zeros(features, ids, graph.num_edge_ids)
            found[name] = value._replace(features=features)
        elif sides[name] == EDGE:
            found[name] = _among_zeros(value, ids, graph.num_edge_ids)
        elif sides[name] == TARGET:
            found[name] = _among_zeros(value, rows, graph.num_targets)
    return found


def _among_zeros(values: Tensor, places: slice | Tensor, total: int) -> Tensor:
    result = zeros(values, total, *values.shape[1:])
    result[places] = values
    return result
