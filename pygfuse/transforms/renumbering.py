"""Data whose nodes have other numbers, and the way between both numberings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.utils import select

from pygfuse._lib.pages import on_huge_pages

# says of each node which it was
KEY = 'original_node'


def renumbered(data: Data, order: Tensor, node_keys: Collection[str] = ()) -> Data:
    """Numbers the nodes of data anew: all that belongs to a node moves along, edges keep their order.

    Args:
        data: The data, which are changed.
        order: Which node comes at each place.
        node_keys: Attributes that hold numbers of nodes, beside those that PyG knows by their names.

    Raises:
        ValueError: If an attribute names a node that is not there.
    """
    store, changed = data._store, {}
    place_of = inverted(order)
    for key, value in store.items():
        moves = store.is_node_attr(key)
        if key in node_keys or _holds_nodes(key, value):
            value = _with_numbers(key, value, place_of)
        changed[key] = _moved(value, order, data.__cat_dim__(key, value, store)) if moves else value
    # of data that were renumbered before, it has moved with the rest
    changed.setdefault(KEY, order)
    store.update(changed)
    return data


def inverted(order: Tensor) -> Tensor:
    """At which place each node comes.

    Example:
        >>> inverted(torch.tensor([2, 0, 1]))
        tensor([1, 2, 0])
    """
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    return places


def _holds_nodes(key: str, value: Any) -> bool:
    """Whether PyG adds the number of nodes to an attribute where it batches graphs."""
    holds_integers = isinstance(value, Tensor) and not value.is_floating_point() and value.dtype is not torch.bool
    return holds_integers and ('index' in key or key == 'face') and 'batch' not in key


def _with_numbers(key: str, value: Tensor, place_of: Tensor) -> Tensor:
    """Numbers of nodes as they are now; negative ones, which stand for none, stay."""
    nodes = value.as_tensor() if isinstance(value, EdgeIndex) else value
    place_of = place_of.to(nodes.device)
    if nodes.numel():
        least, most = (int(bound) for bound in torch.aminmax(nodes))
        if most >= len(place_of):
            raise ValueError(f"Expected '{key}' to hold numbers of {len(place_of)} nodes (got {most})")
        found = _rows_of(place_of.to(nodes.dtype), nodes.clamp(min=0) if least < 0 else nodes)
        nodes = torch.where(nodes < 0, nodes, found) if least < 0 else found
    if isinstance(value, EdgeIndex):
        return EdgeIndex(nodes, sparse_size=value.sparse_size(), is_undirected=value.is_undirected)
    return nodes


def _rows_of(values: Tensor, places: Tensor) -> Tensor:
    """``values[places]``, on huge pages."""
    found = on_huge_pages(places.new_empty(places.shape))
    torch.index_select(values, 0, places.long().flatten(), out=found.view(-1))
    return found


def _moved(value: Any, order: Tensor, dim: int) -> Any:
    if isinstance(value, np.ndarray):
        return value.take(order.numpy(), axis=dim)
    return select(value, order.to(value.device) if isinstance(value, Tensor) else order, dim)


def in_original_order(rows: Tensor, data: Data) -> Tensor:
    """Rows of nodes, outputs of a model say, in the order that the nodes had before `ToLocalOrder`.

    Args:
        rows: A row for each node.
        data: What the transform returned; where it left the data as they were, so are the rows.

    Raises:
        ValueError: If there is not a row for each node, or the data are not all nodes of one graph. (Of a part of
            them, ``data.original_node`` says which nodes its rows are.)

    Example:
        >>> data = Data(original_node=torch.tensor([2, 0, 1]))
        >>> in_original_order(torch.tensor([5.0, 6.0, 7.0]), data)
        tensor([6., 7., 5.])
    """
    places = _places(data)
    if places is None:
        return rows
    if len(rows) != len(places):
        raise ValueError(f"Expected 'rows' to hold a row for each of {len(places)} nodes (got {len(rows)})")
    return rows.index_select(0, places.to(rows.device))


def in_local_order(rows: Tensor, data: Data) -> Tensor:
    """Rows of nodes in their original order (a mask that is read later) in the order that `ToLocalOrder` gave them.

    Args:
        rows: A row for each node of the original data.
        data: What the transform returned, or a part of it.

    Raises:
        ValueError: If there are fewer rows than nodes.

    Example:
        >>> data = Data(original_node=torch.tensor([2, 0, 1]))
        >>> in_local_order(torch.tensor([True, False, False]), data)
        tensor([False,  True, False])
    """
    original = data.get(KEY)
    if original is None:
        return rows
    most = int(original.max()) if original.numel() else -1
    if most >= len(rows):
        raise ValueError(f"Expected 'rows' to hold a row for each of {most + 1} nodes (got {len(rows)})")
    return rows.index_select(0, original.to(rows.device))


def local_nodes(nodes: Tensor, data: Data) -> Tensor:
    """The numbers that nodes have now, from those before `ToLocalOrder`.

    Args:
        nodes: Numbers of nodes of the original data.
        data: What the transform returned.

    Raises:
        ValueError: If a node is not there, or the data are not all nodes of one graph.

    Example:
        >>> local_nodes(torch.tensor([2, 2, 1]), Data(original_node=torch.tensor([2, 0, 1])))
        tensor([0, 0, 2])
    """
    places = _places(data)
    return nodes if places is None else _with_numbers('nodes', nodes, places)


def _places(data: Data) -> Tensor | None:
    """Where each of the original nodes is now; None where they are where they were."""
    original = data.get(KEY)
    if original is None:
        return None
    count = len(original)
    if not torch.equal(original.sort().values, torch.arange(count, device=original.device)):
        raise ValueError(f"Expected 'data' to have each of {count} nodes of one graph once in '{KEY}' (it has others)")
    return inverted(original)
