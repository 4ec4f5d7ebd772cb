"""Several linear maps of the same rows, and one result of maps of different rows.

Autograd would make a tensor of nodes and channels for each map's share of a gradient, and one for each sum of two; here
each share is added to those before it, as is a map's share of a result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from pygfuse._lib.functions import applied
from pygfuse._lib.pages import on_huge_pages
from pygfuse.ops.nodes.large_products import added_product, is_listed, product
from pygfuse.ops.nodes.large_sums import added
from pygfuse.ops.nodes.linear import (
    BLOCK_BYTES,
    Counts,
    apply_linear,
    apply_weight,
    gradients_of_map,
    is_large_map,
    is_listed_map,
    is_map_here,
    is_plain_linear,
)
from pygfuse.ops.nodes.product_lines import ProductLines, matrix
from pygfuse.ops.nodes.sum_maps import map_by_list
from pygfuse.ops.within_torch.lazy_values import given_values


class Map(NamedTuple):
    """A linear map of nodes.

    Attributes:
        weight: ``[out, in]``.
        bias: ``[out]``, or None.
        counts: As of `pygfuse.ops.nodes.linear.apply_weight`.
    """

    weight: Tensor
    bias: Tensor | None = None
    counts: Counts | None = None


class _MapsOfRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, counts: Sequence[Counts | None], x: Tensor, *given: Tensor | None) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, *given[::2])
        ctx.counts = counts
        ctx.set_materialize_grads(False)
        return tuple(products(x, given[::2], given[1::2]))

    @staticmethod
    @given_values
    def backward(ctx, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        of_x: Tensor | None = None
        rest: list[Tensor | None] = []
        _, needs_x, *needed = ctx.needs_input_grad
        for place, (grad, weight, counts) in enumerate(zip(grads, weights, ctx.counts, strict=True)):
            of_weight = of_bias = None
            if grad is not None:
                wanted = needs_x, *needed[2 * place : 2 * place + 2]
                of_x, of_weight, of_bias = gradients_of_map(x, weight, grad, wanted, counts, of_x=of_x)
            rest += [of_weight, of_bias]
        return None, of_x, *rest


def products(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> list[Tensor]:
    """Each weight's product with the rows, which are read once: part by part as products of a list, or block by block
    as one product with all weights.

    Args:
        x: ``[nodes, in]``.
        weights: ``[out, in]`` each.
        biases: ``[out]`` each, or None.
    """
    # no kernel looks at types
    if is_listed(x, *weights) and all(bias is None or bias.dtype is x.dtype for bias in biases):
        return _listed_products(tuple(bias is not None for bias in biases))(x, weights, biases)
    results = [on_huge_pages(x.new_empty(len(x), len(weight))) for weight in weights]
    widths, every = [len(weight) for weight in weights], torch.cat([*weights]).t()
    # a block of results stays in a core's cache
    at_once = min(len(x), max(64, BLOCK_BYTES // (x.element_size() * max(sum(widths), 1))))
    room = x.new_empty(at_once, sum(widths))
    for begin in range(0, len(x), at_once or 1):
        rows = x[begin : begin + at_once]
        found = torch.mm(rows, every, out=room[: len(rows)]).split(widths, dim=1)
        for result, part, bias in zip(results, found, biases, strict=True):
            place = result[begin : begin + at_once]
            place.copy_(part) if bias is None else torch.add(part, bias, out=place)
    return results


@functools.cache
def _listed_products(biased: tuple[bool, ...]) -> Callable[..., list[Tensor]]:
    """``products(x, weights, biases)`` of so many weights, with a bias or without."""
    lines = ProductLines('x')
    lines.prepare('rows, inner = x.shape')
    for i, has_bias in enumerate(biased):
        lines.prepare(f'weight{i}, bias{i}, width{i} = weights[{i}].contiguous(), biases[{i}], len(weights[{i}])')
        lines.expect([f'weight{i}.shape[1] == inner'], 'x', f'weight{i}')
        if has_bias:
            lines.prepare(f'bias{i} = bias{i}.contiguous()')
            lines.expect([f'bias{i}.numel() == width{i}'], f'weight{i}', f'bias{i}')
        lines.prepare(f'out{i} = on_huge_pages(x.new_empty(rows, width{i}))')
        left, right = matrix('x', 'x.stride(0)'), matrix(f'weight{i}', 'inner').turned
        bias = f'bias{i}.data_ptr()' if has_bias else 0
        lines.product(('rows', 'inner', f'width{i}'), left, right, matrix(f'out{i}', f'width{i}'), bias)
    found = ', '.join(f'out{i}' for i in range(len(biased)))
    return lines.function('x, weights, biases', f'[{found}]', {'on_huge_pages': on_huge_pages})


def maps_of_rows(x: Tensor, maps: Sequence[Map]) -> list[Tensor]:
    """``torch.nn.functional.linear(x, weight, bias)`` for each map, whose shares of the gradient of `x` are one tensor.

    Args:
        x: ``[nodes, in]``.
        maps: The maps.

    Example:
        >>> x = torch.ones(1, 3)
        >>> maps_of_rows(x, [Map(torch.ones(2, 3)), Map(torch.ones(1, 3), torch.ones(1))])
        [tensor([[3., 3.]]), tensor([[4.]])]
    """
    weights, biases, counts = zip(*maps, strict=True)
    if not is_map_here(x, *weights):
        return [apply_weight(x, *each) for each in maps]
    if not torch.is_grad_enabled():
        return products(x, weights, biases)
    given = [part for each in maps for part in each[:2]]
    return list(applied(_MapsOfRows, counts, x, *given))


def apply_linears(modules: Sequence[Module], x: Tensor) -> list[Tensor]:
    """``module(x)`` for each linear map of nodes, by `maps_of_rows` where each of them is no more than a map."""
    if is_large_map(x) and all(is_plain_linear(module) for module in modules):
        return maps_of_rows(x, [Map(module.weight, module.bias) for module in modules])
    return [apply_linear(module, x) for module in modules]


def apply_at_ends(target: Module, sources: Sequence[Module], x: tuple[Tensor, Tensor]) -> list[Tensor]:
    """A linear map of targets, and some of sources, see `apply_linears`.

    Args:
        target: What maps targets.
        sources: What maps sources.
        x: Features of sources and of targets.
    """
    if x[0] is x[1]:
        return apply_linears((target, *sources), x[0])
    return [apply_linear(target, x[1]), *apply_linears(sources, x[0])]


class _SumOfMaps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, first: Tensor, weight: Tensor, second: Tensor, other: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(first, weight, second, other)
        return added_product(product(second, other.t(), bias), first, weight.t())

    @staticmethod
    @given_values
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        first, weight, second, other = ctx.saved_tensors
        needs, no_bias = ctx.needs_input_grad, (False,)
        of_first = gradients_of_map(first, weight, grad, needs[:2] + no_bias)[:2]
        return *of_first, *gradients_of_map(second, other, grad, needs[2:])


def apply_both(linear: Module, first: Tensor, other: Module, second: Tensor) -> Tensor:
    """``linear(first) + other(second)``, of linear maps of nodes."""
    if is_listed_map(first, linear) and is_listed_map(second, other) and first.dtype is second.dtype:
        return map_by_list(first, linear.weight, bias_of_both(linear, other), second, other.weight)
    if is_plain_linear(linear) and is_plain_linear(other):
        weights = linear.weight, other.weight
        if is_large_map(first, *weights) and is_large_map(second, *weights) and first.dtype is second.dtype:
            return applied(_SumOfMaps, first, weights[0], second, weights[1], bias_of_both(linear, other))
    return added(apply_linear(linear, first), apply_linear(other, second))


def bias_of_both(linear: Module, other: Module) -> Tensor | None:
    """The bias of the sum of two linear maps, or None."""
    if linear.bias is None or other.bias is None:
        return other.bias if linear.bias is None else linear.bias
    return linear.bias + other.bias
