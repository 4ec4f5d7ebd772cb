"""A call of a module that gathers along edges itself: which of its arguments are the edges, of nodes and of edges."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.nn import Embedding, Module, Parameter

from pygfuse.compiler import Given, Refused
from pygfuse.compiler.made_edges.remade import OtherEdges, Run
from pygfuse.compiler.modules.captured_module import COLUMNS, EDGES, OF_MODULE, ROWS, NumNodes
from pygfuse.compiler.modules.data_objects import Absent, Fields
from pygfuse.compiler.modules.sparse_matrices import is_of_matrix
from pygfuse.compiler.symbols.copies import NO_COPIES, OfSeveral
from pygfuse.compiler.symbols.numbers_of_rows import NUM_TARGETS, Rows
from pygfuse.conv._compiled.call import SIMPLE
from pygfuse.conv._layer import fallback
from pygfuse.conv._modules.copies_of_nodes import edges_of_copies, of_all_copies, of_one_copy, of_several
from pygfuse.conv._modules.edge_columns import rows_of_columns
from pygfuse.conv._modules.edges_by_name import (
    are_columns,
    are_edges,
    are_other_edges,
    are_said,
    names_of_edges,
    signature_of,
)
from pygfuse.conv._modules.held_by_name import NOTHING_READ, Read, opened
from pygfuse.conv._modules.held_edges import held_edges
from pygfuse.conv._modules.matrix_arguments import sizes_of_matrix

_ANY = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


NO_EDGES = 'there are no edges'
# the name of a number of nodes that no argument tells
HELD = 'number of nodes'
# that of what has several copies
COPIES = 'copies'
# which of the numbers of nodes of a call each row of its edges names; one, if both name the same nodes
Sets = tuple[int, ...]
ONE_SET: Sets = (0,)
TWO_SETS: tuple[Sets, ...] = (0, 1), (1, 0)
# where no argument tells a number, and that of all embeddings may be it
ALL_EMBEDDED: Sets = (1,)
# all of them in the order in which they are tried
ALL_SETS: tuple[Sets, ...] = ONE_SET, *TWO_SETS, ALL_EMBEDDED


class ModuleCall(NamedTuple):
    """A call of a module.

    Attributes:
        names: The name of the edges, or of their rows.
        edge_index: The edges.
        num_nodes: Numbers of the nodes that each row of the edges names; one, if these are the same nodes.
        nested: The arguments as the compiler takes them, by name.
        given: The same, those within others by their places or names.
        arguments: What was given under these names, and the objects that hold some of it.
        objects: The objects that are arguments, as `nested` has them.
        counts: All numbers of rows that may be numbers of nodes.
        others: Edges that further arguments are, by name.
        copies: What has several copies of the nodes; all else is that of all copies then.
    """

    names: tuple[str, ...]
    edge_index: Tensor
    num_nodes: tuple[int, ...]
    nested: dict[str, Any]
    given: dict[str, Any]
    arguments: dict[str, Any]
    objects: dict[str, Fields]
    counts: list[int]
    others: dict[str, Tensor]
    copies: OfSeveral = NO_COPIES

    @property
    def num_edges(self) -> int:
        """The number of all its edges."""
        return sum(one.shape[1] for one in (self.edge_index, *self.others.values()))

    @property
    def num_edges_held(self) -> int | None:
        """The number of the edges that the module holds, and values of them perhaps; None if it is given them."""
        return self.edge_index.shape[1] if self.names[0].startswith(OF_MODULE) else None

    @property
    def is_of_a_matrix(self) -> bool:
        """Whether its edges are the entries of a sparse matrix."""
        return bool(sizes_of_matrix(self.names[0], self.arguments))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {name: item.value for name, item in self.given.items() if isinstance(item, Given)}

    @property
    def is_told(self) -> bool:
        """Whether its arguments tell the number of nodes."""
        return HELD not in self.given

    def sizes(self, target_row: int) -> tuple[int, int]:
        """Numbers of sources and targets, which this row of the edges names."""
        return self.num_nodes[target_row - 1], self.num_nodes[-target_row]

    def run(self, target_row: int) -> Run:
        """What it makes before a plan runs, whose targets this row of the edges names."""
        return Run(self.edge_index, self.tensors, self.sizes(target_row), self.others)


def call_of(
    plain: type[Module],
    args: tuple,
    kwargs: Mapping[str, Any],
    read: Read = NOTHING_READ,
    sets: Sets = ONE_SET,
    module: Module | None = None,
    has_copies: bool = False,
) -> ModuleCall:
    """A call of a module.

    Args:
        plain: Its class.
        args: What it is called with.
        kwargs: The same by name.
        read: What the module is known to read of objects that are arguments; of one without an entry, anything.
        sets: Which nodes the rows of the edges are taken to name.
        module: The module: of what it holds a number of rows is that of the nodes, if no argument tells any, and edges
            are along which it gathers, if no argument is.
        has_copies: Whether its features are taken to have dimensions before that of nodes.

    Raises:
        Refused: If an argument has no fused form.
    """
    within: dict[str, Any] = {}
    named = {name: opened(name, item, read, within) for name, item in _by_name(plain.forward, args, kwargs).items()}
    arguments = dict(_leaves(named))
    names = names_of_edges(arguments)
    held = [] if module is None or are_said(names) else [*held_edges(module)]
    if held:
        named |= {name: opened(name, item, read, within) for name, item in held}
        arguments = dict(_leaves(named))
        names = names_of_edges({name: item for name, item in arguments.items() if name.startswith(OF_MODULE)})
    if not names:
        raise Refused('none of its arguments is an edge_index')
    edge_index = as_one(*[arguments[name] for name in names])
    others = {name: item for name, item in arguments.items() if name not in names and are_other_edges(name, item)}
    num_edges = [one.shape[1] for one in (edge_index, *others.values())]
    if not any(num_edges):
        raise Refused(NO_EDGES)
    reason = fallback.why_not_device(edge_index)
    if reason is not None:
        raise Refused(reason)
    tensors = {key: one for key, one in arguments.items() if isinstance(one, Tensor) and key not in names}
    for key, one in tensors.items():
        if type(one) not in (Tensor, Parameter) or one.device != edge_index.device:
            raise Refused(f'{key} is a {type(one).__name__} on {one.device}, where edges are on {edge_index.device}')
    copies = of_several(tensors, edge_index.shape[1]) if has_copies else NO_COPIES
    if has_copies and (others or not copies.sizes):
        raise Refused('no features of several copies of the nodes')
    of_one = of_one_copy(tensors, copies)
    of_rows = [one for key, one in of_one.items() if key not in others]
    # as many as further edges there may be nodes, too
    told = sizes_of_matrix(names[0], arguments) or nums_nodes(of_rows, *num_edges) or nums_nodes(of_rows, num_edges[0])
    nodes = told or ([] if module is None else [*rows_held(module)])
    if len(nodes) <= max(sets):
        raise Refused('nothing tells the number of nodes')
    counts = _Counts(tuple([nodes[k] for k in sets]), num_edges[0], dict(zip(others, num_edges[1:], strict=True)))
    rest = {key: of_one.get(key, item) for key, item in arguments.items() if key not in (*names, *others)}
    given = {key: _given(key, item, counts) for key, item in rest.items()}
    num_nodes = counts.nodes
    if copies.sizes:
        of_rows = [key for key, item in given.items() if isinstance(item, Given) and item.residency != 'shared']
        copies = copies._replace(names=copies.names.intersection(of_rows))
        given = {**of_all_copies(given, tensors, copies), COPIES: copies}
        count = math.prod(copies.sizes)
        edge_index = edges_of_copies(edge_index, count, num_nodes)
        num_nodes = tuple([count * nodes for nodes in num_nodes])
    # plans are for one of the numbers that may be
    given |= {} if told else {HELD: nodes[sets[0]]}
    given |= dict(zip(names, (_standing_for(arguments[names[0]]),) if len(names) == 1 else ROWS, strict=True))
    given |= {name: OtherEdges(name) for name in others}
    objects: dict[str, Fields] = {}
    nested = {key: _nested(key, item, given, objects) for key, item in named.items()}
    return ModuleCall(names, edge_index, num_nodes, nested, given, arguments | within, objects, nodes, others, copies)


class _Counts(NamedTuple):
    """How many nodes and edges there are: of nodes one number, or those of each row of the edges."""

    nodes: tuple[int, ...]
    edges: int
    others: dict[str, int]

    def row_of(self, rows: Any) -> int | None:
        """Which row names as many nodes, the first of one set; None if none does."""
        return next((k for k, count in enumerate(self.nodes) if count == rows), None)

    def others_of(self, rows: Any) -> str | None:
        """Which further edges are as many."""
        return next((name for name, count in self.others.items() if count == rows), None)


def _by_name(forward: Any, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, those by default included."""
    try:
        bound = signature_of(forward).bind(None, *args, **kwargs)
    except TypeError as error:
        raise Refused(str(error)) from None
    bound.apply_defaults()
    _, *named = bound.arguments.items()
    kinds = {one.name: one.kind for one in signature_of(forward).parameters.values()}
    others = [name for name, item in named if kinds[name] is inspect.Parameter.VAR_POSITIONAL and item]
    if others:
        raise Refused(f'its forward takes any arguments ({others[0]})')
    by_keyword = [item for name, item in named if kinds[name] is inspect.Parameter.VAR_KEYWORD]
    # what it takes by any names has those by which it is given
    found = {name: item for name, item in named if kinds[name] not in _ANY}
    return found | {name: item for items in by_keyword for name, item in items.items()}


def _leaves(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments, those within others by their places and names; two rows of indices are one."""
    for name, item in arguments.items():
        if type(item) is Fields:
            yield from _leaves({f'{name}.{key}': one for key, one in item.items.items()})
        elif type(item) in (tuple, list) and not are_edges(item):
            yield from _leaves({f'{name}.{place}': one for place, one in enumerate(item)})
        else:
            yield name, item


def _standing_for(edges: Any) -> str:
    """What stands for edges among the arguments."""
    return COLUMNS if are_columns(edges) else EDGES.get(type(edges), EDGES[Tensor])


def _nested(name: str, item: Any, found: Mapping[str, Any], objects: dict[str, Fields]) -> Any:
    """An argument with other things in the place of its leaves; what holds them by name is added to the objects."""
    if name in found:
        return found[name]
    if type(item) is Fields:
        items = {key: _nested(f'{name}.{key}', one, found, objects) for key, one in item.items.items()}
        fields = Fields(item.kind, items)
        return fields if is_of_matrix(fields) else objects.setdefault(name, fields)
    return type(item)([_nested(f'{name}.{place}', one, found, objects) for place, one in enumerate(item)])


def as_one(*edges: Any) -> Tensor:
    """Edges as one tensor."""
    edge_index = edges[0] if len(edges) == 1 else edges
    if are_columns(edge_index):
        return rows_of_columns(edge_index)
    return edge_index if isinstance(edge_index, Tensor) else torch.stack(tuple(edge_index))


def rows_held(module: Module) -> tuple[int, ...]:
    """Numbers of rows of a module's parameters, which may be those of its nodes: of the most, and of all embeddings.

    Example:
        >>> rows_held(torch.nn.ModuleList([torch.nn.Embedding(30, 4), torch.nn.Embedding(20, 4)]))
        (30, 50)
    """
    rows = [parameter.shape[0] for parameter in module.parameters() if parameter.dim() > 1]
    embedded = [part.num_embeddings for part in module.modules() if isinstance(part, Embedding)]
    return tuple(dict.fromkeys([*([max(rows)] if rows else []), *([sum(embedded)] if embedded else [])]))


def nums_nodes(tensors: Collection[Tensor], *num_edges: int) -> list[int]:
    """Numbers of rows that tensors have which are none of edges.

    Args:
        tensors: What a call brings, but for its edges.
        num_edges: Numbers of edges.

    Returns:
        First that which most tensors have, of several such that of the first feature; the same of those that are left,
        and so on.

    Example:
        >>> nums_nodes([torch.ones(9, 2), torch.ones(3, 8), torch.ones(5, 8), torch.ones(5)], 9)
        [5, 3]
    """
    # in a trace sizes are symbols, of which no more is found out than that they are the same
    others = [
        one
        for one in tensors
        if one.dim() > 0 and not any(guard_or_false(one.shape[0] == count) for count in num_edges)
    ]
    others.sort(key=lambda one: not one.is_floating_point())
    counts: list[list[int]] = []
    for one in others:
        known = next((count for count in counts if guard_or_false(count[0] == one.shape[0])), None)
        if known is None:
            counts.append([one.shape[0], 1])
        else:
            known[1] += 1
    return [rows for rows, _ in sorted(counts, key=lambda count: -count[1])]


def _given(name: str, item: Any, counts: _Counts) -> Any:
    """An argument as the compiler takes it."""
    if item is Absent:
        return item
    if isinstance(item, Tensor):
        rows = item.shape[0] if item.dim() > 0 else None
        if rows == counts.edges:
            return Given('edge', item)
        row = counts.row_of(rows)
        if row is None:
            of_edges = counts.others_of(rows)
            return Given('shared', item) if of_edges is None else Given('edge', item, of_edges=of_edges)
        return Given('target', item, is_of_all=True, of_row=row if len(counts.nodes) > 1 else None)
    if type(item) not in SIMPLE:
        raise Refused(f'{name} is a {type(item).__name__}')
    # a number of nodes may be another one in the next call
    row = counts.row_of(item) if type(item) is int else None
    return item if row is None else NumNodes(row) if len(counts.nodes) > 1 else Rows(NUM_TARGETS)
