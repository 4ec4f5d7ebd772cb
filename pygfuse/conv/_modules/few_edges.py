"""Calls of modules whose edges are so few that nothing else of them is looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pygfuse.compiler import Given
from pygfuse.conv._modules.calls import ModuleCall
from pygfuse.conv._modules.edges_by_name import names_of
from pygfuse.conv._modules.held_by_name import held_in, holds_by_name
from pygfuse.conv._modules.matrix_arguments import device_of, is_matrix, num_entries


class Held(NamedTuple):
    """Where an argument is, or what it holds.

    Attributes:
        place: Which positional argument.
        name: Its name.
        within: Where in it, by places and names.
    """

    place: int
    name: str
    within: tuple[int | str, ...]

    @staticmethod
    def of(forward: Any, name: str) -> Held:
        """Where a leaf of the arguments of a ``forward`` is."""
        name, *within = name.split('.')
        places = {name: place for place, name in enumerate(names_of(forward))}
        # what is given by any other name has no place
        place = places.get(name, len(places))
        return Held(place, name, tuple([int(part) if part.isdigit() else part for part in within]))

    def found(self, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        """What is there in a call; None if nothing is."""
        item = args[self.place] if self.place < len(args) else kwargs.get(self.name)
        for part in self.within:
            item = _part(item, part)
        return item


class Few(NamedTuple):
    """What tells that edges are few.

    Attributes:
        held: Where the edges are, or one of their rows, and those of further arguments.
        fewest: From how many edges on all else is looked at.
        device: Where such edges are.
        reason: Why the class's own ``forward`` runs for fewer.
        features: Where features of nodes are; None if none are given.
        num_dims: How many dimensions they have.
        num_before: How many of these are before that of nodes, and count copies of all edges.
    """

    held: tuple[Held, ...]
    fewest: int
    device: torch.device
    reason: str
    features: Held | None
    num_dims: int
    num_before: int

    @staticmethod
    def of(forward: Any, call: ModuleCall, fewest: int, reason: str) -> Few:
        """The same of calls like this one."""
        held = [Held.of(forward, name) for name in (call.names[0], *call.others)]
        of_nodes = [name for name, item in call.given.items() if isinstance(item, Given) and item.is_of_all]
        name = next(iter(sorted(call.copies.names) or of_nodes), None)
        features, num_dims = (None, 0) if name is None else (Held.of(forward, name), call.arguments[name].dim())
        before = len(call.copies.sizes)
        return Few(tuple(held), fewest, call.edge_index.device, reason, features, num_dims, before)

    @staticmethod
    def of_edges(fewest: int, device: torch.device, reason: str) -> Few:
        """The same of calls of which the edges are all that counts, the only argument of `has`."""
        return Few((Held(0, 'edge_index', ()),), fewest, device, reason, None, 0, 0)

    def has(self, args: tuple, kwargs: Mapping[str, Any]) -> bool:
        """Whether the edges of a call are few."""
        count = 0
        for held in self.held:
            edges = held.found(args, kwargs)
            if is_matrix(edges) and device_of(edges) == self.device:
                count += num_entries(edges)
                continue
            edges = edges[0] if type(edges) in (tuple, list) and edges else edges
            if type(edges) is not Tensor or edges.dim() == 0 or edges.device != self.device:
                return False
            # rows, or columns
            count += max(edges.shape)
        return 0 < count * self._num_copies(args, kwargs) < self.fewest

    def _num_copies(self, args: tuple, kwargs: Mapping[str, Any]) -> int:
        """How many copies of the nodes a call has; 0 where nobody knows."""
        if self.features is None:
            return 1
        one = self.features.found(args, kwargs)
        is_known = isinstance(one, Tensor) and one.dim() == self.num_dims
        return math.prod(one.shape[: self.num_before]) if is_known else 0


def _part(held: Any, part: int | str) -> Any:
    """What a tuple or a list holds at a place, or an object by a name; None if it is not there. Of a matrix itself."""
    if is_matrix(held):
        return held
    if type(part) is int:
        return held[part] if type(held) in (tuple, list) and part < len(held) else None
    return held_in(held).get(part, None) if holds_by_name(held) else None
