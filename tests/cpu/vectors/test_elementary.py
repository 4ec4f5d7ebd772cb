"""Exponential functions at any magnitude: as many digits as torch's, of values and of gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES
from pygfuse.cpu.walks.inlining import compiled
from pygfuse.ops import Edges, aggregate
from pygfuse.program.activation import Activation
from pygfuse.program.library.edge_values import EDGE_VALUES
from pygfuse.program.trace import HEADS, Trace
from pygfuse.program.vocabulary import exp, expm1, normal_cdf, sech_squared, sigmoid, sigmoid_slope, softplus, tanh

INFINITY, NAN = float('inf'), float('nan')
WORDS = {
    'exp': (exp, torch.exp),
    'expm1': (expm1, torch.expm1),
    'sigmoid': (sigmoid, torch.sigmoid),
    'sigmoid_slope': (sigmoid_slope, sigmoid_slope),
    'tanh': (tanh, torch.tanh),
    'sech_squared': (sech_squared, sech_squared),
    'normal_cdf': (normal_cdf, normal_cdf),
    # torch leaves out the tail by default
    'softplus': (softplus, lambda x: torch.nn.functional.softplus(x, 1.0, 700.0 if x.dtype == torch.float64 else 20.0)),
}
ACTIVATIONS = [
    Activation('elu', (1.0, 1.0)),
    Activation('elu', (1.6732632423543772, 1.0507009873554805)),
    Activation('silu'),
    Activation('gelu'),
    Activation('gelu_tanh'),
    Activation('tanh'),
    Activation('sigmoid'),
    Activation('softplus', (1.0, 20.0)),
]
# relative errors above it have to be excused by torch's own
FLOOR = 4 * torch.finfo(torch.float32).eps
LEAST = torch.finfo(torch.float32).smallest_normal


def arguments() -> Tensor:
    """Both signs of magnitudes from 1e-38 to 1e4, most of them where functions change."""
    sizes = torch.cat([torch.logspace(-38, -2, 2000), torch.logspace(-2, 2, 20_000), torch.logspace(2, 4, 500)])
    return torch.cat([sizes, -sizes])


def on_vectors(word, x: Tensor) -> Tensor:
    """A word on vectors of 16 heads."""
    layout = Layout(ELEMENT_TYPES[x.dtype], 16, 1)
    load, store = layout.load_heads, layout.store_heads
    text = Trace.of(lambda x: word(x), {'x': HEADS}).text('written')
    written = compiled(text)

    def body(part, x, out):
        store(out, part * 16, written(load(x, part * 16)))

    padded = torch.cat([x, x.new_zeros(-len(x) % 16)])
    out = torch.empty_like(padded)
    Kernel(body, f'test of {word.__name__}', (str(layout.head), text))(len(padded) // 16, padded, out)
    return out[: len(x)]


def relative_error(found: Tensor, exact: Tensor) -> Tensor:
    """Relative to normal numbers; below them, to the least."""
    inside = exact.abs() <= torch.finfo(torch.float32).max
    assert bool((found.double()[~inside] == exact[~inside].float().double()).all())
    return torch.where(inside, (found.double() - exact).abs() / exact.abs().clamp(min=LEAST), 0.0)


def assert_as_exact(found: Tensor, plain: Tensor, exact: Tensor, x: Tensor) -> None:
    """In each range of arguments the greatest error is at most twice torch's."""
    errors, theirs = relative_error(found, exact), relative_error(plain, exact)
    decades = (x.abs().log10() * torch.where(x.abs() > 0.1, 8, 1)).floor() * x.sign()
    for decade in decades.unique():
        some = decades == decade
        worst = errors[some].argmax()
        allowed = max(FLOOR, 2 * float(theirs[some].max()))
        assert errors[some][worst] <= allowed, f'{errors[some][worst]:.3g} at {x[some][worst]:.6g}, {allowed:.3g}'


@pytest.mark.parametrize('name', WORDS)
def test_words_are_as_exact_as_those_of_torch(name):
    word, torchs = WORDS[name]
    x = arguments()
    assert_as_exact(on_vectors(word, x), torchs(x), torchs(x.double()), x)


@pytest.mark.parametrize('name', WORDS)
def test_words_in_float64(name):
    word, torchs = WORDS[name]
    x = arguments().double()
    torch.testing.assert_close(on_vectors(word, x), torchs(x), rtol=ROUNDED.get(name, 2e-15), atol=1e-307)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('name', WORDS)
def test_words_of_extremes(name, dtype):
    word, torchs = WORDS[name]
    x = torch.tensor([0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-42, -1e-42, 3e38, -3e38], dtype=dtype)
    torch.testing.assert_close(on_vectors(word, x), torchs(x), rtol=1e-6, atol=0, equal_nan=True)


def own_edges(nodes: int) -> Edges:
    return Edges(torch.arange(nodes).expand(2, nodes).contiguous(), nodes, nodes)


# the exponent of a normal distribution is rounded, as is that of torch's
ROUNDED = {'normal_cdf': 2e-13}

# the functions as they keep their digits: torch's lose some in float64, too
EXACT = {
    'gelu': lambda x: x * normal_cdf(x),
    'gelu_tanh': lambda x: x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)),
    'softplus': lambda x: torch.nn.functional.softplus(x, 1.0, 700.0),
}

SLOPES = {'tanh': sech_squared, 'sigmoid': lambda x: torch.sigmoid(x) * torch.sigmoid(-x)}


def of_torch(activation: Callable, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    out = activation(x)
    return out.detach(), torch.autograd.grad(out.sum(), x)[0]


@pytest.mark.parametrize('activation', ACTIVATIONS, ids=str)
def test_activations_and_their_derivatives_are_as_exact_as_those_of_torch(activation):
    x = arguments().requires_grad_()
    numbers = dict(zip(('first', 'second'), activation.numbers, strict=False))
    operands = {'x': x.unsqueeze(1), 'x_dst': torch.zeros(len(x), 1), **numbers}
    out = aggregate(EDGE_VALUES[activation.name], own_edges(len(x)), operands, 1, 1).flatten()
    (slope,) = torch.autograd.grad(out.sum(), x)
    x = x.detach()
    plain, exact = of_torch(activation, x), of_torch(EXACT.get(activation.name, activation), x.double())
    assert_as_exact(out.detach(), plain[0], exact[0], x)
    right = SLOPES[activation.name](x.double()) if activation.name in SLOPES else exact[1]
    # around the root of a slope its relative error has no bound
    apart = (x < -2) | (x > -0.5) | (activation.name not in ('silu', 'gelu', 'gelu_tanh'))
    assert_as_exact(slope[apart], plain[1][apart], right[apart], x[apart])
