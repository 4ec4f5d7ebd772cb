"""Code that reads several sets of edges: a type of edges at a time, edges and others that lead back with loops.

What is gathered, and what reduces, says by which ends. Ends that a value is computed of belong together: they are those
of one set, of which each row is one. The first set is that of the edges of any plan; what belongs to another one says
its number, and a form reads the edges of what its message is computed of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from pygfuse.compiler.ir.values import EDGE, REDUCTIONS, SHARED, Node, in_order, mapped, results_of
from pygfuse.compiler.made_edges.remade import Made, Remade, both_ends
from pygfuse.compiler.refusal import Refused

_GATHERED = 'of_sources', 'of_targets', 'degree'
# what says of which edges it is
_SAYS_ENDS = *_GATHERED, 'edges_of_layer'
_OF_ENDS = *REDUCTIONS, 'softmax', 'softmax_of_sources'


class _Together:
    """Which things belong together."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def of(self, item: Hashable) -> Hashable:
        """What stands for all that belong to something."""
        while self._above.get(item, item) != item:
            item = self._above[item]
        return item

    def join(self, items: Sequence[Hashable]) -> None:
        """Notes that these belong together."""
        for item in items:
            self._above[self.of(item)] = self.of(items[0])


def sets_apart(
    output: Node, given: Sequence[Made], of_values: Mapping[str, Made], values: Mapping[str, Made]
) -> tuple[Node, Remade]:
    """What was captured with the sets of edges that it reads told apart, and what each call makes of its edges.

    Args:
        output: The results.
        given: What brings the edges of a call, and those of further arguments.
        of_values: Which of the latter values of edges are of, by name; those of no others are of the former.
        values: What makes values of edges, by name.

    Raises:
        Refused: If a value is of several of them, or of none.
    """
    nodes = in_order(output)
    # degrees may be of edges along which nothing is gathered
    roots = [node for node in nodes if node.op in (*_OF_ENDS, 'degree')]
    roots += [node for node in results_of(output) if node.residency == EDGE]
    roots += [part for node in nodes if node.op == 'layer' for part in node.args if part.residency == EDGE]
    together = _Together()
    for whole in given:
        together.join([whole, whole.row_of(0), whole.row_of(1)])

    def edges_of(node: Node) -> Hashable:
        name = node.attributes['source']
        return name if name in values else of_values.get(name, given[0])

    members = [list(_members(root, edges_of)) for root in roots]
    for found in members:
        if not found:
            raise Refused('a reduction of values that are of no edges')
        together.join(found)
    numbers: dict[Hashable, int] = {}
    for found in members:
        numbers.setdefault(together.of(found[0]), len(numbers))
    ends: list[dict[int, Made]] = [{} for _ in numbers]
    for made in [item for found in members for item in found if isinstance(item, Made) and item.end is not None]:
        if ends[numbers[together.of(made)]].setdefault(made.end, made) is not made:
            raise Refused('values of several sets of edges at once')
    for whole in [whole for whole in given if together.of(whole) in numbers]:
        for row, made in enumerate(map(whole.row_of, range(2))):
            if ends[numbers[together.of(whole)]].setdefault(row, made) is not made:
                raise Refused('values of edges before they are made anew')
    if not all(ends):
        raise Refused('a reduction of values that are of no edges')

    def number_of(item: Hashable) -> int:
        if together.of(item) not in numbers:
            raise Refused('values of edges along which nothing is reduced')
        return numbers[together.of(item)]

    read = {node.attributes['source']: node for node in nodes if node.op == 'input'}
    made_values = {name: made for name, made in values.items() if name in read}
    set_of = {name: number_of(name) for name, made in made_values.items() if not made.is_shared}
    wholes = {tuple([whole.row_of(row) for row in range(2)]): whole for whole in given}
    sets = [wholes.get(rows, rows) for rows in map(both_ends, ends)]
    sets = tuple([None if one is given[0] else one for one in sets])
    return _numbered(nodes, lambda node: number_of(edges_of(node)), number_of), Remade(sets, made_values, set_of)


def _members(root: Node, edges_of: Callable[[Node], Hashable]) -> Iterator[Hashable]:
    """The ends, and what brings values of edges, that a reduction or a value of edges reads."""
    if 'end' in root.attributes:
        yield root.attributes['end']
    seen, stack = set(), list(root.parents()) if root.op in _OF_ENDS else [root]
    while stack:
        node = stack.pop()
        if id(node) in seen or node.residency == SHARED:
            continue
        seen.add(id(node))
        if node.op in _SAYS_ENDS:
            yield from [node.attributes['end']] if 'end' in node.attributes else []
        elif node.op == 'input':
            yield from [edges_of(node)] if node.residency == EDGE else []
        elif node.op == 'filled':
            yield from _counted(node)
        elif node.op not in REDUCTIONS:
            stack += node.parents()


def _counted(node: Node) -> Iterator[Hashable]:
    """The ends of the edges that a tensor of one number counts."""
    counts = node.attributes.get('counts')
    if isinstance(counts, Made) and (counts.end is not None or counts.is_whole):
        yield counts if counts.end is not None else counts.row_of(0)
    elif counts is not None:
        raise Refused('a number of other edges than it reads')


def _numbered(
    nodes: Sequence[Node], number_of_values: Callable[[Node], int], number_of: Callable[[Hashable], int]
) -> Node:
    """The last of these values, with numbers of sets in place of ends."""
    found: dict[int, Node] = {}
    for node in nodes:
        attributes = {name: item for name, item in node.attributes.items() if name != 'end'}
        number = 0
        if node.op in _SAYS_ENDS and 'end' in node.attributes:
            number = number_of(node.attributes['end'])
        elif node.op == 'input' and node.residency == EDGE:
            number = number_of_values(node)
        attributes |= {'edges': number} if number else {}
        args = mapped(node.args, lambda parent: found[id(parent)])
        found[id(node)] = dataclasses.replace(node, args=args, attributes=attributes)
    return found[id(nodes[-1])]
