"""What deferred tensors are computed from, and how: a node for each call that was deferred.

A node knows which rows of its inputs some of its rows need, and computes them from these. `evaluate` asks backwards
which rows are needed of every node, and computes them in the order in which the program called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from pygfuse._lib.modes import changed, modes
from pygfuse._lib.note import Activity
from pygfuse.graph.adjacency import version_of
from pygfuse.mapping.cost_model import edge_cost
from pygfuse.ops import Edges, aggregate
from pygfuse.ops.nodes.linear import linear_of_rows
from pygfuse.ops.within_torch import autocast
from pygfuse.partial.rows.row_set import NEARLY_ALL, RowSet, chosen, joined
from pygfuse.program.products import OperandValue
from pygfuse.program.program import SOURCE, EdgeProgram

# in ns of one worker: what a deferred call takes beyond the call, and what a byte of its result takes
COST_OF_NODE, COST_OF_BYTE = 140_000, 0.3

_numbers = itertools.count()


class Node:
    """What a deferred tensor is computed from.

    Attributes:
        inputs: The nodes that it reads.
        kept: The rows that were read from outside and their values, or None.
    """

    def __init__(self, inputs: Sequence[Node] = (), constants: Sequence[Tensor] = ()) -> None:
        self.number = next(_numbers)
        self.inputs = tuple(inputs)
        self.kept: tuple[RowSet | None, Any] | None = None
        self.with_grad, self.in_inference_mode = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self._versions = [(tensor, version_of(tensor)) for tensor in constants]

    def needs(self, rows: RowSet | None) -> list[RowSet | None]:
        """The rows of each input that these rows need."""
        return [rows] * len(self.inputs)

    def compute(self, rows: RowSet | None, values: list[Any]) -> Any:
        """The values of these rows, from those of the inputs."""
        raise NotImplementedError

    def check_unwritten(self) -> None:
        """Raises a RuntimeError if something that was to be read has been written to since."""
        for tensor, version in self._versions:
            if version_of(tensor) != version:
                raise RuntimeError(
                    f'A tensor of shape {list(tensor.shape)} was written to after it entered a computation within '
                    '`pygfuse.active` and before the result was read: read the result first'
                )


class Given(Node):
    """A tensor that is there."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(constants=[tensor])
        self.kept = None, tensor


class RowWise(Node):
    """A function of the same rows of its inputs."""

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Node], constants: Sequence[Tensor]) -> None:
        super().__init__(inputs, constants)
        self.function = function

    def compute(self, rows: RowSet | None, values: list[Any]) -> Any:
        return self.function(*values)


@dataclasses.dataclass(frozen=True)
class Aggregation:
    """The arguments of `pygfuse.ops.aggregate` that are not its operands."""

    program: EdgeProgram
    edges: Edges
    heads: int
    channels: int
    reduce: str = 'sum'
    dropout: float = 0.0
    seed: Tensor | None = None
    flat: bool = False


class Aggregated(Node):
    """An aggregation over edges: rows of targets need themselves and their neighbours."""

    def __init__(self, of: Aggregation, rows: Mapping[str, Node], others: Mapping[str, OperandValue]) -> None:
        constants = [part for value in others.values() for part in tensors_in(value)]
        super().__init__([*rows.values()], constants)
        self.of, self.names, self.others = of, [*rows], others
        note = modes().note
        self.note = None if note is None else weakref.ref(note)

    def needs(self, rows: RowSet | None) -> list[RowSet | None]:
        sources = None if rows is None else rows.part_of(self.of.edges.graph())[1]
        operands = self.of.program.operands
        return [sources if operands[name].side == SOURCE else rows for name in self.names]

    def compute(self, rows: RowSet | None, values: list[Any]) -> Any:
        of, graph = self.of, self.of.edges.graph()
        part, edges = graph, of.edges
        if rows is not None:
            part, _ = rows.part_of(graph)
            edges = Edges(part.token, part.num_sources, part.num_targets, edges.flow)
        note = None if self.note is None else self.note()
        if note is not None:
            note.forward = Activity(
                *(part.num_targets, part.num_edges, part.num_edges, graph.num_targets, graph.num_edges)
            )
        operands = {**self.others, **dict(zip(self.names, values, strict=True))}
        with changed(note=note):
            return aggregate(
                *(of.program, edges, operands, of.heads, of.channels, of.reduce, of.dropout, of.seed, of.flat)
            )


class Mapped(Node):
    """A linear map of rows that are there: it takes those that it needs without a copy of all of them."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__([Given(x)], [weight] if bias is None else [weight, bias])
        self.weight, self.bias = weight, bias

    def needs(self, rows: RowSet | None) -> list[RowSet | None]:
        return [None]

    def compute(self, rows: RowSet | None, values: list[Any]) -> Any:
        if rows is None:
            return F.linear(values[0], self.weight, self.bias)
        return linear_of_rows(values[0], rows.index, self.weight, self.bias)


class Item(Node):
    """One of several results."""

    def __init__(self, node: Node, place: int) -> None:
        super().__init__([node])
        self.place = place

    def compute(self, rows: RowSet | None, values: list[Any]) -> Any:
        return values[0][self.place]


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value, or in a structure of values."""
    return [part for part in tree_flatten(value)[0] if isinstance(part, Tensor)]


def evaluate(root: Node, rows: RowSet | None) -> Any:
    """The values of some rows of a node, which are then kept with it.

    Args:
        root: The node.
        rows: Which rows, None for all.
    """
    order = _ancestors(root)
    asked, wanted = rows, _wanted(root, rows, order)
    if _is_nearly_all(wanted):
        rows, wanted = None, _wanted(root, None, order)
    gain = -COST_OF_NODE * len(wanted)
    readers = dict.fromkeys(wanted, 0)
    for node in wanted:
        if not is_kept(node, wanted[node]):
            for parent in node.inputs:
                readers[parent] += 1
    values: dict[Node, Any] = {}
    for node in order:
        if node not in wanted:
            continue
        with _modes_of_call(node):
            if is_kept(node, wanted[node]):
                values[node] = kept_rows(node, wanted[node])
                continue
            node.check_unwritten()
            read = [
                values[parent] if needed is wanted[parent] else _chosen(values[parent], wanted[parent], needed)
                for parent, needed in zip(node.inputs, node.needs(wanted[node]), strict=True)
            ]
            values[node] = node.compute(wanted[node], read)
            gain += _saved(node, wanted[node], values[node])
        for parent in node.inputs:
            readers[parent] -= 1
            if not readers[parent]:
                del values[parent]
    if asked is not None:
        layers = [node.note for node in wanted if isinstance(node, Aggregated) and node.note is not None]
        asked.learn(gain, tuple(layers))
    root.kept = rows, values[root]
    return _chosen(values[root], rows, asked)


def _saved(node: Node, rows: RowSet | None, values: Any) -> float:
    """What the rows that are left out of a node would have taken, in ns of one worker."""
    if rows is None or not isinstance(values, Tensor):
        return 0.0
    row_bytes = values.nbytes // max(len(rows), 1)
    found = COST_OF_BYTE * row_bytes * (rows.total - len(rows))
    if isinstance(node, Aggregated):
        graph = node.of.edges.graph()
        found += edge_cost(row_bytes) * (graph.num_edges - rows.part_of(graph)[0].num_edges)
    return found


def _wanted(root: Node, rows: RowSet | None, order: list[Node]) -> dict[Node, RowSet | None]:
    """Which rows of which nodes it takes to compute some rows of a node."""
    wanted: dict[Node, RowSet | None] = {root: rows}
    for node in reversed(order):
        if node in wanted and not is_kept(node, wanted[node]):
            for parent, needed in zip(node.inputs, node.needs(wanted[node]), strict=True):
                wanted[parent] = joined(wanted[parent], needed) if parent in wanted else needed
    return wanted


def _is_nearly_all(wanted: Mapping[Node, RowSet | None]) -> bool:
    """Whether nearly all edges would be walked, so that choosing rows costs more than it saves."""
    if any(node.kept is not None and node.kept[0] is not None for node in wanted):
        # what is kept is not computed again
        return False
    walked = of_all = 0
    for node, rows in wanted.items():
        if isinstance(node, Aggregated) and not is_kept(node, rows):
            graph = node.of.edges.graph()
            of_all += graph.num_edges
            walked += (graph if rows is None else rows.part_of(graph)[0]).num_edges
    return NEARLY_ALL * of_all < walked < of_all


def _modes_of_call(node: Node) -> contextlib.AbstractContextManager[None]:
    """The modes of the deferred call: those where it is read may be others; no call under autocast is deferred."""
    is_same = node.with_grad == torch.is_grad_enabled() and not autocast.is_on_anywhere()
    if is_same and node.in_inference_mode == torch.is_inference_mode_enabled():
        return contextlib.nullcontext()
    return _in_modes_of_call(node)


@contextlib.contextmanager
def _in_modes_of_call(node: Node) -> Iterator[None]:
    with (
        autocast.off_everywhere(),
        torch.inference_mode(node.in_inference_mode),
        torch.set_grad_enabled(node.with_grad),
    ):
        yield


def _chosen(values: Any, have: RowSet | None, want: RowSet | None) -> Any:
    """`chosen`, of one tensor or several."""
    return tree_map(lambda one: chosen(one, have, want) if isinstance(one, Tensor) else one, values)


def is_kept(node: Node, rows: RowSet | None) -> bool:
    """Whether these rows of a node are there already."""
    return node.kept is not None and node.kept[0] in (None, rows)


def kept_rows(node: Node, rows: RowSet | None) -> Any:
    """Values that are there already: what is written to since then no longer matters, but to a tensor that was given.

    Args:
        node: A node that keeps rows, see `is_kept`.
        rows: Which of them, None for all.
    """
    if isinstance(node, Given):
        node.check_unwritten()
    have, values = node.kept
    return chosen(values, have, rows)


def _ancestors(root: Node) -> list[Node]:
    """A node and all that it is computed from, in the order of the calls."""
    found, open_ = {root}, [root]
    while open_:
        for parent in open_.pop().inputs:
            if parent not in found:
                found.add(parent)
                open_.append(parent)
    return sorted(found, key=lambda node: node.number)
