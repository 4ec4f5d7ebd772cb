"""A call of a module that gathers along edges itself: which of its arguments are the edges, of nodes and of edges."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.nn import Embedding, Module, Parameter

from pygfuse.compiler import Given, Refused
from pygfuse.compiler.copies import NO_COPIES, OfSeveral
from pygfuse.compiler.data_objects import Absent, Fields
from pygfuse.compiler.modules import EDGES, ROWS, NumNodes
from pygfuse.compiler.places import NUM_TARGETS, Rows
from pygfuse.compiler.remade import OtherEdges, Run
from pygfuse.conv import _fallback as fallback
from pygfuse.conv._call import SIMPLE
from pygfuse.conv._copies_of_nodes import edges_of_copies, of_all_copies, of_one_copy, of_several
from pygfuse.conv._held_by_name import NOTHING_READ, Read, opened

INDICES = torch.int64, torch.int32
_ANY = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
# names that say what an argument is, where several may be the edges
_NAMES = 'edge_index', 'edges'
# parts of names of others
_PARTS_OF_NAMES = 'edge', 'index', 'adj', 'link'
# of two arguments that are rows of indices
_NAMES_OF_ROWS = (
    ('idx_i', 'idx_j'), ('src', 'dst'), ('row', 'col'), ('senders', 'receivers'), ('edge_src', 'edge_dst'),
    ('source', 'target'), ('idx_kj', 'idx_ji'), ('idx_s', 'idx_t'), ('i', 'j'),
)  # fmt: skip


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
    held: Callable[[], Collection[int]] = tuple,
    has_copies: bool = False,
) -> ModuleCall:
    """A call of a module.

    Args:
        plain: Its class.
        args: What it is called with.
        kwargs: The same by name.
        read: What the module is known to read of objects that are arguments; of one without an entry, anything.
        sets: Which nodes the rows of the edges are taken to name.
        held: Gives numbers of rows of what the module holds: one is that of the nodes if no argument tells any.
        has_copies: Whether its features are taken to have dimensions before that of nodes.

    Raises:
        Refused: If an argument has no fused form.
    """
    within: dict[str, Any] = {}
    named = {name: opened(name, item, read, within) for name, item in _by_name(plain.forward, args, kwargs).items()}
    arguments = dict(_leaves(named))
    names = names_of_edges(arguments)
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
    told = nums_nodes(of_rows, *num_edges) or nums_nodes(of_rows, num_edges[0])
    nodes = told or [*held()]
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
    kind = type(arguments[names[0]])
    given |= dict(zip(names, (EDGES.get(kind, EDGES[Tensor]),) if len(names) == 1 else ROWS, strict=True))
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


@functools.lru_cache(maxsize=512)
def signature_of(function: Any) -> inspect.Signature:
    """The signature of a function, looked for once."""
    return inspect.signature(function)


def _by_name(forward: Any, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, those by default included."""
    try:
        bound = signature_of(forward).bind(None, *args, **kwargs)
    except TypeError as error:
        raise Refused(str(error)) from None
    bound.apply_defaults()
    _, *named = bound.arguments.items()
    any_of = [one.name for one in signature_of(forward).parameters.values() if one.kind in _ANY]
    others = [name for name, item in named if name in any_of and item]
    if others:
        raise Refused(f'its forward takes any arguments ({", ".join(others)})')
    return {name: item for name, item in named if name not in any_of}


def _leaves(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments, those within others by their places and names; two rows of indices are one."""
    for name, item in arguments.items():
        if type(item) is Fields:
            yield from _leaves({f'{name}.{key}': one for key, one in item.items.items()})
        elif type(item) in (tuple, list) and not are_edges(item):
            yield from _leaves({f'{name}.{place}': one for place, one in enumerate(item)})
        else:
            yield name, item


def _nested(name: str, item: Any, found: Mapping[str, Any], objects: dict[str, Fields]) -> Any:
    """An argument with other things in the place of its leaves; what holds them by name is added to the objects."""
    if name in found:
        return found[name]
    if type(item) is Fields:
        items = {key: _nested(f'{name}.{key}', one, found, objects) for key, one in item.items.items()}
        return objects.setdefault(name, Fields(item.kind, items))
    return type(item)([_nested(f'{name}.{place}', one, found, objects) for place, one in enumerate(item)])


def are_edges(item: Any) -> bool:
    """Whether something holds two indices for each edge."""
    if isinstance(item, Tensor):
        return item.dim() == 2 and item.shape[0] == 2 and item.dtype in INDICES and type(item) is Tensor
    if type(item) not in (tuple, list) or len(item) != 2 or any(type(row) is not Tensor for row in item):
        return False
    first, second = item
    return first.dim() == 1 and first.shape == second.shape and first.dtype == second.dtype and first.dtype in INDICES


def are_other_edges(name: str, item: Any) -> bool:
    """Whether a further argument is edges: what it holds, and its name say so.

    Example:
        >>> pairs = torch.zeros(2, 9, dtype=torch.int64)
        >>> are_other_edges('neg_edge_index', pairs), are_other_edges('labels', pairs)
        (True, False)
    """
    if not isinstance(item, Tensor) or not are_edges(item):
        return False
    name = name.rpartition('.')[2].lower()
    return any(part in name for part in _PARTS_OF_NAMES)


def names_of_edges(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The name of the argument that are the edges, or those of the two that are their rows; empty if there is none."""
    found = [name for name, item in arguments.items() if are_edges(item)]
    if found:
        return (next((name for name in found if name.rpartition('.')[2] in _NAMES), found[0]),)
    rows = [name for name, item in arguments.items() if type(item) is Tensor and item.dim() == 1]
    pairs = [pair for pair in itertools.combinations(rows, 2) if are_edges([arguments[name] for name in pair])]
    named = [pair for pair in _NAMES_OF_ROWS if are_edges([arguments.get(name) for name in pair])]
    # of more than two indices of as many numbers any two may be
    return named[0] if named else pairs[0] if len(pairs) == 1 else ()


def names_of(forward: Any) -> tuple[str, ...]:
    """The names of what a ``forward`` takes."""
    return tuple(signature_of(forward).parameters)[1:]


def takes_edges(forward: Any) -> bool:
    """Whether the names of what a ``forward`` takes say that there are edges among them.

    Example:
        >>> takes_edges(lambda self, x, pos_edge_index: x), takes_edges(lambda self, x, edge_weight: x)
        (True, False)
    """
    names = {*names_of(forward)}
    are_named = any(name in _NAMES or name.endswith(_NAMES[0]) for name in names)
    return are_named or any(names.issuperset(pair) for pair in _NAMES_OF_ROWS)


def as_one(*edges: Any) -> Tensor:
    """Edges as one tensor."""
    edge_index = edges[0] if len(edges) == 1 else edges
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
