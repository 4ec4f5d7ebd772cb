"""What a layer learns of its last call, for the report."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple


@dataclasses.dataclass
class Activity:
    """How much of a graph a pass walked.

    Attributes:
        rows: Targets with a gradient, or that were computed; None where nobody looked.
        edges: Edges into these, or None.
        walked_edges: Edges that were walked.
        all_rows: Targets of the graph.
        all_edges: Edges of the graph.
    """

    rows: int | None
    edges: int | None
    walked_edges: int
    all_rows: int
    all_edges: int

    @property
    def computed(self) -> str:
        """What a forward pass did, in words."""
        return f'{self.rows:,} of {self.all_rows:,} rows, from {self.edges:,} of {self.all_edges:,} edges'

    def __str__(self) -> str:
        if self.rows is None:
            return f'backward walked all {self.all_edges:,} edges'
        return (
            f'backward walked {self.walked_edges:,} of {self.all_edges:,} edges; {self.rows:,} of {self.all_rows:,} '
            f'rows and {self.edges:,} edges were active'
        )


class Known(NamedTuple):
    """What is known of calls of a kind; one object, as threads may call a layer at the same time.

    Attributes:
        kind: The kind (`pygfuse.conv._layer.repeated`).
        few: How they run along few edges, the bytes of a row, and the products of an edge and of a node; None if they
            do not take them as they come (`pygfuse.conv._layer.few_edges`).
    """

    kind: Any
    few: tuple[Any, int, tuple[int, int]] | None


@dataclasses.dataclass(eq=False)
class Note:
    """How a layer ran the last time. The layer owns it; what runs for the layer holds a weak reference.

    Threads that call the layer at the same time write to it in any order: what a call computes must follow from one
    read of it.

    Attributes:
        reason: Why the last call ran PyG's own path; None if it ran fused.
        where: The file and line that this is about, where that is somebody's code.
        of_layer: Whether that was a reason of the layer as it stood, not of the call.
        hag: What became of the HAG that belongs to the adjacency of the last call; None if there was none.
        backward: What the last backward pass walked; None before there was one.
        forward: What the last forward pass computed within `pygfuse.active`; None for one outside of it.
        density: Which share of the features of a call was not zero, where these were dense and that was little.
        known: Of which kind the last fused call was, where that was looked at.
        calls: The last kinds of calls of a compiled layer (`pygfuse.conv._compiled.known_calls`).
        few_edges: What tells that such a call has few edges (the same file).
        remade: Edges that it makes anew in each call (`pygfuse.graph.remade_edges`); None before any.
    """

    reason: str | None = None
    where: str | None = None
    of_layer: bool = False
    hag: str | None = None
    backward: Activity | None = None
    forward: Activity | None = None
    density: float | None = None
    known: Known | None = None
    calls: tuple = ()
    few_edges: tuple = ()
    remade: Any = None

    def tell(self, reason: str | None, of_layer: bool) -> None:
        """Notes why a call ran PyG's own path, and of what line that is told; None if it ran fused."""
        # plain text, which others may pickle
        self.reason, self.where = None if reason is None else str(reason), getattr(reason, 'where', None)
        self.of_layer = of_layer
