"""What stands for numbers of edges and nodes while code is captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING, OfValues

# rows of edges, of targets, of sources and of a result of another size: numbers that no width of features has
NUM_EDGES, NUM_TARGETS, NUM_SOURCES, NUM_OTHERS = 10007, 10009, 10037, 10039
NUMBERS_OF_ROWS = frozenset((NUM_EDGES, NUM_TARGETS, NUM_SOURCES, NUM_OTHERS))
# those of nodes
OF_NODES = NUM_TARGETS, NUM_SOURCES
# why numbers of rows are read in vain
WITH_NUMBERS = 'it computes with the number of edges or nodes'


class Rows(int):
    """A number of edges or nodes: it may stand where a shape is asked for, and must not be computed with.

    torch takes none but integers there, so that it is one; what reads it as a number that is not refused here is in
    `pygfuse.compiler.capture.numbers`.

    Attributes:
        counts: The tensor whose edges they are, as a module may make others: what makes it, or its symbol.
    """

    stands_for = int
    counts: Any = None

    @property
    def kind(self) -> int:
        """Of what it is the number: `NUM_EDGES` or another."""
        return int.__int__(self)

    @classmethod
    def of_edges(cls, counts: Any) -> Rows:
        """The number of edges that a tensor counts."""
        found = cls(NUM_EDGES)
        found.counts = counts
        return found

    def _refuse(self, *others: Any) -> Any:
        if any(isinstance(other, OfValues) for other in others):
            # which records it
            return NotImplemented
        raise Refused(WITH_NUMBERS)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __float__ = _refuse
    __divmod__ = __rdivmod__ = __abs__ = __pos__ = __invert__ = __round__ = __trunc__ = __floor__ = __ceil__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = _refuse
    __rrshift__ = __int__ = __str__ = __repr__ = __format__ = bit_length = _refuse
    __lt__ = __le__ = __ge__ = _refuse

    def _are_there(self) -> bool:
        """That there are edges: where there are none, no plan is run that was captured by code which asked."""
        remaking = REMAKING.get()
        if remaking is not None:
            remaking.asks_for_edges = True
        return True

    def __gt__(self, other: object) -> bool:
        is_asked = type(other) is int and other == 0 and self.kind == NUM_EDGES
        return self._are_there() if is_asked else self._refuse()

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        if isinstance(other, Rows):
            if self.kind != other.kind:
                # of two kinds there may be as many
                self._refuse()
            remaking = REMAKING.get()
            return remaking is None or self.kind != NUM_EDGES or remaking.are_as_many(self.counts, other.counts)
        is_asked = isinstance(other, int) and other == 0 and self.kind == NUM_EDGES
        return not self._are_there() if is_asked else self._refuse()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self._are_there() if self.kind == NUM_EDGES else self._refuse()

    def __hash__(self) -> int:
        # a dict would look for the number
        return self._refuse()


def kind_of(number: Any) -> int:
    """Of what something is the number, or the number itself where it is one like any other.

    Example:
        >>> kind_of(Rows(NUM_TARGETS)) == NUM_TARGETS, kind_of(3)
        (True, 3)
    """
    return number.kind if isinstance(number, Rows) else int(number)


def has_numbers(arguments: Any) -> bool:
    """Whether a number of rows is among arguments, in nested tuples, lists, dicts and slices.

    Example:
        >>> has_numbers(((1, slice(Rows(NUM_TARGETS))),)), has_numbers([NUM_TARGETS])
        (True, False)
    """
    if isinstance(arguments, slice):
        return has_numbers((arguments.start, arguments.stop, arguments.step))
    if isinstance(arguments, dict):
        return has_numbers([*arguments.values()])
    return isinstance(arguments, Rows) or (isinstance(arguments, (tuple, list)) and any(map(has_numbers, arguments)))


def rows_of(sizes: Sequence[int | None], source_dim: int) -> tuple[Rows | None, ...]:
    """The argument ``size`` of a message: numbers of sources and targets in the order of `sizes`, where there are any.

    Args:
        sizes: The numbers.
        source_dim: Which of them is that of sources.
    """
    kinds = (NUM_SOURCES if k == source_dim else NUM_TARGETS for k in range(2))
    return tuple([None if size is None else Rows(kind) for size, kind in zip(sizes, kinds, strict=True)])
