"""Variances and standard deviations of values of edges, over all of them or over what each has."""

from __future__ import annotations

import math
from typing import Any

import torch

from pygfuse.compiler.functions.of_nodes import number_of_rows
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES
from pygfuse.compiler.symbols.symbol import Symbol, handler, recorded


@handler('var')
def _var(x: Symbol, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
         ) -> Symbol:  # fmt: skip
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if x.rows != NUM_EDGES:
        # torch takes those of nodes
        raise Refused('a variance of something that is no value of edges')
    correction = int(unbiased) if correction is None else correction
    dims = tuple(range(x.dim())) if dim is None else dim
    deviation = recorded(torch.sub, (x, recorded(torch.mean, (x, dims, True))))
    squares = recorded(torch.sum, (recorded(torch.mul, (deviation, deviation)), dims, keepdim))
    count = _count_of(x, dims)
    return recorded(torch.div, (squares, count - correction if correction else count))


def _count_of(x: Symbol, dims: Any) -> Any:
    """How many numbers are added up over dimensions."""
    each = [d % x.dim() for d in ((dims,) if isinstance(dims, int) else dims)]
    count = math.prod(x.node.shape[d - 1] for d in each if d > 0)
    return number_of_rows(NUM_EDGES, x.dtype) * count if 0 in each else count


@handler('std')
def _std(x: Symbol, *args: Any, **kwargs: Any) -> Symbol:
    variance = _var(x, *args, **kwargs)
    # torch gives no gradient where nothing deviates
    is_zero = recorded(torch.eq, (variance, 0.0))
    return recorded(
        torch.where, (is_zero, 0.0, recorded(torch.sqrt, (recorded(torch.where, (is_zero, 1.0, variance)),)))
    )
