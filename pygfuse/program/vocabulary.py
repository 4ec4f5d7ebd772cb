"""The words of an edge program, beside Python's own operators ``+ - * /`` and unary ``-``.

A program is plain functions of *values on one edge*. A value is of one of two levels: *heads* (one number a head) or
*channels* (one number a head and channel); a heads value meets a channels value as in NumPy, spread over the head's
channels. Each backend gives the words a meaning: SIMD vectors on a CPU, the scalars of a lane on a GPU. Called on
tensors they compute the same with torch, where heads are ``[..., H, 1]`` and channels ``[..., H, C]``: that makes
every program its own reference. Called on the values of a trace they are recorded (`pygfuse.program.trace`).

Example:
    >>> import torch
    >>> leaky_relu(torch.tensor([-1.0, 2.0]), 0.2)
    tensor([-0.2000,  2.0000])
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from pygfuse.program.splitmix import drawn

WORDS: dict[str, Callable] = {}


def word(function: Callable) -> Callable:
    """Registers a word: recorded when any argument is traced, else computed by torch; of numbers alone, as absent
    operands are, a number."""

    @functools.wraps(function)
    def said(*arguments: Any) -> Any:
        for argument in arguments:
            record = getattr(argument, 'record_word', None)
            if record is not None:
                return record(function.__name__, arguments)
        if all(isinstance(argument, (int, float)) for argument in arguments):
            numbers = [torch.tensor(float(number), dtype=torch.float64, device='cpu') for number in arguments]
            return function(*numbers).item()
        return function(*arguments)

    WORDS[function.__name__] = said
    return said


def _word_of_torch(name: str, says: str, function: Callable) -> Callable:
    """A word of one value that torch has under any name."""

    def of_one(x: Any) -> Any:
        return function(x)

    of_one.__name__, of_one.__qualname__, of_one.__doc__ = name, name, says
    return word(of_one)


exp = _word_of_torch('exp', 'The exponential.', torch.exp)
expm1 = _word_of_torch('expm1', '``exp(x) - 1``, with all digits where x is small.', torch.expm1)
log = _word_of_torch('log', 'The natural logarithm of a positive value.', torch.log)
sqrt = _word_of_torch('sqrt', 'The square root.', torch.sqrt)
sigmoid = _word_of_torch('sigmoid', '``1 / (1 + exp(-x))``.', torch.sigmoid)
tanh = _word_of_torch('tanh', 'The hyperbolic tangent.', torch.tanh)
softplus = _word_of_torch('softplus', '``log(1 + exp(x))``.', torch.nn.functional.softplus)
relu = _word_of_torch('relu', '``x`` where x > 0, else 0.', torch.relu)


@word
def tail(x: Any) -> Any:
    """``exp(-|x|)``."""
    return torch.exp(-x.abs())


@word
def log1p(x: Any) -> Any:
    """``log(1 + x)`` of an x from 0 to 1, with all digits of a small one."""
    return torch.log1p(x)


@word
def normal_cdf(x: Any) -> Any:
    """The share of a normal distribution that is less than x."""
    # not ndtr, which loses the digits of what is small
    return 0.5 * torch.erfc(x * -math.sqrt(0.5))


@word
def normal_tail(x: Any) -> Any:
    """The share of a normal distribution beyond ``|x|``, over ``exp(-x^2 / 2)``."""
    return 0.5 * torch.special.erfcx(x.abs() * math.sqrt(0.5))


@word
def sigmoid_slope(x: Any) -> Any:
    """The derivative of the sigmoid, with all digits where it is near 0."""
    return torch.sigmoid(x) * torch.sigmoid(-x)


@word
def sech_squared(x: Any) -> Any:
    """``1 - tanh(x)^2``, with all digits where the tangent is near 1."""
    e = torch.exp(-2.0 * x.abs())
    return 4.0 * e / ((1.0 + e) * (1.0 + e))


@word
def positive(x: Any, then: Any, otherwise: Any) -> Any:
    """`then` where x > 0, else `otherwise`: rectifiers and their derivatives."""
    return torch.where(x > 0, then, otherwise)


@word
def equal(x: Any, y: Any, then: Any, otherwise: Any) -> Any:
    """`then` where x equals y, else `otherwise`."""
    return torch.where(x == y, then, otherwise)


@word
def maximum(x: Any, y: Any) -> Any:
    """The greater of two values; NaN if either is."""
    return torch.maximum(x, y)


@word
def leaky_relu(x: Any, negative_slope: Any) -> Any:
    """``x`` where x > 0, else ``negative_slope * x``."""
    return torch.where(x > 0, x, x * negative_slope)


@word
def dropout_factor(mark: Any, key: Any, probability: Any) -> Any:
    """0 with a probability, else ``1 / (1 - probability)``: drawn from an edge's mark and a channel's key
    (`pygfuse.program.splitmix`), none of which has a gradient."""
    probability = torch.as_tensor(probability).detach()
    scale = torch.where(probability < 1.0, 1.0 / (1.0 - probability), 0.0)
    return torch.where(drawn(mark, key) >= probability, scale, 0.0)


@word
def sum_channels(x: Any) -> Any:
    """The sum of a channels value over each head's channels: a heads value."""
    return x.sum(dim=-1, keepdim=True)


# words that are tens of instructions each
LONG = frozenset(
    function.__name__
    for function in (exp, expm1, log, sigmoid, tanh, softplus, tail, log1p, normal_cdf, sigmoid_slope, sech_squared)
)
