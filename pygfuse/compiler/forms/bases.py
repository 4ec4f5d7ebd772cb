"""Functions of narrow values that networks read as features of edges: a basis of a distance, of an angle, of a time."""

from __future__ import annotations

from pygfuse.compiler.forms.kept import Apart, has_map, is_map, may_be_kept, taken_apart
from pygfuse.compiler.ir.values import SHARED, Node, computed_on_edges
from pygfuse.compiler.programs.emission import is_leaf
from pygfuse.compiler.refusal import Refused

# how many times as wide as what it is computed of a basis is
_OF_A_BASIS = 4


def bases_apart(message: Node) -> Apart:
    """Takes functions of narrow values that networks read out of a message, a basis of a distance for example.

    Args:
        message: The message, on edges.

    Raises:
        Refused: If there is none.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> time, weight = leaf('t', 'edge', (1,), torch.float32), leaf('weight', 'shared', (8, 20), torch.float32)
        >>> times = leaf('times', 'shared', (20,), torch.float32)
        >>> apart = bases_apart(value('relu', value('linear', value('cos', value('mul', time, times)), weight)))
        >>> [node.op for node in apart.kept]
        ['cos']
    """
    order = computed_on_edges(message)
    read = [node.args[0] for node in order if is_map(node)]
    found = {id(node): node for node in read if _is_basis(node) and may_be_kept(node)}
    if not found:
        raise Refused('no functions of narrow values that a network reads')
    return taken_apart(message, found.values(), order)


def _is_basis(node: Node) -> bool:
    """Whether a value is computed, without maps, of values of edges and their ends that are much narrower."""
    if is_leaf(node) or has_map(node):
        return False
    read = [parent for inner in computed_on_edges(node) for parent in inner.parents() if is_leaf(parent)]
    return all(_OF_A_BASIS * leaf.width <= node.width for leaf in read if leaf.residency != SHARED)
