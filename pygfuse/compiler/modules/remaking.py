"""Edges that a module makes anew of those of a call, and values of edges that it makes of these, by functions of torch.

A mask that chooses edges, both directions of each, self-loops behind them, ``edge_index[0] < edge_index[1]``: no form
is searched for. What such functions are given is recorded, each call computes them as they are written, and the plan is
along the edges by whose ends the module gathers. So nothing is assumed of what they give but what a call can check.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from pygfuse.compiler.capture.surroundings import is_constant
from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.structure import is_structure, rebuilt
from pygfuse.compiler.ir.values import (
    EDGE,
    OF_ALL_EDGES,
    SHARED,
    SOURCE,
    TARGET,
    Node,
    found_in,
    in_order,
    leaf,
    mapped,
)
from pygfuse.compiler.made_edges.examples import EXAMPLE_NODES, brought_edges, example_numbers, on_examples
from pygfuse.compiler.made_edges.moved_edges import NO_ENDS, Ends, ends_of
from pygfuse.compiler.made_edges.remade import GIVEN_EDGES, Made, OtherEdges, Remade, Run, both_ends, wholes_of
from pygfuse.compiler.made_edges.sets_of_edges import sets_apart
from pygfuse.compiler.modules.written_arguments import WrittenArguments
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols import beside_edges
from pygfuse.compiler.symbols.edge_tensors import MadeOfEdges, OfEdges
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, NUM_SOURCES, NUM_TARGETS, OF_NODES, Rows
from pygfuse.compiler.symbols.places import EdgeIndexRows, Place
from pygfuse.compiler.symbols.symbol import Symbol

SEVERAL = 'it reads several sets of edges'
_INDICES = torch.int64, torch.int32
_OF_NODES = 'functions of edges and of values of nodes'
_OF_ALL_NODES = 'of_nodes', 'over_nodes'


class Remaking:
    """Records what a module makes of the edges of a call while it is captured.

    Args:
        prototype: What stands for the edges of a call, without what makes them.
        device: Where the tensors of the call are; an attribute, too.
        run: What the call makes that the code is captured for.
        others: The names of further arguments that are edges, and of values of these.
        reads_several: Whether it may read several sets of edges (`pygfuse.compiler.made_edges.sets_of_edges`).

    Attributes:
        edges: What stands for the edges of a call.
        others: What brings those of further arguments, by name.
        copies: The dimensions before those of nodes and edges, where a call has several copies of these.
        numbers: What the code has read as numbers, by what makes them.
        meets_several: Whether it has read several sets of edges, where it may not.
        asks_for_edges: Whether it has asked whether there are any.
        written: The arguments that the code writes into.
        for_layers: What makes arguments of layers within the module that are no values of a plan, by name.
    """

    copies: tuple[int, ...] = ()

    def __init__(
        self,
        prototype: EdgeIndexRows,
        device: torch.device,
        run: Run,
        others: Mapping[str, Collection[str]],
        reads_several: bool = False,
    ) -> None:
        self._given = brought_edges(GIVEN_EDGES, run.edge_index)
        self.others = {name: brought_edges(OtherEdges(name), run.others[name]) for name in others}
        self._of_others = {value: name for name, values in others.items() for value in values}
        self.edges = dataclasses.replace(prototype, made=self._given)
        self.device = device
        self.reads_several, self.meets_several, self.asks_for_edges = reads_several, False, False
        self.numbers: dict[Made, int | bool] = {}
        self.written = WrittenArguments({})
        self.for_layers: dict[str, Made] = {}
        self._run = run
        self._known: dict[Any, Any] = {}
        self._read: dict[int, Made] = {}
        self._values: dict[str, tuple[Made, Node]] = {}

    # What is read

    def reads(self, is_target: bool, made: Made) -> None:
        """Notes that edges are read whose ends these are.

        Raises:
            Refused: If others have been.
        """
        row = self.edges.target_row if is_target else 1 - self.edges.target_row
        if self._read.setdefault(row, made) is made or self.reads_several:
            return
        self._meet_several()

    def read_at(self, row: int) -> Made:
        """The ends of edges that have been read in a row; those of the call if none have."""
        return self._read.get(row, self._given.row_of(row))

    def largest_at(self, numbers: Symbol, ends: Made) -> int:
        """The largest of the numbers that nodes at the ends of edges have, of which the plan is one for this number."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            given = _largest_of, (self.of_value(numbers, may_be_of_nodes=True), ends)
            return self._read_number(self._brought(given, *given, on_examples(*given)))

    def _meet_several(self) -> NoReturn:
        self.meets_several = True
        raise Refused(SEVERAL)

    def remade(self, nodes: Sequence[Node], given: Collection[str]) -> Remade | None:
        """What is made for a plan; None if it is along the edges of a call, and reads nothing else of them.

        Args:
            nodes: All values that were captured.
            given: The names of values of edges that a call brings.

        Raises:
            Refused: If they are not of the edges that are read.
        """
        read = {node.attributes['source'] for node in nodes if node.op == 'input'}
        rows_of_others = {whole.row_of(row) for whole in self.others.values() for row in range(2)}
        if not read.isdisjoint(self._of_others) or not rows_of_others.isdisjoint(self._read.values()):
            self._meet_several()
        values = {name: made for name, (made, _) in self._values.items() if name in read}
        ends = self._read or {row: self._given.row_of(row) for row in range(2)}
        is_remade = any(made is not self._given.row_of(row) for row, made in ends.items())
        counted = {*ends.values(), *[whole for made in ends.values() for whole in wholes_of(made)]}
        for counts in (node.attributes.get('counts') for node in nodes):
            is_made_of = isinstance(counts, Symbol) and not (is_remade and _reads(counts.node, given))
            if not is_made_of and counts not in (None, *counted):
                raise Refused('a number of other edges than it reads')
        of_layers = [node.attributes['end'] for node in nodes if node.op == 'edges_of_layer']
        if any(made is not ends.get(made.end) for made in of_layers) or (is_remade and not read.isdisjoint(given)):
            self._meet_several()
        if not is_remade:
            return Remade((None,), values) if values else None
        return Remade((both_ends(ends),), values)

    def node_of(self, made: Made) -> Node:
        """The value of edges, or shared one, that stands for what is made in a plan."""
        for found, node in self._values.values():
            if found is made:
                return node
        if [example.shape[:1] for example in made.examples] == [(count,) for count in EXAMPLE_NODES]:
            raise Refused('values of nodes that edges alone tell')
        name = f'{len(self._values)} made of edges'
        residency = SHARED if made.is_shared else EDGE
        node = leaf(name, residency, made.shape_of_rows, made.examples[0].dtype, name)
        self._values[name] = made, node
        return node

    def shape_of(self, made: Made) -> tuple[Any, ...]:
        """The shape that the code reads of something made."""
        sizes = zip(*[example.shape for example in made.examples], strict=True)
        return tuple([few if few == many else Rows.of_edges(made) for few, many in sizes])

    def number_of(self, found: OfEdges | Symbol, refusal: str) -> int | bool:
        """The number that integers or truth values of a call tell, of which the plan is one for this number.

        Args:
            found: What holds it.
            refusal: Why the code has no form if it is none.

        Raises:
            Refused: If it is a floating number, or computed of values of edges that nodes decide.
        """
        with torch._C.DisableTorchFunction(), torch.no_grad():
            try:
                made = self.said(found) if isinstance(found, OfEdges) else self.of_value(found, may_be_of_nodes=True)
            except Refused as error:
                raise Refused(refusal) from error
            example = made.examples[0]
            is_number = example.numel() == 1 and not (example.dtype.is_floating_point or example.dtype.is_complex)
            if not is_number or made.is_drawn:
                raise Refused(refusal)
            return self._read_number(made)

    @property
    def num_nodes(self) -> int | None:
        """The number of nodes of the call; None if there are two sets."""
        return None if self.edges.of_two_sets else self._run.num_targets

    def fix_nodes(self) -> None:
        """Notes that the plan is for as many nodes as the call has."""
        self._read_number(self._number(Rows(NUM_TARGETS)))

    def _read_number(self, made: Made) -> int | bool:
        return self.numbers.setdefault(made, self._run.number(made))

    def are_as_many(self, one: Any, other: Any) -> bool:
        """Whether two tensors count as many edges: what makes each, or its symbol.

        Raises:
            Refused: If they are other edges, of which there may be as many or not.
        """
        if one is not other and not (self._counts_given(one) and self._counts_given(other)):
            raise Refused('it compares numbers of different edges')
        return True

    def _counts_given(self, counts: Any) -> bool:
        """Whether a tensor counts the edges of the call."""
        own = self._given, *[self._given.row_of(row) for row in range(2)]
        if not isinstance(counts, Symbol):
            return counts in own
        named = {node.attributes['source'] for node in in_order(counts.node) if node.op == 'input'}
        counted = [node.attributes.get('counts') for node in in_order(counts.node)]
        are_given = named.isdisjoint({*self._values, *self._of_others})
        is_read = are_given and all(made in own for made in self._read.values())
        return is_read and all(self._counts_given(one) for one in counted if one is not None)

    def sets_apart(self, output: Node) -> tuple[Node, Remade]:
        """What was captured with the sets of edges that it reads told apart, and what each call makes of its edges.

        Raises:
            Refused: If a value is of several of them.
        """
        wholes = [self._given, *self.others.values()]
        of_values = {name: self.others[of] for name, of in self._of_others.items()}
        return sets_apart(output, wholes, of_values, {name: made for name, (made, _) in self._values.items()})

    # What is recorded

    def check_alone(self, name: str, args: tuple, kwargs: dict[str, Any]) -> None:
        """Checks a function of values that has a handler."""

    def record(self, function: Callable, args: Any, kwargs: Mapping[str, Any], is_drawn: bool = False) -> Any:
        """Records a function of what edges tell, of values of edges that a call brings, and of numbers.

        Args:
            function, args, kwargs: The function, and what it is given.
            is_drawn: Whether it draws numbers, others each time.

        Raises:
            Refused: If it is given anything else, writes into a tensor, or gives no tensors.
        """
        name = function.__name__
        writes = (name.endswith('_') and not name.endswith('__')) or kwargs.get('out') is not None
        if writes or kwargs.get('inplace') or name == '__setitem__':
            raise Refused(f'{name} writes into a tensor')
        new = beside_edges.new_of_nodes(function, args, kwargs)
        if new is not None:
            return new
        # examples are tensors, which nobody records
        with torch._C.DisableTorchFunction():
            said = tuple([self.said(item) for item in args])
            keywords = tuple([(key, self.said(item)) for key, item in kwargs.items()])
            found = self._recorded(function, said, keywords, object() if is_drawn else None)
        for symbol in found_in(Symbol, (args, kwargs)):
            # what is made of it may be a view
            symbol.is_given = True
            self.written.forbid(symbol)
        return found

    record_beside_values = staticmethod(beside_edges.record_beside_values)
    with_nodes = staticmethod(beside_edges.with_nodes)
    as_written = staticmethod(beside_edges.as_written)

    def _recorded(self, function: Callable, args: tuple, keywords: tuple, draw: object | None) -> Any:
        few, many = on_examples(function, args, keywords)
        key = function, _key(args), _key(keywords), torch.is_grad_enabled(), draw
        is_drawn = draw is not None or any(one.is_drawn for one in found_in(Made, (args, keywords)))
        if isinstance(few, Tensor):
            return self._result(key, (function, args, keywords), (few, many), ends_of(function, args), is_drawn)
        if not isinstance(few, (tuple, list)) or not all(part is None or isinstance(part, Tensor) for part in few):
            raise Refused(f'{function.__name__} of edges gives a {type(few).__name__}')
        several = Made(function, args, keywords, examples=(few, many), is_drawn=is_drawn)
        several = self._known.setdefault(key, several)
        found: list[OfEdges | None] = []
        ends = ends_of(function, args)
        for k, pair in enumerate(zip(few, many, strict=True)):
            part = operator.getitem, (several, k), ()
            found.append(None if pair[0] is None else self._result((key, k), part, pair, ends, is_drawn))
        # of some the parts have names
        return type(few)(found)

    def _result(self, key: Any, given: tuple, examples: tuple[Tensor, Tensor], ends: Ends, is_drawn: bool) -> OfEdges:
        """What stands for a result: for ends of edges, edges, or neither."""
        few, many = examples
        row, is_whole = ends if few.dtype in _INDICES else NO_ENDS
        end = row if few.dim() == 1 else None
        kinds = {'end': end, 'is_whole': is_whole, 'is_drawn': is_drawn}
        made = Made(*given, not torch.is_grad_enabled(), examples=examples, **kinds)
        made = self._known.setdefault(key, made)
        if end is not None:
            return self.edges.end(end, made)
        if few.dim() == 2 and few.shape[0] == many.shape[0] == 2 and is_whole:
            return dataclasses.replace(self.edges, made=made)
        return MadeOfEdges(made)

    def said(self, item: Any) -> Any:
        """What makes an argument in each call; of a constant itself.

        Raises:
            Refused: If it is no function of what the edges tell.
        """
        if isinstance(item, OfEdges):
            if item.made is None or (isinstance(item, Place) and item.inner):
                raise Refused('it reads the edges themselves')
            return item.made
        if isinstance(item, Rows):
            return self._number(item)
        if isinstance(item, Symbol):
            return self.of_value(item)
        if is_structure(item):
            return rebuilt(item, self.said)
        if is_constant(item) or item is Ellipsis or isinstance(item, torch.device):
            return item
        raise Refused(f'functions of edges and of a {type(item).__name__}')

    def _number(self, rows: Rows) -> Made:
        """A number of nodes or edges."""
        if rows.kind == NUM_EDGES and rows.counts is not None:
            counted = self.of_value(rows.counts) if isinstance(rows.counts, Symbol) else rows.counts
            given = Tensor.size, (counted, counted.dim_of_edges)
            return self._brought(('size', counted), *given, on_examples(*given))
        if rows.kind not in OF_NODES:
            raise Refused('functions of edges and of a number of rows')
        return self._brought(rows.kind, None, (rows.kind,), EXAMPLE_NODES)

    def of_value(self, symbol: Symbol, may_be_of_nodes: bool = False) -> Made:
        """A value of edges that the call brings, or is computed of such; of nodes where that is allowed."""
        if symbol.is_stacked or symbol.is_changed:
            raise Refused('functions of edges and of several values in one tensor')
        found: dict[int, Made] = {}
        for node in in_order(symbol.node):
            if not may_be_of_nodes and (node.op in _OF_ALL_NODES or _is_of_nodes(node)):
                raise Refused(_OF_NODES)
            found[id(node)] = self._of_node(node, symbol.rows, lambda parent: found[id(parent)])
        return found[id(symbol.node)]

    def _of_node(self, node: Node, rows: int | None, made_of: Callable[[Node], Made]) -> Made:
        """One of the values that it is computed of, whose first dimension counts these rows."""
        if node.op == 'filled':
            of_nodes = Rows(NUM_SOURCES if node.residency == SOURCE else NUM_TARGETS)
            count = self._number(Rows.of_edges(node.attributes.get('counts')) if rows == NUM_EDGES else of_nodes)
            given = torch.full, ((count, *node.shape), node.attributes['number'])
            keywords = ('dtype', node.dtype), ('device', self.device)
            return self._brought(node, *given, on_examples(*given, keywords), keywords)
        if node.op == 'input':
            if node.attributes['source'] in self._values:
                return self._values[node.attributes['source']][0]
            return self._brought(node, None, (node,), [example_numbers(node, k) for k in range(2)])
        operation = OPERATIONS.get(node.op)
        is_known = operation is not None and (operation.residency is None or node.op in _OF_ALL_NODES)
        if not is_known or node.op in (*OF_ALL_EDGES, 'dropout') or _mixes(node):
            raise Refused(_OF_NODES)
        given, keywords = (operation.run, mapped(node.args, made_of)), tuple(node.attributes.items())
        return self._brought(node, *given, on_examples(*given, keywords), keywords)

    def _brought(
        self, key: Any, function: Callable | None, args: tuple, examples: Sequence[Any], keywords: tuple = ()
    ) -> Made:
        made = Made(function, args, keywords, examples=tuple(examples))
        return self._known.setdefault(key, made)


def _largest_of(numbers: Tensor, ends: Tensor) -> Tensor:
    return numbers.index_select(0, ends).max()


def _reads(node: Node, names: Collection[str]) -> bool:
    """Whether a value is computed of what has one of these names."""
    return any(one.op == 'input' and one.attributes['source'] in names for one in in_order(node))


def _is_of_nodes(node: Node) -> bool:
    return node.op == 'input' and node.residency in (SOURCE, TARGET)


def _mixes(node: Node) -> bool:
    """Whether it is of edges, and computed of values of nodes."""
    return node.residency == EDGE and any(parent.residency in (SOURCE, TARGET) for parent in node.parents())


def _key(item: Any) -> Any:
    """What tells arguments apart."""
    if isinstance(item, (tuple, list)):
        return tuple([_key(part) for part in item])
    if isinstance(item, slice):
        return 'slice', _key((item.start, item.stop, item.step))
    # 1 and True are the same otherwise
    return item if isinstance(item, Made) else (type(item), item)
