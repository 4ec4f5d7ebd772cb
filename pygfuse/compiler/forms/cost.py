"""What a message costs as it is written and as it is compiled: numbers computed, and numbers in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from pygfuse.compiler.forms.form import Form
from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.positions import everything
from pygfuse.compiler.ir.values import (
    EDGE,
    REDUCTIONS,
    SHARED,
    SOURCE,
    TARGET,
    Node,
    computed_on_edges,
    in_order,
    is_brought,
    results_of,
    written_of_nodes,
)
from pygfuse.compiler.networks.network import Network
from pygfuse.compiler.programs.emission import Factors, is_features

_PLACES = (EDGE, SOURCE, TARGET)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a message costs: numbers computed for each edge, source and target, and numbers an edge held in memory.

    Attributes:
        operations: Additions, multiplications and functions by residency.
        held: Numbers an edge that are in memory at some time, what the call brings aside.
    """

    operations: dict[str, int]
    held: int

    def __str__(self) -> str:
        counted = ', '.join(f'{self.operations[place]:,} for each {place}' for place in _PLACES)
        return f'operations: {counted}; numbers an edge in memory: {self.held:,}'


def operations_of(node: Node) -> int:
    """How many additions, multiplications and functions a row of a value takes."""
    if node.op in ('linear', 'matmul'):
        return 2 * node.width * node.args[1].shape[-1 if node.op == 'linear' else 0]
    if node.op == 'own_matrix':
        x, numbers = node.args[:2]
        return 2 * x.width * numbers.width * node.width
    if node.op in ('typed_map', 'typed_product'):
        x, table = node.args[:2]
        return 2 * x.width * table.shape[-1]
    if node.op in ('sum', *REDUCTIONS, 'softmax'):
        return node.args[0].width * (4 if node.op == 'softmax' else 1)
    is_counted = node.op in OPERATIONS and OPERATIONS[node.op].elementwise
    return node.width if is_counted else 0


def cost_as_written(output: Node) -> Cost:
    """What PyG computes: on edges, but for what is aggregated or of nodes before edges gather it; all of it is kept."""
    counted, held = dict.fromkeys(_PLACES, 0), 0
    order = in_order(output)
    of_nodes = written_of_nodes(order)
    aggregated = _aggregated(order)
    for node in order:
        if node.residency == SHARED:
            continue
        is_of_nodes = id(node) in aggregated or id(node) in of_nodes
        counted[TARGET if is_of_nodes else EDGE] += operations_of(node)
        if not is_of_nodes and node.op not in REDUCTIONS and not (node.op == 'input' and node.residency == EDGE):
            held += node.width
    return Cost(counted, held)


def _aggregated(order: Iterable[Node]) -> set[int]:
    """The identities of values that are computed of aggregated ones, those apart that edges have gathered since."""
    found: set[int] = set()
    for node in order:
        is_on_edges = node.residency == EDGE or node.op in (*REDUCTIONS, 'of_sources', 'of_targets')
        of_aggregated = any(parent.op in REDUCTIONS or id(parent) in found for parent in node.parents())
        if node.op == 'degree' or (of_aggregated and not is_on_edges):
            found.add(id(node))
    return found


def cost_of(output: Node, steps: Collection[Node], walks: Mapping[int, Form]) -> Cost:
    """What a plan computes: walks and nodes; of the edges' values those are in memory that are kept for others.

    Args:
        output, steps, walks: The plan's.
    """
    counted = dict.fromkeys(_PLACES, 0)
    for node in steps:
        if node.residency != SHARED and id(node) not in walks:
            counted[node.residency] += operations_of(node)
    for node in steps:
        if id(node) in walks:
            # of a reduction, what its walk computes, which may read other values from memory
            roots = node.parents() if node.residency == EDGE else (walks[id(node)].message,)
            on_edges = [n for root in roots for n in computed_on_edges(root, without=walks)]
            distinct = {id(n): n for n in on_edges}.values()
            counted[EDGE] += operations_of(node)
            for one in distinct:
                found = operations_of(one)
                if one.op == 'own_matrix' and isinstance(walks[id(node)], Network):
                    # products are added up for each target, and mapped there
                    counted[TARGET] += found
                    found //= one.width
                counted[EDGE] += found
    held = [o for walk in walks.values() for o in _formed(walk)]
    returned = {id(node) for node in results_of(output)}
    held += [node.width for node in steps if id(node) not in returned and _is_made(node, walks)]
    return Cost(counted, sum(held))


def _is_made(node: Node, walks: Mapping[int, Form]) -> bool:
    """Whether a value of edges is written to memory: kept, looked up, or copied to where a walk reads it."""
    if node.residency != EDGE or node.op in ('input', 'kept', 'detach'):
        return False
    is_copy = node.op == 'columns' and node.attributes['take'] != everything(node.args[0].width)
    return id(node) in walks or is_brought(node) or is_copy


def _formed(walk: Form) -> Iterable[int]:
    """Widths of what walks take multiplied out: products no wider than their features."""
    for operand in walk.operands.values():
        if isinstance(operand, Factors):
            features, width = operand.features.width, operand.weight.shape[-1]
            if features >= width and not _is_placement(operand):
                yield width


def _is_placement(operand: Factors) -> bool:
    return operand.weight.op == 'placement' and is_features(operand.features)
