"""What is computed of rows of a small table alone is computed for the table, which has fewer rows than there are edges.

Rows that no edge reads are computed, too: so nothing is whose derivative may be infinite, which 0 times were no number.
"""

from __future__ import annotations

from typing import Any

from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.untouched import may_be_singular
from pygfuse.compiler.ir.values import EDGE, OF_ALL_EDGES, SHARED, Node, mapped, rewritten, value

# what needs the edges themselves, or is another on each
_OF_EDGES = (*OF_ALL_EDGES, 'lookup', 'dropout', 'degree', 'results')
# of a larger table few rows may be read
_MOST_ROWS = 256


def tables_first(output: Node) -> Node:
    """Moves operators on rows of a table, by the same numbers of edges, to the table.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf
        >>> table, weight = (leaf('t', 'shared', shape, torch.float32) for shape in ((5, 4), (3, 4)))
        >>> numbers = leaf('edge_type', 'edge', (), torch.int64)
        >>> row = value('lookup', table, numbers, counts_back=False)
        >>> out = tables_first(value('relu', value('linear', row, weight)))
        >>> out.op, out.args[0].shape
        ('lookup', (5, 3))
    """
    return rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    operation = OPERATIONS.get(node.op)
    if node.residency != EDGE or operation is None or node.op in _OF_EDGES or not operation.row_wise:
        return None
    rows = [parent for parent in node.parents() if parent.residency != SHARED]
    if not rows or any(parent.op != 'lookup' for parent in rows):
        return None
    if not operation.selects and any(parent.args[0].shape[0] > _MOST_ROWS for parent in rows):
        return None
    if may_be_singular(node):
        return None
    numbers = {(id(parent.args[1]), parent.attributes['counts_back'], parent.args[0].shape[0]) for parent in rows}
    if len(numbers) > 1:
        return None
    arguments = mapped(node.args, lambda parent: parent if parent.residency == SHARED else parent.args[0])
    keywords = (('op', node.op), ('attributes', tuple(node.attributes.items())))
    table = value('call', *arguments, function=_on_tables, keywords=keywords)
    return value('lookup', table, rows[0].args[1], **rows[0].attributes)


def _on_tables(*args: Any, op: str, attributes: tuple) -> Any:
    """An operator on rows, those of tables in place of those of edges."""
    return OPERATIONS[op].run(*args, **dict(attributes))
