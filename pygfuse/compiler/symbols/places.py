"""What stands for the edges themselves while a message function is captured: the ends of each, and numbers of rows."""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING, MadeOfEdges, OfEdges, recorded_of_edges
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, NUM_SOURCES, NUM_TARGETS, Rows

# why edges are reduced in vain that are reduced to others than their targets
BY_OTHERS = 'a reduction of edges by something else than their target'
# why edges that lead between two sets of nodes are read in vain
OTHER_ENDS = 'rows of nodes by the other ends of edges'


# where the tensors of a call are whose message is captured
DEVICE: contextvars.ContextVar[torch.device] = contextvars.ContextVar('pygfuse_device_of_capture')


# the size that a reduction has without one
AFTER_LAST_TARGET = OfEdges()


class Place(OfEdges):
    """The target or the source of each edge: what PyG calls ``index``, ``edge_index_i`` and ``edge_index_j``.

    Args:
        is_target: Which of the two.
        inner: The shape of numbers for each of which the end of an edge is there again.
        is_reduced_to: Whether edges may be reduced to these nodes.
        rows: What counts the nodes that it names: `NUM_TARGETS`, also of sources that are the same nodes.
        gathers_apart: Whether what is gathered of a call's nodes is another value than theirs.
        made: What makes it of the edges of a call; None where a layer reads these alone.
    """

    def __init__(
        self,
        is_target: bool,
        inner: tuple[int, ...] = (),
        is_reduced_to: bool | None = None,
        rows: int = NUM_TARGETS,
        gathers_apart: bool = False,
        made: Any = None,
    ) -> None:
        self._is_target = is_target
        self.made = made
        self.inner = inner
        self.is_reduced_to = is_target if is_reduced_to is None else is_reduced_to
        self.rows = rows
        self.gathers_apart = gathers_apart

    @property
    def is_target(self) -> bool:
        """Which end it is; who asks reads along these edges."""
        if self.made is not None:
            REMAKING.get().reads(self._is_target, self.made)
        return self._is_target

    @property
    def along(self) -> dict[str, Any]:
        """What operators along these edges are told of them, where code reads several sets of edges."""
        remaking = REMAKING.get()
        return {'end': self.made} if self.made is not None and remaking.reads_several else {}

    def of_rows(self) -> Place:
        """The same end, once for each edge."""
        return self._with(())

    def _with(self, inner: tuple[int, ...]) -> Place:
        return Place(self._is_target, inner, self.is_reduced_to, self.rows, self.gathers_apart, self.made)

    @property
    def shape(self) -> tuple[Rows | int, ...]:
        return (Rows.of_edges(self.made), *self.inner)

    @property
    def device(self) -> torch.device:
        return DEVICE.get()

    @property
    def dtype(self) -> torch.dtype:
        return _type_of(self)

    def numel(self) -> Rows:
        if self.inner:
            raise Refused('it reads the edges themselves (numel)')
        return Rows.of_edges(self.made)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return len(self.shape)

    def bincount(self, *args: Any, **kwargs: Any) -> Any:
        return torch.bincount(self, *args, **kwargs)

    def max(self) -> Any:
        return LastTarget() if self._is_target else recorded_of_edges(torch.Tensor.max, (self,), {})

    def to(self, *args: Any) -> Any:
        return _to(self, args)

    def long(self) -> Any:
        return self.to(torch.int64)

    contiguous = detach = to

    def expand_as(self, other: Any) -> Place:
        return self._seen_or_made(torch.Tensor.expand, other.shape)

    def __getitem__(self, key: Any) -> Any:
        is_view = isinstance(key, tuple) and all(part is None or is_all(part) for part in key) and key[0] is not None
        if is_view:
            return self.seen(torch.Tensor.__getitem__, key)
        remaking = REMAKING.get()
        if remaking is not None and remaking.copies:
            return remaking.lifted(torch.Tensor.__getitem__, self, key)
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        if name not in _VIEWS:
            return super().__getattr__(name)
        return lambda *args: self._seen_or_made(getattr(torch.Tensor, name), *args)

    def _seen_or_made(self, view: Callable, *args: Any) -> Any:
        try:
            return self.seen(view, *args)
        except Refused:
            if self.made is None:
                raise
        if REMAKING.get().copies:
            return REMAKING.get().lifted(view, self, *args)
        return recorded_of_edges(view, (self, *args), {})

    def seen(self, view: Callable, *args: Any) -> Place:
        """The same numbers in a view that leaves the dimension of edges where it is."""
        try:
            found = view(torch.empty((NUM_EDGES, *self.inner), device='meta'), *args)
        except (RuntimeError, IndexError, TypeError) as error:
            raise Refused(f'it reads the edges themselves ({view.__name__}: {error})') from error
        if found.shape[:1] != (NUM_EDGES,) or NUM_EDGES in found.shape[1:]:
            raise Refused(f'it reads the edges themselves ({view.__name__})')
        return self._with(tuple(found.shape[1:]))

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if len(args) == 1 and not kwargs and function is torch.max:
            return args[0].max()
        if args and isinstance(args[0], Place) and function.__name__ in _VIEWS and not kwargs:
            return getattr(args[0], function.__name__)(*args[1:])
        return super().__torch_function__(function, types, args, kwargs)


def _type_of(edges: Any) -> torch.dtype:
    """The type of edges, or of an end of each, where a module is given them; nobody asks for that of a layer's."""
    if edges.made is None:
        raise Refused('it reads the edges themselves (dtype)')
    return edges.made.examples[0].dtype


def _to(edges: Any, given: tuple) -> Any:
    """Edges, or an end of each, of another type or elsewhere."""
    own = torch.int64 if edges.made is None else edges.made.examples[0].dtype
    if all(one in (own, DEVICE.get()) for one in given):
        return edges
    if edges.made is None:
        raise Refused('it converts the ends of edges to another type')
    return recorded_of_edges(torch.Tensor.to, (edges, *given), {})


def is_all(part: Any) -> bool:
    return isinstance(part, slice) and part == slice(None)


_VIEWS = 'unsqueeze', 'view', 'reshape', 'expand', 'repeat'


class LastTarget(OfEdges):
    """The last target that has an edge: it may be asked for as the size of a reduction that ends behind it."""

    def __add__(self, other: Any) -> Any:
        return AFTER_LAST_TARGET if type(other) is int and other == 1 else self._refuse()

    __radd__ = __add__

    def item(self) -> LastTarget:
        return self

    def _refuse(self, *_: Any) -> Any:
        raise Refused('it computes with the number of the last target')

    __int__ = __index__ = __float__ = __bool__ = __sub__ = __mul__ = __eq__ = __lt__ = __gt__ = _refuse
    __hash__ = object.__hash__


@dataclasses.dataclass(frozen=True, eq=False)
class EdgeIndexRows(OfEdges):
    """The argument ``edge_index`` of a message: targets and sources of the edges, which are its rows.

    Attributes:
        target_row: The row of targets.
        to_both: Whether edges may be reduced to the nodes of both rows.
        of_two_sets: Whether sources are other nodes than targets.
        gathers_apart: Whether what is gathered of a call's nodes is another value than theirs.
        made: What makes it of the edges of a call; None where a layer reads these alone.
        kind: The class of what it stands for: a tensor, or a tuple or a list of two rows.
    """

    target_row: int
    to_both: bool = False
    of_two_sets: bool = False
    gathers_apart: bool = False
    made: Any = None
    kind: type = torch.Tensor

    @property
    def shape(self) -> tuple[int, Rows]:
        return 2, Rows.of_edges(self.made)

    @property
    def device(self) -> torch.device:
        return DEVICE.get()

    @property
    def dtype(self) -> torch.dtype:
        return _type_of(self)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return 2

    def numel(self) -> Rows:
        return Rows.of_edges(self.made)

    def to(self, *args: Any) -> Any:
        return _to(self, args)

    def long(self) -> Any:
        return self.to(torch.int64)

    contiguous = detach = to

    def t(self) -> EdgeColumns:
        return EdgeColumns(recorded_of_edges(torch.Tensor.t, (self,), {}).made, self)

    @property
    def T(self) -> EdgeColumns:
        return self.t()

    def unbind(self, dim: int = 0) -> tuple[Place, Place]:
        if dim not in (0, -2):
            raise Refused('it reads the edges themselves (unbind)')
        return self[0], self[1]

    def __iter__(self) -> Iterator[Place]:
        return iter(self.unbind())

    def __len__(self) -> int:
        return 2

    def __getitem__(self, key: Any) -> Any:
        row, *others = key if isinstance(key, tuple) else (key,)
        is_row = type(row) is int and -2 <= row < 2
        if is_row and all(is_all(part) for part in others) and len(others) < 2:
            return self.end(row % 2, None if self.made is None else self.made.row_of(row % 2))
        return super().__getitem__(key)

    def end(self, row: int, made: Any) -> Place:
        """The ends of the edges in a row.

        Args:
            row: The row.
            made: What makes them.
        """
        is_target = row == self.target_row
        rows = NUM_SOURCES if self.of_two_sets and not is_target else NUM_TARGETS
        return Place(is_target, (), True if self.to_both else None, rows, self.gathers_apart, made)


class EdgeColumns(MadeOfEdges):
    """Edges with a row for each, ``edge_index.t()``.

    Args:
        made: What makes them.
        rows: The same as two rows.
    """

    def __init__(self, made: Any, rows: EdgeIndexRows) -> None:
        super().__init__(made)
        self.rows = rows

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.rows.shape[::-1]

    def t(self) -> EdgeIndexRows:
        return self.rows

    T = property(t)

    def to(self, *args: Any) -> Any:
        return self.rows.to(*args).t()

    def long(self) -> Any:
        return self.to(torch.int64)

    contiguous = detach = to

    def unbind(self, dim: int = 0) -> Any:
        return self.rows.unbind() if dim in (1, -1) else recorded_of_edges(torch.Tensor.unbind, (self, dim), {})

    def __getitem__(self, key: Any) -> Any:
        is_column = isinstance(key, tuple) and len(key) == 2 and is_all(key[0]) and type(key[1]) is int
        return self.rows[key[1]] if is_column else super().__getitem__(key)
