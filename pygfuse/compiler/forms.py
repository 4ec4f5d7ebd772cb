"""Which form values of edges and their reductions take: a program, a network, or operators on chunks of edges."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from pygfuse.compiler.chunked import Chunked, chunked
from pygfuse.compiler.ir import Node
from pygfuse.compiler.kept import Apart, narrow_values_apart, networks_apart
from pygfuse.compiler.lowering import Walk, lowered
from pygfuse.compiler.network import Network
from pygfuse.compiler.network_reading import network_of
from pygfuse.compiler.passes.small_sums import small_sums_written_out
from pygfuse.compiler.refusal import Refused

T = TypeVar('T')
Form: TypeAlias = Walk | Network | Chunked
# by the identity of the value
Forms: TypeAlias = dict[int, Form]

# how many times as wide as values that are kept something is that is computed of them: the fewer are kept, the better
_SHARES = (16, 8, 4, 2)


def forms_of(reduction: Node) -> Forms:
    """The form of a reduction, and those of values of edges that are kept for it.

    Raises:
        Refused: If there is none; why there is no program.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir import leaf, value
        >>> x_i, x_j = leaf('x_i', 'target', (4,), torch.float32), leaf('x_j', 'source', (4,), torch.float32)
        >>> distance = value('norm', value('sub', x_i, x_j), p=2, dim=(1,), keepdim=True)
        >>> found = forms_of(value('reduce', value('mul', distance, x_j), reduce='sum'))
        >>> [form.title for form in found.values()]
        ['walk: sum, heads=1, channels=4', 'operators on chunks of edges']
    """
    (message,) = reduction.args
    return _first(
        lambda: {id(reduction): _direct(message, reduction)},
        *_attempts_with_kept(message, reduction, _direct),
        lambda: _of_networks(message, reduction),
        lambda: {id(reduction): chunked(message, reduction)},
    )


def values_of(message: Node) -> Forms:
    """The form of values of edges that are wanted themselves, and those of others that are kept for them.

    Raises:
        Refused: If there is none; why there is no network.
    """
    return _first(
        lambda: {id(message): _returned(message)},
        *_attempts_with_kept(message, None, _returned),
        lambda: {id(message): chunked(message)},
    )


def reduced_and_returned(reduction: Node, message: Node) -> Forms:
    """The form of a reduction and of what it reduces, which somebody wants as well.

    Args:
        reduction: The reduction, which may read its message from memory.
        message: What it reduces.

    Raises:
        Refused: If there is none; why there is no network.
    """
    return _first(
        lambda: dict.fromkeys((id(reduction), id(message)), _returned(message, reduction)),
        *_attempts_with_kept(message, reduction, _returned),
    )


def _direct(message: Node, reduction: Node) -> Form:
    """A program or a network of a reduction that reads no other values of edges."""
    return _first(
        lambda: lowered(reduction),
        lambda: network_of(message, reduction),
        lambda: lowered(small_sums_written_out(reduction)),
    )


def _returned(message: Node, reduction: Node | None = None) -> Form:
    return network_of(message, reduction, is_returned=True)


def _attempts_with_kept(
    message: Node, reduction: Node | None, form_of: Callable[[Node, Node | None], Form]
) -> list[Callable[[], Forms]]:
    return [functools.partial(_with_kept, message, reduction, form_of, share) for share in _SHARES]


def _with_kept(
    message: Node, reduction: Node | None, form_of: Callable[[Node, Node | None], Form], share: int
) -> Forms:
    """The forms where values of edges are kept that are so many times narrower than what is computed of them."""
    apart = narrow_values_apart(message, share)
    found = _of_rest(apart, message, reduction, form_of)
    for node in apart.kept:
        found |= values_of(node)
    return found


def _of_networks(message: Node, reduction: Node) -> Forms:
    """The forms where values of networks are kept."""
    apart = networks_apart(message)
    return {**_of_rest(apart, message, reduction, _direct), **{id(node): _returned(node) for node in apart.kept}}


def _of_rest(
    apart: Apart, message: Node, reduction: Node | None, form_of: Callable[[Node, Node | None], Form]
) -> Forms:
    """The form of a message, or of its reduction, that reads values in memory."""
    of_rest = None if reduction is None else dataclasses.replace(reduction, args=(apart.message,))
    form = form_of(apart.message, of_rest)
    if isinstance(form, Network):
        form = dataclasses.replace(form, message=message, reduction=reduction)
    is_returned = reduction is None or (isinstance(form, Network) and form.is_returned)
    return {id(node): form for node in (reduction, message if is_returned else None) if node is not None}


def _first(*attempts: Callable[[], T]) -> T:
    """What the first attempt gives that is not refused; if all are, the reason of the first."""
    refusals = []
    for attempt in attempts:
        try:
            return attempt()
        except Refused as refusal:
            refusals.append(refusal)
    raise refusals[0]
