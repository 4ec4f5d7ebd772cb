"""``einsum`` as a linear map, as a product and a sum, or as products by matrices, for which programs have words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pygfuse.compiler.functions.bilinear import bilinear
from pygfuse.compiler.functions.own_matrices import MOST_OF_SMALL, product
from pygfuse.compiler.functions.typed_maps import typed_product_by
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.symbol import Symbol, handler, made, recorded


@handler('einsum')
def _einsum(equation: str, *tensors: Any) -> Symbol:
    tensors = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Symbol) else tensors
    terms, _, result = equation.replace(' ', '').partition('->')
    terms = terms.split(',')
    of_rows = {t[0] for t, x in zip(terms, tensors, strict=True) if x.rows is not None}
    shared = ''.join(t for t, x in zip(terms, tensors, strict=True) if x.rows is None)
    repeated = any(t[1:].count(t[0]) for t in terms)
    is_by_matrix = len(tensors) == 2 and not shared and [len(term) for term in terms] == [2, 3]
    if is_by_matrix and terms[1][:2] == terms[0] and result == terms[0][0] + terms[1][2]:
        x, matrix = tensors
        # of matrices that are no linear map the equation stays
        with contextlib.suppress(Refused):
            found = product(made('reshape', x, shape=(1, x.node.width)), matrix)
            return made('reshape', found, shape=(found.node.width,))
    with contextlib.suppress(Refused):
        return typed_product_by(terms, result, tensors)
    if '.' in equation or len(of_rows) != 1 or result[:1] not in of_rows or result[:1] in shared or repeated:
        raise Refused('einsum over the dimension of edges')
    for rewritten in (without_ones, bilinear, written_out):
        found = rewritten(terms, result, tensors)
        if found is not None:
            return found
    return made('einsum', *tensors, equation=equation)


def written_out(terms: Sequence[str], result: str, tensors: Sequence[Symbol]) -> Symbol | None:
    """What an equation of two values gives, without ``einsum``; None where no other operators are better.

    So it is where an edge has a matrix of more than a few numbers, or letters are in no order that one of the two has.

    Args:
        terms: The letters of each value's dimensions; of values of edges or nodes the first is that of rows, which is
            the first of the result's and in no term twice.
        result: The letters of the result's.
        tensors: The values.
    """
    if len(terms) != 2 or any(len(set(term)) < len(term) for term in (*terms, result)):
        return None
    if any(tensor.is_stacked for tensor in tensors) or not {*result} <= {*''.join(terms)}:
        return None
    (first, x), (second, y) = sorted(zip(terms, tensors, strict=True), key=lambda pair: pair[1].rows is None)
    if y.rows is None:
        second, y = _summed(second, y, {*first, *result})
        if len(second) == 2 and second.replace(first[-1], '') == result[-1:] and result[:-1] == first[:-1]:
            return recorded(torch.matmul, (x, y if second[0] == first[-1] else y.t()))
    for order, others in ((first, second), (second, first), (result, first + second)):
        # letters that the result lacks stand where they are in a value, and are added up
        kept = ''.join(letter for letter in order if letter in result)
        dims = tuple(k for k, letter in enumerate(order) if letter not in result)
        is_by_matrix = y.rows is not None and dims and {*others} < {*order}
        if {*others} <= {*order} and kept == result:
            product = recorded(torch.mul, (_aligned(first, x, order), _aligned(second, y, order)))
            if is_by_matrix and product.node.width > MOST_OF_SMALL:
                return None
            return recorded(torch.sum, (product, dims)) if dims else product
    return None


def without_ones(terms: Sequence[str], result: str, tensors: Sequence[Symbol]) -> Symbol | None:
    """What an equation gives whose result has dimensions of one number; None if it has none.

    Arguments are those of `written_out`.
    """
    sizes = {letter: size for term, x in zip(terms, tensors, strict=True) for letter, size in _sizes(term, x)}
    ones = {letter for letter in result[1:] if sizes[letter] == 1 and sum(letter in term for term in terms) == 1}
    if not ones:
        return None
    kept = [''.join(letter for letter in term if letter not in ones) for term in (*terms, result)]
    views = [recorded(torch.squeeze, (x, _places(term, ones))) for term, x in zip(terms, tensors, strict=True)]
    found = recorded(torch.einsum, (f'{",".join(kept[:-1])}->{kept[-1]}', *views))
    for place in _places(result, ones):
        found = recorded(torch.unsqueeze, (found, place))
    return found


def _sizes(term: str, x: Symbol) -> Iterator[tuple[str, int]]:
    """The size of each dimension but for that of rows."""
    return zip(term[x.rows is not None :], x.node.shape, strict=True)


def _places(term: str, letters: set[str]) -> tuple[int, ...]:
    return tuple([place for place, letter in enumerate(term) if letter in letters])


def _summed(term: str, x: Symbol, wanted: set[str]) -> tuple[str, Symbol]:
    """A value without the dimensions that nothing else has."""
    dims = tuple(k for k, letter in enumerate(term) if letter not in wanted)
    kept = ''.join(letter for letter in term if letter in wanted)
    return (kept, recorded(torch.sum, (x, dims))) if dims else (term, x)


def _aligned(term: str, x: Symbol, order: str) -> Symbol:
    """A value with its dimensions in an order, and dimensions of 1 for letters that it lacks."""
    found = [letter for letter in order if letter in term]
    if ''.join(found) != term:
        x = recorded(torch.permute, (x, tuple(term.index(letter) for letter in found)))
    for k, letter in enumerate(order):
        if letter not in term:
            x = recorded(torch.unsqueeze, (x, k))
    return x
