"""Where the tensors of a call of ``propagate`` are, for calls that are like it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler import Given
from pygfuse.conv._compiled.call import Call

_SUFFIXES = {'_j': 0, '_i': 1}


@dataclasses.dataclass(frozen=True)
class KnownArguments:
    """Where tensors are in the arguments of ``propagate``.

    Attributes:
        of_nodes: Of each tensor of nodes, its name, that of its argument, and its place there if that is a pair.
        of_edges: The names of those that have a row for each edge.
        shared: The names and shapes of the others.
        counted: Arguments, places there, and sides of the tensors that say how many nodes there are.
        of_update: The names and defaults of what ``update`` takes.
        num_stacked: How many features of nodes each argument holds, ``[*, nodes, channels]``; None for one without that
            dimension.
        stacks_of_edges: The names of those that have a row for each edge for each of these.
    """

    of_nodes: tuple[tuple[str, str, int | None], ...]
    of_edges: tuple[str, ...]
    shared: tuple[tuple[str, torch.Size], ...]
    counted: tuple[tuple[str, int | None, int], ...]
    of_update: tuple[tuple[str, Any], ...]
    num_stacked: int | None
    stacks_of_edges: tuple[str, ...] = ()

    @staticmethod
    def of(layer: Any, call: Call, kwargs: Mapping[str, Any]) -> KnownArguments | None:
        """Those of a call; None where they are not so easily found.

        Args:
            layer: The layer.
            call: The call.
            kwargs: What ``propagate`` was given for it.
        """
        items = {name: item for name, item in call.given.items() if isinstance(item, Given)}
        others = [name for name, item in items.items() if item.residency in ('edge', 'shared')]
        if not all(isinstance(kwargs.get(name), Tensor) for name in others):
            return None
        of_nodes, counted = [], {}
        stacked = {len(stack) for stack in call.stacks.values()}
        for name in call.given:
            if name in items and items[name].is_of_all:
                of_nodes.append((name, name, None))
                counted |= {(name, None, side): items[name].value.dim() for side in (0, 1)}
            argument, side = kwargs.get(name[:-2]), _SUFFIXES.get(name[-2:])
            if side is None or not isinstance(argument, (Tensor, tuple)):
                continue
            is_pair = isinstance(argument, tuple)
            if name in items:
                of_nodes.append((name, name[:-2], side if is_pair else None))
            for place, part in enumerate(argument) if is_pair else ((None, argument),):
                if part is not None:
                    counted[name[:-2], place, side if place is None else place] = part.dim()
        if any(dims != 3 if stacked else layer.node_dim % dims for dims in counted.values()):
            return None
        of_stacks = tuple(name for name in others if items[name].is_stacked)
        edges = tuple(name for name in others if items[name].residency == 'edge' and name not in of_stacks)
        shared = tuple((name, items[name].value.shape) for name in others if name not in (*edges, *of_stacks))
        update = tuple((name, None if name in kwargs else value) for name, value in call.of_update.items())
        num_stacked = stacked.pop() if stacked else None
        return KnownArguments(tuple(of_nodes), edges, shared, tuple(counted), update, num_stacked, of_stacks)

    def tensors(self, num_edges: int | None, kwargs: Mapping[str, Any]) -> dict[str, Tensor] | None:
        """The tensors of a call by name; None if one has other rows than it should.

        Args:
            num_edges: Number of edges; None where those of edges are known to have as many rows.
            kwargs: What ``propagate`` was given.
        """
        found = {}
        for name, base, place in self.of_nodes:
            found[name] = kwargs[base] if place is None else kwargs[base][place]
        for name in self.of_edges:
            found[name] = kwargs[name]
            if num_edges is not None and kwargs[name].shape[0] != num_edges:
                return None
        for name in self.stacks_of_edges:
            found[name] = kwargs[name]
            if num_edges is not None and kwargs[name].shape[1] != num_edges:
                return None
        for name, shape in self.shared:
            found[name] = kwargs[name]
            if kwargs[name].shape != shape:
                return None
        return found

    def num_nodes(self, size: Any, kwargs: Mapping[str, Any], is_checked: bool = False) -> tuple[int, int] | None:
        """The numbers of sources and targets of a call; None if its tensors do not agree on them, or do not say them.

        Args:
            size, kwargs: What ``propagate`` was given.
            is_checked: Whether they are known to agree.
        """
        rows: list[int | None] = [None, None] if size is None else [*size]
        dim = 0 if self.num_stacked is None else 1
        for base, place, side in self.counted:
            count = (kwargs[base] if place is None else kwargs[base][place]).shape[dim]
            if not is_checked and rows[side] not in (None, count):
                return None
            rows[side] = count
        sources, targets = rows
        if sources is None and targets is None:
            return None
        return (targets if sources is None else sources), (sources if targets is None else targets)

    def stacks_of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Those of the tensors of a call that are stacked; None where none are."""
        if self.num_stacked is None:
            return None
        return {name: tensors[name] for name in (*[name for name, *_ in self.of_nodes], *self.stacks_of_edges)}

    def for_update(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What ``update`` takes."""
        return {name: kwargs.get(name, default) for name, default in self.of_update}
