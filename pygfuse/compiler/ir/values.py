"""The intermediate representation: values with a residency and a shape, and the operators between them.

A value resides with the sources, the targets, the edges, or nowhere (it is shared, as a parameter is). What is computed
of sources alone resides with the sources, though somebody wrote it of values on edges: a value moves to the edges only
where it meets one of another residency. Residencies and movements are those of "Graphiler" (MLSys 2022, section 4).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.refusal import Refused
from pygfuse.program.program import EDGE, SOURCE, TARGET

T = TypeVar('T')
# where a value resides: with the nodes or edges of a side of operands, or with none
SHARED = 'shared'
# what gives nodes of what their edges have
REDUCTIONS = 'reduce', 'reduce_to_sources'
# what takes rows of several edges
OF_ALL_EDGES = ('softmax', 'softmax_of_sources', *REDUCTIONS, 'batch_norm')
# modules that take the rows of all edges, or of all nodes, together: normalisations, and layers with such in them
NORMALISATIONS = 'batch_norm', 'norm_of_nodes', 'layer'
# what layers within a module give
PARTS_OF_LAYERS = 'targets_of_layer', 'sources_of_layer', 'edges_of_layer'
# values of edges that are there before edges are looked at
_IN_MEMORY = 'input', 'kept', 'numbers_of_edges', 'edge_marks', 'edges_of_layer'
# any number that no width of features has
_ROWS = 10007


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """A value.

    Attributes:
        op: The operator that gives it, a name in `OPERATIONS`; ``'input'`` for what a call or the layer holds.
        args: Values and numbers.
        attributes: What else the operator takes, never a value.
        residency: ``'source'``, ``'target'``, ``'edge'`` or ``'shared'``.
        shape: The shape of a row; of a shared value, its shape.
        dtype: The type.
    """

    op: str
    args: tuple[Any, ...]
    attributes: dict[str, Any]
    residency: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def width(self) -> int:
        """How many numbers a row holds."""
        return torch.Size(self.shape).numel()

    def parents(self) -> Iterator[Node]:
        """The values that it is computed from."""
        return nodes_in(self.args)

    def example(self) -> torch.Tensor:
        """A tensor without memory of its type, with any number of rows."""
        rows = () if self.residency == SHARED else (_ROWS,)
        return torch.empty((*rows, *self.shape), dtype=self.dtype, device='meta')


def nodes_in(arguments: Any) -> Iterator[Node]:
    """The values in nested tuples."""
    return found_in(Node, arguments)


def found_in(kind: type[T], arguments: Any) -> Iterator[T]:
    """What is of a class in nested lists, tuples and dicts."""
    if isinstance(arguments, kind):
        yield arguments
    elif isinstance(arguments, (tuple, list, dict)):
        for argument in arguments.values() if isinstance(arguments, dict) else arguments:
            yield from found_in(kind, argument)


def mapped(arguments: Any, function: Callable[[Node], Any]) -> Any:
    """Nested tuples with another thing in place of each value."""
    if isinstance(arguments, Node):
        return function(arguments)
    if isinstance(arguments, (tuple, list)):
        return tuple(mapped(argument, function) for argument in arguments)
    return arguments


def joined(residencies: Iterable[str]) -> str:
    """Where a value resides that is computed from values of these residencies."""
    found = set(residencies) - {SHARED}
    return SHARED if not found else found.pop() if len(found) == 1 else EDGE


def value(op: str, *args: Any, **attributes: Any) -> Node:
    """The value of an operator; its residency, shape and type follow.

    Raises:
        Refused: If the operator mixes rows.

    Example:
        >>> x = leaf('x_j', SOURCE, (4,), torch.float32)
        >>> value('relu', x).residency
        'source'
    """
    if any(type(number) not in (int, bool) for number in found_in(int, (args, attributes))):
        # what stands for it in a capture is another number
        raise Refused(f'{op} with the number of edges or nodes')
    operation = OPERATIONS[op]
    residency = operation.residency or joined(node.residency for node in nodes_in(args))
    if residency != SHARED and operation.row_wise:
        ranks = {len(node.shape) for node in nodes_in(args) if node.residency != SHARED}
        highest = max((len(node.shape) for node in nodes_in(args) if node.residency == SHARED), default=0)
        if operation.aligned and (len(ranks) > 1 or highest > min(ranks) + 1 or _has_rows(args, min(ranks))):
            raise Refused(f'{op} of values with different numbers of dimensions')
    try:
        out = operation.run(*mapped(args, Node.example), **attributes)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f'{op}: {error}') from error
    shape = tuple(out.shape)
    if residency != SHARED and operation.row_wise:
        if not shape or shape[0] != _ROWS:
            raise Refused(f'{op} over several edges')
        shape = shape[1:]
    elif residency != SHARED:
        shape = shape[1:]
    return Node(op, args, attributes, residency, shape, out.dtype)


def _has_rows(args: Any, rank: int) -> bool:
    """Whether a shared value has more than one row where the others have theirs."""
    return any(n.residency == SHARED and len(n.shape) == rank + 1 and n.shape[0] != 1 for n in nodes_in(args))


def leaf(name: str, residency: str, shape: Iterable[int], dtype: torch.dtype, source: Any = None) -> Node:
    """A value that a call or the layer holds.

    Args:
        name: For people.
        residency: Where it resides.
        shape: The shape of a row.
        dtype: The type.
        source: Where it is found when the plan runs.
    """
    return Node('input', (), {'name': name, 'source': source}, residency, tuple(shape), dtype)


def of_input(node: Node, given: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """What a call or the layer holds."""
    source = node.attributes['source']
    return given[source] if isinstance(source, str) else getattr(*source)


def kept(node: Node) -> Node:
    """A value of edges as one that is in memory: what is computed of it does not ask how it came there.

    Example:
        >>> e = value('exp', leaf('e', EDGE, (4,), torch.float32))
        >>> [node.op for node in in_order(value('neg', kept(e)))]
        ['kept', 'neg']
    """
    return Node('kept', (), {'of': node}, EDGE, node.shape, node.dtype)


def in_order(outputs: Any) -> list[Node]:
    """All values that `outputs` need, each after what it is computed from."""
    seen: dict[int, Node] = {}
    stack = [(node, False) for node in reversed(list(nodes_in(outputs)))]
    while stack:
        node, is_done = stack.pop()
        if id(node) in seen:
            continue
        if is_done:
            seen[id(node)] = node
        else:
            stack.append((node, True))
            stack += ((parent, False) for parent in node.parents() if id(parent) not in seen)
    return list(seen.values())


def is_of_one(reduction: Node | None) -> bool:
    """Whether it is an extreme whose gradient goes to the first of the edges that tie."""
    return reduction is not None and 'of_one' in reduction.attributes


def has_statistics(node: Node) -> bool:
    """Whether it is given by a normalisation with statistics of its own, which move each time that it is computed."""
    return node.op in NORMALISATIONS and any(True for _ in node.attributes['module'].buffers())


def is_brought(node: Node) -> bool:
    """Whether a value is there before edges are looked at.

    It is one of nodes, or shared, or in memory for each edge: what a call brings, rows of a table by such numbers or
    sums of them, and what is kept.
    """
    if node.op == 'detach':
        return is_brought(node.args[0])
    return node.residency != EDGE or node.op in _IN_MEMORY or _is_looked_up(node)


def _is_looked_up(node: Node) -> bool:
    if node.op in ('add', 'sub'):
        return all(isinstance(x, Node) and x.shape == node.shape and _is_looked_up(x) for x in node.args)
    if node.op in ('softmax_of_sources', 'of_other_edges'):
        return all(map(is_seen, node.args))
    if node.op == 'batch_norm':
        return node.args[0].op == 'kept'
    if node.op == 'typed_map':
        x, _, types = node.args
        return x.residency == TARGET or (is_seen(x) and is_seen(types))
    return node.op == 'lookup' and node.residency == EDGE and is_seen(node.args[1])


def is_seen(node: Node) -> bool:
    """Whether a value is there before edges are looked at, seen another way perhaps."""
    while node.op in OPERATIONS and OPERATIONS[node.op].selects:
        node = node.args[0]
    return is_brought(node)


def set_of_edges(output: Node) -> int:
    """Of which set of edges a reduction or a value of edges is, where a module reads several; 0 of the first.

    Example:
        >>> x = leaf('x', TARGET, (4,), torch.float32)
        >>> message = value('relu', value('of_sources', x, edges=2))
        >>> set_of_edges(value('reduce', message, reduce='sum')), set_of_edges(value('of_sources', x))
        (2, 0)
    """
    seen, stack = set(), [output]
    while stack:
        node = stack.pop()
        if 'edges' in node.attributes:
            return node.attributes['edges']
        is_leaf = node.op in ('of_sources', 'of_targets', 'degree') or node.residency == SHARED
        if id(node) not in seen and not is_leaf:
            seen.add(id(node))
            stack += [node.attributes['of']] if node.op == 'kept' else node.parents()
    return 0


def returned_of_edges(output: Node) -> list[Node]:
    """The values among the results of a layer that it computes on edges."""
    return [node for node in results_of(output) if not is_brought(node)]


def computed_on_edges(output: Node, without: Container[int] = ()) -> list[Node]:
    """The values of edges that have to be computed for one, each after what it is computed of.

    Args:
        output: The value.
        without: The identities of those that are there.

    Example:
        >>> x_i, x_j = leaf('x_i', TARGET, (4,), torch.float32), leaf('x_j', SOURCE, (4,), torch.float32)
        >>> [node.op for node in computed_on_edges(value('relu', value('sub', value('exp', x_i), x_j)))]
        ['sub', 'relu']
    """
    needed, stack = set(), [output]
    while stack:
        node = stack.pop()
        if id(node) not in needed and id(node) not in without and not is_brought(node):
            needed.add(id(node))
            stack += node.parents()
    return [node for node in in_order(output) if id(node) in needed]


def written_of_nodes(nodes: Iterable[Node]) -> set[int]:
    """The identities of values that somebody wrote of all nodes before edges gathered them, up to what is aggregated.

    Args:
        nodes: Values, among them those that are gathered (``of_sources``, ``of_targets``).

    Example:
        >>> h = value('exp', leaf('x', TARGET, (4,), torch.float32))
        >>> written_of_nodes([value('of_sources', h)]) == {id(h), id(h.args[0])}
        True
    """
    found: set[int] = set()
    stack = [parent for node in nodes if node.op in ('of_sources', 'of_targets') for parent in node.parents()]
    while stack:
        node = stack.pop()
        if id(node) not in found and node.op not in REDUCTIONS:
            found.add(id(node))
            stack += node.parents()
    return found


def results_of(output: Node) -> tuple[Node, ...]:
    """The values that a layer returns."""
    return output.args if output.op == 'results' else (output,)


def with_rows_of_edges(output: Node, before: Node) -> Node:
    """The results of a layer, with a row for each edge where they had one before passes found that nodes decide them.

    Args:
        output: The results, or the only one.
        before: The same before.

    Example:
        >>> score = value('softmax', leaf('a_i', 'target', (1,), torch.float32))
        >>> with_rows_of_edges(leaf('share', 'target', (1,), torch.float32), score).op
        'on_edges'
    """
    if output.op == 'results':
        args = tuple(with_rows_of_edges(*pair) for pair in zip(output.args, before.args, strict=True))
        is_same = all(a is b for a, b in zip(args, output.args, strict=True))
        return output if is_same else dataclasses.replace(output, args=args)
    is_of_nodes = before.residency == EDGE and output.residency in (SOURCE, TARGET)
    return value('on_edges', output) if is_of_nodes else output


def with_args(node: Node, function: Callable[[Node], Node]) -> Node:
    """The same operator on what a function gives for each value; itself, if these are the same."""
    args = mapped(node.args, function)
    is_same = all(a is b for a, b in zip(nodes_in(args), node.parents(), strict=True))
    return node if is_same else dataclasses.replace(node, args=args)


def rewritten(output: Node, rule: Callable[[Node], Node | None], on_edges: bool = False) -> Node:
    """A value with `rule` applied to all that it needs, until it changes nothing.

    Args:
        output: The value.
        rule: A function that gives another value for one, or None.
        on_edges: Whether what is there before edges are looked at is left as it is.
    """
    while True:
        found: dict[int, Node] = {}
        for node in in_order(output):
            if on_edges and is_brought(node):
                found[id(node)] = node
                continue
            args = mapped(node.args, lambda parent, found=found: found[id(parent)])
            same = all(a is b for a, b in zip(nodes_in(args), node.parents(), strict=True))
            made = node if same else value(node.op, *args, **node.attributes)
            found[id(node)] = rule(made) or made
        if found[id(output)] is output:
            return output
        output = found[id(output)]


_OVER_EDGES = {
    **dict.fromkeys(('reduce', 'softmax'), '  over the edges of each target'),
    'reduce_to_sources': '  over the edges of each source',
}
_UNSAID = ('name', 'source', 'of', 'rows', 'counts', 'end', 'template', 'row', 'of_type')


def text(output: Node) -> str:
    """A value and all that it needs, a line each, for people."""
    names: dict[int, str] = {}
    lines = []
    for node in in_order(output):
        if node.op == 'input':
            names[id(node)] = node.attributes['name']
        else:
            names[id(node)] = f'%{len(lines)}'
        shape = ', '.join(str(size) for size in node.shape)
        said = [_said(argument, names) for argument in node.args]
        said += [f'{name}={_short(value)}' for name, value in node.attributes.items() if name not in _UNSAID]
        of_what = 'input' if node.op == 'input' else f'{node.op}({", ".join(said)})'
        moved = sorted({p.residency for p in node.parents()} - {node.residency, SHARED})
        movement = f'  broadcast from {" and ".join(moved)}' if moved and node.residency == EDGE else ''
        movement = _OVER_EDGES.get(node.op, movement)
        lines.append(f'{names[id(node)]:<14} {node.residency:<7} [{shape}]  {of_what}{movement}')
    return '\n'.join(lines)


def _said(argument: Any, names: dict[int, str]) -> str:
    if isinstance(argument, Node):
        return names[id(argument)]
    if isinstance(argument, tuple):
        return f'({", ".join(_said(item, names) for item in argument)})'
    return repr(argument)


def _short(attribute: Any) -> str:
    return getattr(attribute, '__name__', None) or ' '.join(repr(attribute).split())
