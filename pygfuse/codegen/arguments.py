"""The arguments of walks: tuples of named fields, of which a walk's header and its call are both checked.

They are declared once, as named tuples one after another. A walk takes a long one as it is, by one name, and what the
walk calls takes it so, too: a field is named where it is read. The fields of short ones are parameters of their own. A
body whose parameters are others is refused where it is defined; a call gives each tuple by its names.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor


class Whole(NamedTuple):
    """A tuple that is one parameter, by its name and its type."""

    name: str
    kind: type[tuple]


class Arguments:
    """What a walk takes: its share of the work, then some tuples or their fields.

    Args:
        share: The first parameter.
        tuples: Named tuples: the types of those whose fields are parameters, `Whole` for the others.

    Example:
        >>> walk = Arguments('part', Whole('size', Row), Draws)
        >>> @walk.of
        ... def body(part, size, seed, threshold, scale):
        ...     pass
        >>> walk(Row(total_heads=2, width=16), Draws(seed=None, threshold=None, scale=None))
        (Row(total_heads=2, width=16), None, None, None)
        >>> @walk.of
        ... def body(part, size, threshold, seed, scale):
        ...     pass
        Traceback (most recent call last):
        ...
        ValueError: Expected parameter 2 of 'body' to be 'seed' (got 'threshold')
    """

    def __init__(self, share: str, *tuples: type[tuple] | Whole) -> None:
        self._whole = tuple(isinstance(item, Whole) for item in tuples)
        self.kinds = tuple(item.kind if isinstance(item, Whole) else item for item in tuples)
        parameters = ((item.name,) if isinstance(item, Whole) else item._fields for item in tuples)
        self.names = (share, *itertools.chain.from_iterable(parameters))
        repeated = {name for name in self.names if self.names.count(name) > 1}
        if repeated:
            raise ValueError(f"Expected the names of 'tuples' to differ (got {sorted(repeated)} more than once)")

    def of(self, body: Callable) -> Callable:
        """The body, whose parameters are these names in this order."""
        found = tuple(inspect.signature(body).parameters)
        for i, (wanted, name) in enumerate(itertools.zip_longest(self.names, found)):
            if wanted != name:
                raise ValueError(f'Expected parameter {i} of {body.__name__!r} to be {wanted!r} (got {name!r})')
        return body

    def check(self, tuples: tuple[tuple, ...]) -> None:
        """Raises a ValueError if these are not tuples of these kinds."""
        if tuple(map(type, tuples)) != self.kinds:
            wanted, found = ([kind.__name__ for kind in kinds] for kinds in (self.kinds, map(type, tuples)))
            raise ValueError(f"Expected 'tuples' to be {wanted} (got {found})")

    def flat(self, tuples: tuple[tuple, ...]) -> tuple:
        """The parameters behind the share of the work: of each tuple itself, by its type, or its items."""
        found = zip(self.kinds, self._whole, tuples, strict=True)
        parameters = ((kind(*items),) if is_whole else items for kind, is_whole, items in found)
        return tuple(itertools.chain.from_iterable(parameters))

    def __call__(self, *tuples: tuple) -> tuple:
        """The arguments behind the share of the work, one after another."""
        self.check(tuples)
        return self.flat(tuples)


class WalkedEdges(NamedTuple):
    """Tiles of the row, bounds of the parts, and compressed rows with the node at the other end of each edge."""

    tiles: Tensor
    bounds: Tensor
    indptr: Tensor
    gathered: Tensor
    edge_id: Tensor | None


class SplitRows(NamedTuple):
    """Tiles of the row, and the rows that lie in several parts with the slots of what their parts left."""

    tiles: Tensor
    split_rows: Tensor
    split_indptr: Tensor
    slots: Tensor


class RowPointer(NamedTuple):
    indptr: Tensor


class Row(NamedTuple):
    """A row in memory, all tiles of it."""

    total_heads: int
    width: int


class Draws(NamedTuple):
    """Dropout, or None thrice."""

    seed: Any
    threshold: int | None
    scale: float | None


class Results(NamedTuple):
    """What a forward walk gives, see `forward` of a backend."""

    out: Tensor | None
    statistics: Tensor | None


class PartialStates(NamedTuple):
    """The states of rows that lie in several parts: sums, running maxima or ties, softmax totals."""

    partial_rows: Tensor
    partial_tops: Tensor | None
    partial_totals: Tensor | None


class OfTargets(NamedTuple):
    """What the adjoint reads of targets."""

    grad_out: Tensor
    out: Tensor
    normalisers: Tensor | None
    delta: Tensor | None


class KeptWeights(NamedTuple):
    """The weights of edges before dropout, where forward kept them."""

    edge_alpha: Tensor | None


class Operands(NamedTuple):
    """The operands of a call, as a walk by rows of one side takes them."""

    resident_heads: tuple[Tensor, ...]
    resident_channels: tuple[Tensor, ...]
    gathered_heads: tuple[Tensor, ...]
    gathered_channels: tuple[Tensor, ...]
    edge_heads: tuple[Tensor, ...]
    edge_scalars: tuple[Tensor, ...]
    edge_rows: tuple[Tensor, ...]
    edge_features: tuple[Tensor, ...]
    edge_weights: tuple[Tensor, ...]
    parameter_heads: tuple[Tensor, ...]
    parameters: tuple[Tensor, ...]
    scalars: tuple[float, ...]


class Gradients(NamedTuple):
    """Where the adjoint writes, see `BackwardPlan`."""

    grad_heads: tuple[Tensor, ...]
    grad_channels: tuple[Tensor, ...]
    grad_edges: tuple[Tensor, ...]
    grad_edge_rows: tuple[Tensor, ...]
    grad_weights: tuple[Tensor, ...]
    grad_features: tuple[Tensor, ...]
    grad_passed: tuple[Tensor, ...]
    grad_parameters: tuple[Tensor, ...]
    grad_edge_scalars: tuple[Tensor, ...]
    grad_parameter_heads: tuple[Tensor, ...]
    partial_heads: tuple[Tensor, ...]
    partial_rows: tuple[Tensor, ...]
