"""The edges of a call, found once, and what it brings for each of them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from pygfuse.conv._layer.checks import NodePair, check_rows, is_edge_index, is_sparse_tensor
from pygfuse.conv._layer.spec import EdgeWeight
from pygfuse.graph.adjacency import values_of
from pygfuse.graph.graph import Graph
from pygfuse.mapping.few_edges import are_few, counted_bytes
from pygfuse.ops import Edges
from pygfuse.ops.listed import is_list, savable
from pygfuse.program.products import Product


class EdgeInput(NamedTuple):
    """What a call brings for each edge.

    Attributes:
        values: ``[edges, D]``.
        loops: Those of self-loops that the layer puts in, ``[loops, D]``, or None.
    """

    values: Tensor
    loops: Tensor | None = None

    def times(self, weight: Tensor) -> Product:
        """The product with a weight ``[D, width]``, which is formed when a walk needs it."""
        return Product(self.values, weight, self.loops)


def weight_of(spec: EdgeWeight, adjacency: Any, given: Tensor | None, multiplies: bool) -> Tensor | None:
    """The weights of a call's edges: those that it brings, or the values of a matrix.

    Args:
        spec: What the layer takes.
        adjacency: Any adjacency that PyG takes.
        given: What the call brings.
        multiplies: Whether PyG's layer multiplies with matrices (``fuse``).
    """
    if is_edge_index(adjacency):
        return given
    if not spec.of_sparse_tensor and (is_sparse_tensor(adjacency) or not multiplies):
        # where PyG does not multiply with the matrix, such a layer's messages know no weights
        return None
    return values_of(adjacency) if multiplies or given is None else given


def edges_of(
    x: NodePair,
    adjacency: Any,
    flow: str,
    size: tuple[int | None, int | None] | None = None,
    loops: bool = False,
    is_known: bool = False,
) -> Edges:
    """The edges of a call: between the nodes of ``x[0]`` and those of ``x[1]``, `size` or the adjacency.

    Args:
        x: Features of both sides; the second may be missing.
        adjacency: Any adjacency that PyG takes.
        flow: PyG's flow.
        size: PyG's `size`.
        loops: Whether each node that is on both sides gets exactly one self-loop.
        is_known: Whether `size` is None and the adjacency a plain ``edge_index``, see `pygfuse.conv._layer.repeated`.

    Raises:
        ValueError: If the adjacency is not one, or names nodes that are not there.
    """
    first, second = x[0].shape[0], None if x[1] is None else x[1].shape[0]
    if is_known:
        second = first if second is None else second
    else:
        first, second = check_rows([first, second], size, adjacency)
    is_plain = is_known or is_edge_index(adjacency)
    num_loops = None
    if loops:
        num_loops = min(size) if size is not None and is_plain else min(first, second)
    # torch.export hands over tensors of classes of its own
    if not is_known and torch.compiler.is_compiling() and is_plain and not isinstance(adjacency, EdgeIndex):
        return Edges(adjacency, first, second, flow, num_loops)
    if is_list(adjacency) and are_few(adjacency.shape[1], first + second, counted_bytes(1, 1)):
        # rows that are wider, and whoever asks for it, make a graph of the list
        return Edges(savable(adjacency), first, second, flow, num_loops)
    graph = Graph.of(adjacency, None, flow, first, second)
    walked = graph if num_loops is None else graph.with_self_loops(num_loops)
    token = adjacency if graph.is_of(adjacency) else graph.token
    return Edges(token, first, second, flow, num_loops, walked)


def user_rows(edges: Edges) -> tuple[Tensor, Tensor]:
    """Rows 0 and 1 of the ``edge_index`` that the user passed."""
    pair = edges.token
    if pair.dim() != 2:  # the token of a graph
        pair = dataclasses.replace(edges, loops=None, walked=None).graph().coo()
    # to index with: torch takes uint8 for a mask and no other narrow type
    return (pair[0].long(), pair[1].long()) if pair.element_size() < 4 else (pair[0], pair[1])
