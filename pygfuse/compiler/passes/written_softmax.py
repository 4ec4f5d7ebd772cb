"""A softmax over the edges of each target that an author wrote out: maximum, exponentials, their sum, a quotient."""

from __future__ import annotations

import torch

from pygfuse.compiler.ir.values import EDGE, TARGET, Node, rewritten, value


def softmaxes_recognised(output: Node) -> Node:
    """Replaces ``e / (sum of e + epsilon)`` by a softmax, where e is ``exp(score - its maximum)``.

    So it does where rows are weighted by e and their sum is divided. The sum of e is 1 at least, so that an epsilon
    below the rounding of the type changes nothing. `pygfuse.compiler.passes.softmax` is the reverse.

    Example:
        >>> from pygfuse.compiler.ir.values import leaf
        >>> score = leaf('a_j', 'source', (1,), torch.float32)
        >>> e = value('exp', value('sub', score, value('reduce', score, reduce='max')))
        >>> softmaxes_recognised(value('div', e, value('add', value('reduce', e, reduce='sum'), 1e-16))).op
        'softmax'
    """
    return rewritten(output, _rule)


def _rule(node: Node) -> Node | None:
    if node.op != 'div' or not isinstance(node.args[1], Node):
        return None
    divisor = _of_nodes(node.args[1])
    above, total = node.args[0], _of_nodes(_without_epsilon(divisor))
    if not _is_reduction(total, 'sum') or not isinstance(above, Node):
        return None
    grown = total.args[0]
    score = _score_of(grown)
    if score is None:
        return None
    if above is grown:
        return value('softmax', score)
    # targets without edges have a row of zeros, and no 0 / 0
    if total is not divisor and _is_reduction(above, 'sum'):
        return _weighted(above, grown, score)
    return None


def _weighted(summed: Node, grown: Node, score: Node) -> Node | None:
    """The sum of rows times exponentials with the softmax in their place, if that is what it is."""
    product = summed.args[0]
    if product.op != 'mul' or sum(one is grown for one in product.args) != 1:
        return None
    weight = value('softmax', score)
    args = tuple(weight if one is grown else one for one in product.args)
    return value('reduce', value('mul', *args), **summed.attributes)


def _without_epsilon(total: Node) -> Node:
    """What a small number is added to, or what is held above one."""
    limit = torch.finfo(total.dtype).eps / 2 if total.dtype.is_floating_point else 0.0
    if total.op == 'add':
        number = next((one for one in total.args if isinstance(one, (int, float))), None)
        if number is not None and 0 < number <= limit:
            return next(one for one in total.args if isinstance(one, Node))
    if total.op == 'clamp':
        inner, low, high = total.args
        if isinstance(low, (int, float)) and 0 < low <= limit and high is None:
            return inner
    return total


def _score_of(grown: Node) -> Node | None:
    """The score whose exponentials, below the highest of each target, a value is."""
    if grown.op != 'exp' or grown.residency != EDGE or grown.args[0].op != 'sub':
        return None
    score, highest = grown.args[0].args
    if not isinstance(score, Node) or not isinstance(highest, Node):
        return None
    highest = _of_nodes(highest)
    if highest.op == 'detach':
        highest = _of_nodes(highest.args[0])
    if not _is_reduction(highest, 'max') or highest.residency != TARGET or score.shape != highest.shape:
        return None
    inner = highest.args[0]
    return score if inner is score or (inner.op == 'detach' and inner.args[0] is score) else None


def _of_nodes(node: Node) -> Node:
    """A value of targets that is read at their edges."""
    return node.args[0] if node.op == 'of_targets' else node


def _is_reduction(node: Node, reduce: str) -> bool:
    return node.op == 'reduce' and node.attributes['reduce'] == reduce
