"""What is made of the edges of a module whose call has several copies of its nodes, and what is asked of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import torch_geometric.utils

from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.modules.remaking import Remaking
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols import copies
from pygfuse.compiler.symbols.beside_edges import as_value, new_of_nodes
from pygfuse.compiler.symbols.edge_tensors import MadeOfEdges
from pygfuse.compiler.symbols.symbol import recorded

# functions of edges that give of all copies what they give of each
_OF_EACH = (
    torch_geometric.utils.add_remaining_self_loops,
    torch_geometric.utils.add_self_loops,
    torch_geometric.utils.remove_self_loops,
)


class RemakingOfCopies(Remaking):
    """`Remaking` of a call whose edges are those of all copies.

    Args:
        sizes: The dimensions before those of nodes and edges.
        given: What `Remaking` takes.

    Attributes:
        is_of_copies: Whether what is recorded of one copy is so of each.
    """

    def __init__(self, sizes: tuple[int, ...], *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.copies = sizes
        self.is_of_copies = False

    @contextlib.contextmanager
    def of_copies(self) -> Iterator[None]:
        """A ``with`` block in which what is recorded of one copy is so of each."""
        before, self.is_of_copies = self.is_of_copies, True
        try:
            yield
        finally:
            self.is_of_copies = before

    @property
    def num_nodes(self) -> int | None:
        """The number of nodes of a copy."""
        found = super().num_nodes
        return None if found is None else found // math.prod(self.copies)

    def lifted(self, view: Callable, *args: Any) -> copies.Copies:
        """`pygfuse.compiler.symbols.copies.lifted`, of the ends of edges."""
        return copies.lifted(view, args, {})

    def number_of(self, found: Any, refusal: str) -> NoReturn:
        raise Refused(refusal)

    def check_alone(self, name: str, args: tuple, kwargs: dict[str, Any]) -> None:
        if not self.is_of_copies:
            copies.check_alone(name, args, kwargs)

    def record(self, function: Callable, args: Any, kwargs: Mapping[str, Any], is_drawn: bool = False) -> Any:
        if function in _OF_EACH or new_of_nodes(function, args, kwargs) is not None:
            return super().record(function, args, kwargs, is_drawn)
        if next(found_in(MadeOfEdges, (args, kwargs)), None) is None:
            raise Refused(f'{function.__name__} of the edges of several copies')
        # values of edges as others are
        return recorded(function, *rebuilt((args, kwargs), as_value))
