"""How many sources and targets a graph has: what is given, what the adjacency says, or its largest node."""

from __future__ import annotations

from pygfuse.graph.adjacency import Adjacency


def given_sizes(
    size: tuple[int | None, int | None] | None, num_sources: int | None, num_targets: int | None
) -> tuple[int | None, int | None]:
    """The sizes that the arguments of `pygfuse.graph.graph.Graph.of` give, each of which may be silent."""
    if size is not None and len(size) != 2:
        raise ValueError(f"Expected 'size' to be a pair (num_sources, num_targets) (got {size})")
    from_size = (None, None) if size is None else size
    return (
        _agreed('num_sources', num_sources, from_size[0], "'size'"),
        _agreed('num_targets', num_targets, from_size[1], "'size'"),
    )


def _agreed(name: str, first: int | None, second: int | None, second_name: str) -> int | None:
    """The size that two places give, each of which may be silent."""
    if first is not None and first < 0:
        raise ValueError(f"Expected '{name}' not to be negative (got {first})")
    if first is not None and second is not None and first != second:
        raise ValueError(f"Expected '{name}' and {second_name} to agree (got {first} and {second})")
    return second if first is None else first


def sizes_of(origin: Adjacency, num_sources: int | None, num_targets: int | None) -> tuple[int, int]:
    """Number of sources and targets: given, said by the adjacency, or one more than the largest node."""
    sources = _agreed('num_sources', num_sources, origin.num_sources, "the size of 'edge_index'")
    targets = _agreed('num_targets', num_targets, origin.num_targets, "the size of 'edge_index'")
    if sources is not None and targets is not None:
        return sources, targets
    pair = origin.indices[0]
    beyond = (pair.amax(1).long() + 1).clamp(min=0).tolist() if pair.size(1) else [0, 0]
    if sources is None and targets is None:
        return max(beyond), max(beyond)
    if sources is None:
        return beyond[1 - origin.target_row], targets
    return sources, beyond[origin.target_row]
