"""What stands for the edges themselves while a message function is captured: the ends of each, and numbers of rows."""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from pygfuse.compiler.refusal import Refused

# rows of edges, of targets, of sources and of a result of another size: numbers that no width of features has
NUM_EDGES, NUM_TARGETS, NUM_SOURCES, NUM_OTHERS = 10007, 10009, 10037, 10039
# why edges that lead between two sets of nodes are read in vain
OTHER_ENDS = 'rows of nodes by the other ends of edges'
# those of nodes
OF_NODES = NUM_TARGETS, NUM_SOURCES


class Rows(int):
    """A number of edges or nodes: it may stand where a shape is asked for, and must not be computed with."""

    def _refuse(self, *_: Any) -> Any:
        raise Refused('it computes with the number of edges or nodes')

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __float__ = _refuse
    __lt__ = __le__ = __ge__ = _refuse

    def __gt__(self, other: object) -> bool:
        # a call without edges never comes here
        return True if type(other) is int and other == 0 and int(self) == NUM_EDGES else self._refuse()

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        if isinstance(other, Rows):
            # of two kinds there may be as many
            return True if int(self) == int(other) else self._refuse()
        # a call without edges never comes here
        return False if isinstance(other, int) and other == 0 and int(self) == NUM_EDGES else self._refuse()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return True if int(self) == NUM_EDGES else self._refuse()

    __hash__ = int.__hash__


def rows_of(sizes: Sequence[int | None], source_dim: int) -> tuple[Rows | None, ...]:
    """The argument ``size`` of a message: numbers of sources and targets in the order of `sizes`, where there are any.

    Args:
        sizes: The numbers.
        source_dim: Which of them is that of sources.
    """
    kinds = (NUM_SOURCES if k == source_dim else NUM_TARGETS for k in range(2))
    return tuple([None if size is None else Rows(kind) for size, kind in zip(sizes, kinds, strict=True)])


# where the tensors of a call are whose message is captured
DEVICE: contextvars.ContextVar[torch.device] = contextvars.ContextVar('pygfuse_device_of_capture')


class OfEdges:
    """What only the edges themselves tell, of which nothing is read but what a class says."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        raise Refused(f'it reads the edges themselves ({name})')

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Refused(f'it reads the edges themselves ({function.__name__})')


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
    """

    def __init__(
        self,
        is_target: bool,
        inner: tuple[int, ...] = (),
        is_reduced_to: bool | None = None,
        rows: int = NUM_TARGETS,
        gathers_apart: bool = False,
    ) -> None:
        self.is_target = is_target
        self.inner = inner
        self.is_reduced_to = is_target if is_reduced_to is None else is_reduced_to
        self.rows = rows
        self.gathers_apart = gathers_apart

    def of_rows(self) -> Place:
        """The same end, once for each edge."""
        return self._with(())

    def _with(self, inner: tuple[int, ...]) -> Place:
        return Place(self.is_target, inner, self.is_reduced_to, self.rows, self.gathers_apart)

    @property
    def shape(self) -> tuple[Rows | int, ...]:
        return (Rows(NUM_EDGES), *self.inner)

    @property
    def device(self) -> torch.device:
        return DEVICE.get()

    def numel(self) -> Rows:
        if self.inner:
            raise Refused('it reads the edges themselves (numel)')
        return Rows(NUM_EDGES)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return len(self.shape)

    def bincount(self, *args: Any, **kwargs: Any) -> Any:
        return torch.bincount(self, *args, **kwargs)

    def max(self) -> LastTarget:
        if not self.is_target:
            raise Refused('it reads the edges themselves (max)')
        return LastTarget()

    def long(self) -> Place:
        return self

    def to(self, *args: Any) -> Place:
        if any(one not in (torch.int64, DEVICE.get()) for one in args):
            raise Refused('it converts the ends of edges to another type')
        return self

    def expand_as(self, other: Any) -> Place:
        return self.seen(torch.Tensor.expand, other.shape)

    def __getitem__(self, key: Any) -> Place:
        if not isinstance(key, tuple) or any(part not in (None, slice(None)) for part in key) or key[0] is None:
            raise Refused('it reads the edges themselves')
        return self.seen(torch.Tensor.__getitem__, key)

    def __getattr__(self, name: str) -> Any:
        if name not in _VIEWS:
            return super().__getattr__(name)
        return lambda *args: self.seen(getattr(torch.Tensor, name), *args)

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
        if args and isinstance(args[0], Place) and function.__name__ in _VIEWS and not kwargs:
            return getattr(args[0], function.__name__)(*args[1:])
        return super().__torch_function__(function, types, args, kwargs)


_VIEWS = 'unsqueeze', 'view', 'reshape', 'expand', 'repeat'


class LastTarget(OfEdges):
    """The last target that has an edge: it may be asked for as the size of a reduction that ends behind it."""

    def __add__(self, other: Any) -> Any:
        return AFTER_LAST_TARGET if type(other) is int and other == 1 else self._refuse()

    __radd__ = __add__

    def _refuse(self, *_: Any) -> Any:
        raise Refused('it computes with the number of the last target')

    __int__ = __index__ = __float__ = __bool__ = __sub__ = __mul__ = __eq__ = __lt__ = __gt__ = _refuse
    __hash__ = object.__hash__


class Remaking:
    """How a module makes edges anew before it reads them.

    Attributes:
        steps: What does.
        read: After how many of them it has read the edges; None before it has.
    """

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.read: int | None = None

    def reads(self, version: int) -> None:
        """Notes that it reads them after so many steps."""
        if self.read not in (None, version) or version != len(self.steps):
            raise Refused('edges before and after they are made anew')
        self.read = version


@dataclasses.dataclass(frozen=True)
class EdgeIndexRows(OfEdges):
    """The argument ``edge_index`` of a message: targets and sources of the edges, which are its rows.

    Attributes:
        target_row: The row of targets.
        to_both: Whether edges may be reduced to the nodes of both rows.
        of_two_sets: Whether sources are other nodes than targets.
        gathers_apart: Whether what is gathered of a call's nodes is another value than theirs.
        remaking: How they are made anew, if they may be.
        version: After how many steps they are these.
    """

    target_row: int
    to_both: bool = False
    of_two_sets: bool = False
    gathers_apart: bool = False
    remaking: Remaking | None = None
    version: int = 0

    def _read(self) -> None:
        if self.remaking is not None:
            self.remaking.reads(self.version)

    @property
    def shape(self) -> tuple[int, Rows]:
        self._read()
        return 2, Rows(NUM_EDGES)

    @property
    def device(self) -> torch.device:
        return DEVICE.get()

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return 2

    def numel(self) -> Rows:
        self._read()
        return Rows(NUM_EDGES)

    def unbind(self, dim: int = 0) -> tuple[Place, Place]:
        if dim not in (0, -2):
            raise Refused('it reads the edges themselves (unbind)')
        return self[0], self[1]

    def __iter__(self) -> Iterator[Place]:
        return iter(self.unbind())

    def __len__(self) -> int:
        return 2

    def __getitem__(self, key: Any) -> Place:
        row, *others = key if isinstance(key, tuple) else (key,)
        if type(row) is not int or not -2 <= row < 2 or others not in ([], [slice(None)]):
            raise Refused('it reads the edges themselves')
        self._read()
        is_target = row % 2 == self.target_row
        rows = NUM_SOURCES if self.of_two_sets and not is_target else NUM_TARGETS
        return Place(is_target, (), True if self.to_both else None, rows, self.gathers_apart)
