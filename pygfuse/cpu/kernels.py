"""The kernels of the walks: one for each program, layout and form, made when it is first asked for."""

from __future__ import annotations

import functools

from pygfuse.codegen.precision import fuses_products
from pygfuse.codegen.row_tiling import Tiling
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.walks.arguments import BACKWARD, COMBINE, COMBINE_SUMS, FORWARD, PASSED_SUM, SETTLE, WEIGHTS
from pygfuse.cpu.walks.backward import backward_body
from pygfuse.cpu.walks.forward import ONE_PASS, combine_body, forward_body, settle_body
from pygfuse.cpu.walks.listed_backward import LISTED_BACKWARD, listed_backward_body
from pygfuse.cpu.walks.listed_forward import LISTED_FORWARD, listed_forward_body
from pygfuse.cpu.walks.sums import combine_sums_body, passed_sum_body
from pygfuse.cpu.walks.weights import weights_body
from pygfuse.program.adjoint import BackwardPlan
from pygfuse.program.program import BoundProgram


def _key(bound: BoundProgram, tiling: Tiling, *rest: object) -> tuple[str, ...]:
    """What, beside its arguments, decides a walk's machine code."""
    texts = [trace.text('f') for trace in (bound.score, bound.message) if trace is not None]
    layout = tiling.layout
    return (*texts, repr((bound.softmax, bound.present, bound.products, layout.row, layout.edges, rest)))


@functools.lru_cache(maxsize=256)
def forward_kernel(
    bound: BoundProgram,
    tiling: Tiling,
    reduce: str,
    form: str = ONE_PASS,
    scattered: bool = False,
    carried: bool = False,
) -> Kernel:
    layout = tiling.layout
    return Kernel(
        forward_body(bound, layout, reduce, form, scattered, carried),
        f'{bound.program.name} forward ({form}), {layout.heads} x {layout.channels}, {layout.element}',
        _key(bound, tiling, reduce, form, scattered, carried),
        FORWARD,
        fuses_products(reduce),
    )


@functools.lru_cache(maxsize=256)
def weights_kernel(bound: BoundProgram, tiling: Tiling, reduce: str) -> Kernel:
    layout = tiling.layout
    return Kernel(
        weights_body(bound, layout),
        f'{bound.program.name} weights, {layout.heads} x {layout.channels}, {layout.element}',
        _key(bound, tiling),
        WEIGHTS,
        fuses_products(reduce),
    )


@functools.lru_cache(maxsize=256)
def backward_kernel(
    bound: BoundProgram, tiling: Tiling, plan: BackwardPlan, reduce: str, scattered: bool = False, carried: bool = False
) -> Kernel:
    layout = tiling.layout
    return Kernel(
        backward_body(bound, layout, plan, reduce, scattered, carried),
        f'{bound.program.name} backward by {plan.side}, {layout.heads} x {layout.channels}, {layout.element}',
        _key(bound, tiling, plan, reduce in ('max', 'min'), scattered, carried),
        BACKWARD,
        fuses_products(reduce),
    )


@functools.lru_cache(maxsize=256)
def listed_forward_kernel(bound: BoundProgram, tiling: Tiling, reduce: str) -> Kernel:
    layout = tiling.layout
    return Kernel(
        listed_forward_body(bound, layout, reduce),
        f'{bound.program.name} forward along few edges, {layout.heads} x {layout.channels}, {layout.element}',
        _key(bound, tiling, reduce),
        LISTED_FORWARD,
        fuses_products(reduce),
    )


@functools.lru_cache(maxsize=256)
def listed_backward_kernel(bound: BoundProgram, tiling: Tiling, plan: BackwardPlan, reduce: str) -> Kernel:
    layout = tiling.layout
    return Kernel(
        listed_backward_body(bound, layout, plan, reduce),
        f'{bound.program.name} backward along few edges, {layout.heads} x {layout.channels}, {layout.element}',
        _key(bound, tiling, plan, reduce),
        LISTED_BACKWARD,
        fuses_products(reduce),
    )


@functools.lru_cache(maxsize=256)
def passed_sum_kernel(tiling: Tiling) -> Kernel:
    layout = tiling.layout
    name = f'row sums, {layout.heads}, {layout.element}'
    return Kernel(passed_sum_body(layout), name, (str(layout.edges),), PASSED_SUM)


@functools.lru_cache(maxsize=256)
def combine_kernel(tiling: Tiling, softmax: bool, reduce: str, form: str) -> Kernel:
    layout = tiling.layout
    key = repr((layout.row, layout.edges, softmax, reduce, form))
    name = f'combination of rows ({form}), {layout.row}'
    return Kernel(combine_body(layout, softmax, reduce, form), name, (key,), COMBINE)


@functools.lru_cache(maxsize=256)
def settle_kernel(tiling: Tiling, softmax: bool, reduce: str) -> Kernel:
    layout = tiling.layout
    key = repr((layout.row, layout.edges, softmax, reduce))
    return Kernel(settle_body(layout, softmax, reduce), f'rows settled, {layout.row}', (key,), SETTLE)


@functools.lru_cache(maxsize=256)
def combine_sums_kernel(tiling: Tiling, num_heads: int, num_rows: int) -> Kernel:
    layout = tiling.layout
    key = repr((layout.row, layout.edges, num_heads, num_rows))
    name = f'combination of sums, {layout.row}'
    return Kernel(combine_sums_body(layout, num_heads, num_rows), name, (key,), COMBINE_SUMS)
