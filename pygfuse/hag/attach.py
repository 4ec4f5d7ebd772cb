"""Which HAG belongs to an ``edge_index``: layers are given this tensor and nothing else.

A HAG is found by the identity of the tensor, like the tensor's `Graph`, and goes once the tensor is written to or dies.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from pygfuse.graph.adjacency import state_of
from pygfuse.graph.attached import ATTACHED
from pygfuse.hag.hag import Hag

_KEY = ('HAG',)


class Attached:
    """A HAG that belongs to a tensor, made when a layer first asks for it.

    Args:
        make: Returns the HAG, or the reason for which there is none to use.
    """

    def __init__(self, make: Callable[[], Hag | str]) -> None:
        self._make: Callable[[], Hag | str] | None = make
        self._made: Hag | str | None = None

    def hag(self) -> Hag | str:
        """The HAG, or the reason for which there is none to use."""
        make = self._make
        if make is not None:
            self._made = make()
            self._make = None
        return self._made


def attach(edge_index: Tensor, hag: Hag | Callable[[], Hag | str]) -> None:
    """Lets layers that are given this tensor aggregate over a HAG.

    Args:
        edge_index: The edges, ``[2, E]``, row 0 the sources.
        hag: A HAG of these edges, or what returns one, or the reason for which there is none.

    Raises:
        ValueError: If the HAG is that of another number of edges.

    Example:
        >>> from pygfuse.transforms import find_hag
        >>> edge_index = torch.tensor([[2, 3, 4, 2, 3, 4], [0, 0, 0, 1, 1, 1]])
        >>> attach(edge_index, find_hag(edge_index))
        >>> attached(edge_index).hag()
        Hag(num_aggregation_nodes=1, depth=1, num_aggregations=4 -> 2, data_transfers=6 -> 5)
    """
    if isinstance(hag, Hag) and hag.num_edges != edge_index.shape[1]:
        raise ValueError(f"Expected 'hag' to be of the {edge_index.shape[1]} edges given (got one of {hag.num_edges})")
    made = Attached((lambda: hag) if isinstance(hag, Hag) else hag)
    ATTACHED.keep(edge_index, _KEY, state_of(edge_index), made)


def attached(edge_index: Tensor) -> Attached | None:
    """What belongs to this tensor, None if nothing does."""
    return ATTACHED.get(edge_index, _KEY)
