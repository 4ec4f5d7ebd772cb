"""The kernels of the walks: one for each program, layout and form, made when it is first asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pygfuse.codegen.precision import fuses_products
from pygfuse.cuda.kernel import BACKWARD_BLOCKS, FORWARD_BLOCKS, Kernel
from pygfuse.cuda.layout import Layout
from pygfuse.cuda.walks.backward import backward_body
from pygfuse.cuda.walks.forward import combine_body, dots_body, fold_body, forward_body
from pygfuse.cuda.walks.nearest import nearest_body
from pygfuse.cuda.walks.random import factors_body
from pygfuse.cuda.walks.weights import weights_body
from pygfuse.cuda.walks.within import count_body, write_body
from pygfuse.program.adjoint import BackwardPlan
from pygfuse.program.program import BoundProgram


def _key(bound: BoundProgram, *rest: object) -> tuple[str, ...]:
    """What, beside layout and arguments, decides a walk's machine code."""
    texts = [trace.text('f') for trace in (bound.score, bound.message) if trace is not None]
    return (*texts, repr((bound.softmax, bound.present, bound.products, rest)))


@functools.lru_cache(maxsize=256)
def forward_kernel(bound: BoundProgram, layout: Layout, reduce: str, two_pass: bool = False) -> Kernel:
    make = functools.partial(_made, forward_body, bound, (reduce, two_pass))
    named = _named(layout, f'{bound.program.name} forward', _key(bound, reduce, two_pass))
    return Kernel(make, *named, fuses_products(reduce), FORWARD_BLOCKS)


@functools.lru_cache(maxsize=256)
def backward_kernel(
    bound: BoundProgram, layout: Layout, plan: BackwardPlan, reduce: str, keeps: bool = False
) -> Kernel:
    make, extreme = functools.partial(_made, backward_body, bound, (plan, reduce, keeps)), reduce in ('max', 'min')
    named = _named(layout, f'{bound.program.name} backward by {plan.side}', _key(bound, plan, extreme, keeps))
    return Kernel(make, *named, fuses_products(reduce), BACKWARD_BLOCKS)


@functools.lru_cache(maxsize=256)
def weights_kernel(bound: BoundProgram, layout: Layout, reduce: str) -> Kernel:
    make = functools.partial(_made, weights_body, bound, ())
    return Kernel(make, *_named(layout, f'{bound.program.name} weights', _key(bound)), fuses_products(reduce))


def _made(body: Callable, bound: BoundProgram, rest: tuple, lanes: Any) -> Callable:
    return body(bound, lanes, *rest)


@functools.lru_cache(maxsize=256)
def combine_kernel(layout: Layout, softmax: bool, reduce: str) -> Kernel:
    named = _named(layout, 'rows of parts', (repr((softmax, reduce)),))
    return Kernel(lambda lanes: combine_body(lanes, softmax, reduce), *named)


@functools.lru_cache(maxsize=256)
def fold_kernel(layout: Layout, softmax: bool, reduce: str) -> Kernel:
    named = _named(layout, 'pieces of rows', (repr((softmax, reduce)),))
    return Kernel(lambda lanes: fold_body(lanes, softmax, reduce), *named)


@functools.lru_cache(maxsize=256)
def dots_kernel(layout: Layout) -> Kernel:
    return Kernel(dots_body, *_named(layout, 'dots of rows'))


@functools.lru_cache(maxsize=256)
def factors_kernel(layout: Layout) -> Kernel:
    return Kernel(factors_body, *_named(layout, 'dropout factors'))


# searches among points: the same distances as on a CPU, so no product is fused with a sum


@functools.lru_cache(maxsize=256)
def nearest_kernel(layout: Layout) -> Kernel:
    return Kernel(nearest_body, *_named(layout, 'nearest points'), False, FORWARD_BLOCKS)


@functools.lru_cache(maxsize=256)
def count_kernel(layout: Layout) -> Kernel:
    return Kernel(count_body, *_named(layout, 'points within a distance, counted'), False, FORWARD_BLOCKS)


@functools.lru_cache(maxsize=256)
def write_kernel(layout: Layout) -> Kernel:
    return Kernel(write_body, *_named(layout, 'points within a distance'), False, FORWARD_BLOCKS)


def _named(layout: Layout, name: str, key: tuple[str, ...] = ()) -> tuple[Layout, str, tuple[str, ...]]:
    """The layout, name and key of a kernel."""
    return layout, f'{name}, {layout.heads} x {layout.channels}, {layout.element}', (name, *key)
