"""What each call makes of its edges before a plan runs: tensors that were recorded when a module was captured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import Node, of_input
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.numbers_of_rows import NUM_SOURCES, NUM_TARGETS

# what says that the edges of a call are meant
GIVEN_EDGES = 'edges'


@dataclasses.dataclass(frozen=True)
class OtherEdges:
    """Says that edges are meant which a call brings in a further argument.

    Attributes:
        name: Its name.
    """

    name: str


@dataclasses.dataclass(frozen=True, eq=False)
class Made:
    """A tensor that a function makes in each call.

    Attributes:
        function: The function; None of what a call brings.
        args: What it is given: `Made`, numbers, and tuples of such; what a call brings: `GIVEN_EDGES`, `OtherEdges`, a
            value of edges, or a number that stands for one of nodes.
        keywords: The same by name.
        is_detached: Whether no gradient goes back through it.
        examples: What it is of some edges, and of more.
        end: The row of the edges whose ends it holds, or others in their place; None of anything else.
        is_whole: Whether both rows are in it.
        is_drawn: Whether numbers decide it that are drawn in each call.
    """

    function: Callable | None
    args: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()
    is_detached: bool = False
    examples: tuple[Any, Any] = dataclasses.field(repr=False, kw_only=True)
    end: int | None = dataclasses.field(default=None, kw_only=True)
    is_whole: bool = dataclasses.field(default=False, kw_only=True)
    is_drawn: bool = dataclasses.field(default=False, kw_only=True)
    _rows: dict[int, Made] = dataclasses.field(default_factory=dict, repr=False, init=False)

    def row_of(self, row: int) -> Made:
        """A row of edges: always the same."""
        if row not in self._rows:
            few, many = self.examples
            self._rows[row] = Made(
                Tensor.__getitem__, (self, row), examples=(few[row], many[row]), end=row, is_drawn=self.is_drawn
            )
        return self._rows[row]

    @property
    def is_shared(self) -> bool:
        """Whether it is of no edges: as large for more of them."""
        few, many = self.examples
        return few.shape == many.shape and (few.dim() == 0 or few.shape[0] > 0)

    @property
    def dim_of_edges(self) -> int:
        """The dimension that counts edges."""
        few, many = self.examples
        return next((dim for dim in range(few.dim()) if few.shape[dim] != many.shape[dim]), 0)

    @property
    def shape_of_rows(self) -> tuple[int, ...]:
        """The shape of a row, or of what is shared."""
        return tuple(self.examples[0].shape)[not self.is_shared :]


def wholes_of(made: Made) -> Iterator[Made]:
    """The edges of which something is a row."""
    yield from (one for one in made.args[:1] if isinstance(one, Made) and one.is_whole and one.row_of(made.end) is made)


def both_ends(ends: Mapping[int, Made]) -> tuple[Made, ...]:
    """The ends of edges by row, with what may stand for a row that nothing reads."""
    (some, *_) = ends.values()
    beside = [next((whole.row_of(row) for whole in wholes_of(some)), some) for row in range(2)]
    return tuple([ends.get(row, other) for row, other in enumerate(beside)])


@dataclasses.dataclass(frozen=True)
class Remade:
    """What a plan is along, and reads, in place of the edges of a call.

    Attributes:
        sets: What makes the rows of the edges, of each set of edges, or brings both; None if these are the call's own.
        values: What makes values of edges, by the names under which the plan reads them.
        set_of: Of which set of edges each of these is, if it is not the first.
    """

    sets: tuple[tuple[Made, ...] | Made | None, ...]
    values: Mapping[str, Made]
    set_of: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def of_call(self, run: Run) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The edges of each set, and the tensors of a call with what is made.

        Args:
            run: What the call makes.

        Raises:
            Refused: If what is made are not as many ends, and values, as there are edges.
        """
        sets = [_edges_of(run, one) for one in self.sets]
        values = {name: run.made(one) for name, one in self.values.items()}
        for name, one in self.values.items():
            num_edges = sets[self.set_of.get(name, 0)].shape[1:]
            wanted = (*(() if one.is_shared else num_edges), *one.shape_of_rows)
            if values[name].shape != wanted or values[name].dtype != one.examples[0].dtype:
                raise Refused('values of edges that are not as many as these')
        return sets, {**run.given, **values}


def _edges_of(run: Run, made: tuple[Made, ...] | Made | None) -> Tensor:
    if isinstance(made, Made):
        return run.made(made)
    return run.edge_index if made is None else _as_edges([run.made(end) for end in made])


def _as_edges(rows: Sequence[Tensor]) -> Tensor:
    if rows[0].shape != rows[1].shape or rows[0].dtype != rows[1].dtype:
        raise Refused('ends of edges that are not as many')
    return torch.stack(tuple(rows))


class Run:
    """What a call makes, each once.

    Args:
        edge_index: The edges of the call.
        given: Its tensors by name.
        sizes: Numbers of sources and targets.
        others: The edges that further arguments are, by name.
    """

    def __init__(
        self,
        edge_index: Tensor,
        given: Mapping[str, Tensor],
        sizes: tuple[int, int],
        others: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.edge_index, self.given, self.others = edge_index, given, others or {}
        self._sizes = sizes
        self._numbers = dict(zip((NUM_SOURCES, NUM_TARGETS), sizes, strict=True))
        self._known: dict[Any, Any] = {}

    def with_tensors(self, function: Callable[[Tensor], Tensor]) -> Run:
        """What a call makes that has other tensors: those that a function gives of these."""
        given, others = ({name: function(one) for name, one in held.items()} for held in (self.given, self.others))
        return Run(function(self.edge_index), given, self._sizes, others)

    def made(self, one: Made) -> Any:
        """Something that is made.

        Raises:
            Refused: If it cannot be made; the code that was written says why.
        """
        if one not in self._known:
            try:
                found = self._brought(*one.args) if one.function is None else self._result(one)
            except Refused:
                raise
            except Exception as error:
                raise Refused(f'{one.function.__name__} of edges: {error}') from error
            self._known[one] = found.detach() if one.is_detached else found
        return self._known[one]

    @property
    def num_targets(self) -> int:
        return self._numbers[NUM_TARGETS]

    def number(self, one: Made) -> int | bool:
        """The number that something is, or holds."""
        found = self.made(one)
        return found.item() if isinstance(found, Tensor) else found

    def _result(self, one: Made) -> Any:
        args, keywords = rebuilt((one.args, dict(one.keywords)), self._argument)
        return one.function(*args, **keywords)

    def _argument(self, item: Any) -> Any:
        return self.made(item) if isinstance(item, Made) else item

    def _brought(self, what: Any) -> Any:
        if isinstance(what, Node):
            return of_input(what, self.given)
        if isinstance(what, OtherEdges):
            return self.others[what.name]
        return self.edge_index if what is GIVEN_EDGES else self._numbers[what]
