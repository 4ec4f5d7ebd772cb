"""Which form values of edges and their reductions take: a program, a network, or operators on chunks of edges."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from pygfuse.compiler.forms.along_edges import AlongEdges, along_edges
from pygfuse.compiler.forms.bases import bases_apart
from pygfuse.compiler.forms.channel_sums import channel_sums_apart
from pygfuse.compiler.forms.chunked import Chunked, chunked
from pygfuse.compiler.forms.kept import SHARES, Apart, narrow_values_apart, networks_apart, wordless_apart
from pygfuse.compiler.forms.lowering import Walk, lowered
from pygfuse.compiler.forms.weighed import Weighed
from pygfuse.compiler.ir.values import Node, computed_on_edges, value
from pygfuse.compiler.networks.network import Network
from pygfuse.compiler.networks.reading import network_of
from pygfuse.compiler.passes.maps_to_one import maps_to_one_as_sums
from pygfuse.compiler.passes.small_sums import MOST_MAPPED, small_sums_written_out
from pygfuse.compiler.refusal import Refused

T = TypeVar('T')
Form: TypeAlias = Walk | Network | Chunked | AlongEdges | Weighed
# by the identity of the value
Forms: TypeAlias = dict[int, Form]


def forms_of(reduction: Node, keeps_wide: bool = True) -> Forms:
    """The form of a reduction, and those of values of edges that are kept for it.

    Args:
        reduction: The reduction.
        keeps_wide: Whether values may be kept that are as wide as what it reduces.

    Raises:
        Refused: If there is none; why there is no program.

    Example:
        >>> import torch
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x_i, x_j = leaf('x_i', 'target', (4,), torch.float32), leaf('x_j', 'source', (4,), torch.float32)
        >>> distance = value('norm', value('sub', x_i, x_j), p=2, dim=(1,), keepdim=True)
        >>> found = forms_of(value('reduce', value('mul', distance, x_j), reduce='sum'))
        >>> [form.title for form in found.values()]
        ['walk: sum, heads=1, channels=4', 'operators on chunks of edges']
    """
    (message,) = reduction.args
    return _first(
        lambda: {id(reduction): _direct(message, reduction)},
        *_attempts_with_kept(message, reduction, _direct, keeps_wide),
        lambda: _of_sums(message, reduction),
        *_attempts_with_bases(message, reduction, _direct, keeps_wide),
        *(functools.partial(attempt, message, reduction) for attempt in (_of_networks, _without_words) if keeps_wide),
        lambda: {id(reduction): _by_terms(message, reduction)},
        *_attempts_with_kept(message, reduction, _by_terms, keeps_wide),
        lambda: {id(reduction): chunked(message, reduction)},
    )


def why_no_kernel(reduction: Node) -> str:
    """Why a reduction that runs by operators on chunks has neither a program nor a network."""
    try:
        _direct(reduction.args[0], reduction)
    except Refused as refusal:
        return str(refusal)
    raise ValueError('Expected a reduction without a kernel')


def values_of(message: Node, keeps_wide: bool = True) -> Forms:
    """The form of values of edges that are wanted themselves, and those of others that are kept for them.

    Args:
        message: The values.
        keeps_wide: Whether others may be kept that are as wide as they.

    Raises:
        Refused: If there is none; why there is no network.
    """
    return _first(
        lambda: {id(message): along_edges(message)},
        lambda: {id(message): _with_small_sums(message, MOST_MAPPED)},
        lambda: _values_without_words(message),
        lambda: _values_of_sums(message),
        lambda: _values_of_products(message),
        lambda: _values_of_network(message, keeps_wide),
        *(
            functools.partial(attempt, message)
            for attempt in (_values_of_networks, _values_along_networks)
            if keeps_wide
        ),
        lambda: {id(message): _with_small_sums(message)},
        lambda: {id(message): chunked(message)},
    )


def are_written_along(form: Form | None) -> bool:
    """Whether values of edges are written by a walk, or computed of a few such numbers."""
    return isinstance(form, (AlongEdges, Weighed)) or (isinstance(form, Chunked) and form.is_small)


def _with_small_sums(message: Node, *most_mapped: int) -> Form:
    """Values of edges whose sums of a few numbers are written out."""
    found = small_sums_written_out(value('reduce', message, reduce='sum'), *most_mapped).args[0]
    if found is message:
        raise Refused('no sums of a few numbers')
    return dataclasses.replace(along_edges(found), message=message)


def _values_without_words(message: Node) -> Forms:
    """The forms of values of edges that read narrow ones from memory which programs have no words for."""
    apart = wordless_apart(message)
    if any(2 * node.width > message.width for node in apart.kept):
        raise Refused('wide values without words')
    found: Forms = {id(message): dataclasses.replace(along_edges(apart.message), message=message)}
    for node in apart.kept:
        found |= values_of(node)
    return found


def _values_of_sums(message: Node) -> Forms:
    """The forms of values of edges that read sums over channels from memory."""
    apart = channel_sums_apart(message)
    sums: Forms = {id(node): along_edges(node) for node in apart.kept}
    by_torch = chunked(apart.message)
    rest = by_torch if by_torch.is_small else _first(lambda: along_edges(apart.message), lambda: by_torch)
    return {id(message): _as_of(message, rest), **sums}


def _as_of(message: Node, form: AlongEdges | Chunked) -> AlongEdges | Chunked:
    """The form of values that are another way to write these."""
    return dataclasses.replace(form, message=message) if isinstance(form, AlongEdges) else form


def _values_of_products(message: Node) -> Forms:
    """The forms of values of edges that are products with a row of weights, as scores by a network's last map are."""
    found = maps_to_one_as_sums(message)
    if found is message:
        raise Refused('no linear maps to one number')
    if any(parent.op == 'kept' for node in computed_on_edges(found) for parent in node.parents()):
        # which are mapped once, by a network
        raise Refused('maps of values in memory')
    forms = _first(lambda: {id(found): along_edges(found)}, lambda: _values_of_sums(found))
    return {id(message): _as_of(message, forms.pop(id(found))), **forms}


def _values_of_network(message: Node, keeps_wide: bool = True) -> Forms:
    return _first(lambda: {id(message): _returned(message)}, *_attempts_with_kept(message, None, _returned, keeps_wide))


def reduced_and_returned(reduction: Node, message: Node, keeps_wide: bool = True) -> Forms:
    """The form of a reduction and of what it reduces, which somebody wants as well.

    Args:
        reduction: The reduction, which may read its message from memory.
        message: What it reduces.
        keeps_wide: Whether values may be kept that are as wide as this.

    Raises:
        Refused: If there is none; why there is no network.
    """
    return _first(
        lambda: {id(message): along_edges(message), **forms_of(reduction, keeps_wide)},
        lambda: dict.fromkeys((id(reduction), id(message)), _returned(message, reduction)),
        *_attempts_with_kept(message, reduction, _returned, keeps_wide),
        *_attempts_with_bases(message, reduction, _returned, keeps_wide),
    )


def _direct(message: Node, reduction: Node) -> Form:
    """A program or a network of a reduction that reads no other values of edges."""
    return _first(
        lambda: lowered(reduction),
        lambda: network_of(message, reduction),
        lambda: lowered(small_sums_written_out(reduction, MOST_MAPPED)),
    )


def _by_terms(message: Node, reduction: Node) -> Form:
    """A program in which maps of longer rows are written out: slower than others, but not than operators on chunks."""
    return dataclasses.replace(lowered(small_sums_written_out(reduction)), is_by_terms=True)


def _returned(message: Node, reduction: Node | None = None) -> Form:
    return network_of(message, reduction, is_returned=True)


def _attempts_with_kept(
    message: Node,
    reduction: Node | None,
    form_of: Callable[[Node, Node | None], Form],
    keeps_wide: bool = True,
) -> list[Callable[[], Forms]]:
    return [functools.partial(_with_kept, message, reduction, form_of, share, keeps_wide) for share in SHARES]


def _with_kept(
    message: Node,
    reduction: Node | None,
    form_of: Callable[[Node, Node | None], Form],
    share: int,
    keeps_wide: bool,
) -> Forms:
    """The forms where values of edges are kept that are so many times narrower than what is computed of them."""
    return _that_read(narrow_values_apart(message, share), message, reduction, form_of, keeps_wide)


def _attempts_with_bases(
    message: Node, reduction: Node | None, form_of: Callable[[Node, Node | None], Form], keeps_wide: bool
) -> list[Callable[[], Forms]]:
    return [functools.partial(_with_bases, message, reduction, form_of)] if keeps_wide else []


def _with_bases(message: Node, reduction: Node | None, form_of: Callable[[Node, Node | None], Form]) -> Forms:
    """The forms where functions of narrow values are kept that networks read, however wide these are."""
    return _that_read(bases_apart(message), message, reduction, form_of, keeps_wide=True)


def _that_read(
    apart: Apart,
    message: Node,
    reduction: Node | None,
    form_of: Callable[[Node, Node | None], Form],
    keeps_wide: bool,
) -> Forms:
    """The forms of what reads values in memory, and theirs."""
    found = _of_rest(apart, message, reduction, form_of)
    for node in apart.kept:
        found |= values_of(node, keeps_wide)
    return found


def _of_networks(message: Node, reduction: Node) -> Forms:
    """The forms where values of networks are kept."""
    return _of_the_rest_of(networks_apart(message), message, reduction, _values_of_network)


def _of_sums(message: Node, reduction: Node) -> Forms:
    """The forms of a reduction of few numbers that are computed of sums over channels, which are kept."""
    apart = channel_sums_apart(message)
    of_rest = dataclasses.replace(reduction, args=(apart.message,))
    return {id(reduction): _direct(apart.message, of_rest), **{id(node): along_edges(node) for node in apart.kept}}


def _without_words(message: Node, reduction: Node) -> Forms:
    """The forms where values are kept that programs have no words for."""
    return _of_the_rest_of(wordless_apart(message), message, reduction, values_of, _of_networks)


def _of_the_rest_of(
    apart: Apart,
    message: Node,
    reduction: Node,
    of_kept: Callable[[Node], Forms],
    *others: Callable[[Node, Node], Forms],
) -> Forms:
    """The forms of a reduction that reads values in memory, and theirs.

    Args:
        apart: The message that reads them.
        message, reduction: What is wanted.
        of_kept: Gives the forms of one of these values.
        others: What is tried for the rest where it is no program and no network.
    """
    of_rest = dataclasses.replace(reduction, args=(apart.message,))
    found = _first(
        lambda: {id(of_rest): _direct(apart.message, of_rest)},
        *_attempts_with_kept(apart.message, of_rest, _direct),
        *(functools.partial(other, apart.message, of_rest) for other in others),
    )
    found[id(reduction)] = _that_gives(found.pop(id(of_rest)), message, reduction)
    for node in apart.kept:
        found |= of_kept(node)
    return found


def _values_of_networks(message: Node) -> Forms:
    """The forms of a network's values that reads what others give."""
    apart = networks_apart(message, is_wanted=True)
    found = _of_rest(apart, message, None, _returned)
    for node in apart.kept:
        found |= _values_of_network(node)
    return found


def _values_along_networks(message: Node) -> Forms:
    """The forms of a program's values that reads what networks give."""
    apart = networks_apart(message)
    found: Forms = {id(message): dataclasses.replace(along_edges(apart.message), message=message)}
    for node in apart.kept:
        found |= _values_of_network(node)
    return found


def _of_rest(
    apart: Apart, message: Node, reduction: Node | None, form_of: Callable[[Node, Node | None], Form]
) -> Forms:
    """The form of a message, or of its reduction, that reads values in memory."""
    of_rest = None if reduction is None else dataclasses.replace(reduction, args=(apart.message,))
    form = _that_gives(form_of(apart.message, of_rest), message, reduction)
    is_returned = reduction is None or (isinstance(form, Network) and form.is_returned)
    return {id(node): form for node in (reduction, message if is_returned else None) if node is not None}


def _that_gives(form: Form, message: Node, reduction: Node | None) -> Form:
    """The form of values of others, which read values in memory, as that of the values themselves."""
    return dataclasses.replace(form, message=message, reduction=reduction) if isinstance(form, Network) else form


def _first(*attempts: Callable[[], T]) -> T:
    """What the first attempt gives that is not refused; if all are, the reason of the first."""
    refusals = []
    for attempt in attempts:
        try:
            return attempt()
        except Refused as refusal:
            refusals.append(refusal)
    raise refusals[0]
