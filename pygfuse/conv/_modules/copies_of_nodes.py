"""Calls whose features have dimensions before that of nodes: copies of a graph, taken for one of as many parts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler import Given, Refused
from pygfuse.compiler.symbols.copies import NO_COPIES, OfSeveral
from pygfuse.graph.adjacency import state_of
from pygfuse.graph.attached import ATTACHED

# of so few numbers a row the edges of so many copies take more memory than messages do
_NARROW, _MOST_EDGES = 8, 2**24
OTHER_NODES = 'edges that name other nodes than there are'


def of_several(tensors: Mapping[str, Tensor], num_edges: int) -> OfSeveral:
    """What has several copies: features ``[*copies, rows, channels]``, and what has the same dimensions before rows.

    Args:
        tensors: What a call brings, but for its edges, by name.
        num_edges: The number of edges.

    Example:
        >>> x, static, weight = torch.ones(4, 9, 2), torch.ones(9, 2), torch.ones(4, 30)
        >>> found = of_several({'x': x, 'static': static, 'weight': weight}, 30)
        >>> found.sizes, sorted(found.names)
        ((4,), ['weight', 'x'])
    """
    wide = [one for one in tensors.values() if one.dim() > 2 and one.is_floating_point()]
    if not wide or wide[0].numel() == 0:
        return NO_COPIES
    sizes = tuple(wide[0].shape[:-2])
    is_narrow = max(one.shape[-1] for one in wide) < _NARROW
    if is_narrow and math.prod(sizes) * num_edges > _MOST_EDGES:
        return NO_COPIES
    rows = {one.shape[len(sizes)] for one in wide if _has(one, sizes)} | {num_edges}
    return OfSeveral(
        sizes, frozenset(name for name, one in tensors.items() if _has(one, sizes) and one.shape[len(sizes)] in rows)
    )


def _has(one: Tensor, sizes: tuple[int, ...]) -> bool:
    return one.dim() > len(sizes) and tuple(one.shape[: len(sizes)]) == sizes


def of_one_copy(tensors: Mapping[str, Tensor], copies: OfSeveral) -> dict[str, Tensor]:
    """The tensors with the first of several copies."""
    first = (0,) * len(copies.sizes)
    return {name: one[first] if name in copies.names else one for name, one in tensors.items()}


def of_all_copies(given: Mapping[str, Any], tensors: Mapping[str, Tensor], copies: OfSeveral) -> dict[str, Any]:
    """Arguments of one copy as those of all, one after the other: ``[copies * rows, *]``.

    Args:
        given: The arguments as the compiler takes them, of one copy.
        tensors: The tensors as a call brings them.
        copies: What has several.
    """
    return {
        name: dataclasses.replace(item, value=_in_rows(item, tensors[name], name in copies.names, copies.sizes))
        if isinstance(item, Given)
        else item
        for name, item in given.items()
    }


def _in_rows(item: Given, tensor: Tensor, is_of_several: bool, sizes: tuple[int, ...]) -> Tensor:
    if item.residency == 'shared':
        return tensor
    if is_of_several:
        return tensor.flatten(0, len(sizes))
    return tensor.expand(math.prod(sizes), *tensor.shape).flatten(0, 1)


def edges_of_copies(edge_index: Tensor, num_copies: int, num_nodes: tuple[int, ...]) -> Tensor:
    """The edges of all copies, those of each along its own nodes; kept with the edges.

    Args:
        edge_index: The edges, ``[2, edges]``.
        num_copies: How many copies there are.
        num_nodes: How many nodes a copy has: one number, or one for those that each row names.

    Raises:
        Refused: If they name other nodes, or more than the type has numbers for.

    Example:
        >>> edges_of_copies(torch.tensor([[0, 1], [1, 2]]), 2, (3,)).tolist()
        [[0, 1, 3, 4], [1, 2, 4, 5]]
    """
    key = 'edges of copies', num_copies, num_nodes
    found = ATTACHED.get(edge_index, key)
    if found is not None:
        return found
    state = state_of(edge_index)
    with torch.inference_mode(False), torch.no_grad():
        counts = num_nodes * (3 - len(num_nodes))
        for row, count in zip(edge_index, counts, strict=True):
            low, high = torch.aminmax(row)
            # before so many edges are made: nodes with several heads would be as many copies as there are nodes
            if low < 0 or high >= count:
                raise Refused(OTHER_NODES)
        if num_copies * max(counts) > torch.iinfo(edge_index.dtype).max:
            raise Refused(OTHER_NODES)
        first = torch.arange(num_copies, dtype=edge_index.dtype, device=edge_index.device)
        offsets = torch.stack([first * count for count in counts])
        made = (edge_index.unsqueeze(1) + offsets.unsqueeze(2)).flatten(1)
    return ATTACHED.keep(edge_index, key, state, made, held=edge_index.detach())
