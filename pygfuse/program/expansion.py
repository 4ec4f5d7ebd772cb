"""Words that are written out in others: what several of one value have in common is then computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pygfuse.program.vocabulary import exp, log1p, normal_tail, positive, relu, tail


def _sigmoids(x: Any) -> tuple[Any, Any]:
    """The sigmoid of -|x| and that of |x|: nothing overflows, and a small one has all its digits."""
    e = tail(x)
    above = 1.0 / (1.0 + e)
    return e * above, above


def _sigmoid(x: Any) -> Any:
    below, above = _sigmoids(x)
    return positive(x, above, below)


def _sigmoid_slope(x: Any) -> Any:
    below, above = _sigmoids(x)
    return below * above


def _softplus(x: Any) -> Any:
    return relu(x) + log1p(tail(x))


def _normal_cdf(x: Any) -> Any:
    # the exponential is that of the derivative
    beyond = exp(x * x * -0.5) * normal_tail(x)
    return positive(x, 1.0 - beyond, beyond)


EXPANSIONS: dict[str, Callable] = {
    'sigmoid': _sigmoid,
    'sigmoid_slope': _sigmoid_slope,
    'softplus': _softplus,
    'normal_cdf': _normal_cdf,
}
