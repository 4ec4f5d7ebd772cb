from __future__ import annotations

import pytest
import torch

from pygfuse.program.trace import CHANNELS, HEADS, SCALAR, Trace
from pygfuse.program.vocabulary import (
    WORDS,
    equal,
    exp,
    expm1,
    leaky_relu,
    log,
    maximum,
    positive,
    relu,
    sech_squared,
    sigmoid,
    sigmoid_slope,
    softplus,
    sqrt,
    sum_channels,
    tanh,
)

H, C = 3, 4
LEVELS = {HEADS: (5, H, 1), CHANNELS: (5, H, C)}
FUNCTIONS = {
    'product': (lambda a, b: a * b, {'a': HEADS, 'b': CHANNELS}),
    'same operand twice': (lambda a: a * a + a, {'a': HEADS}),
    'quotient': (lambda a, b: a / (b * b + 1.0) - 2.0 / (a * a + 1.0), {'a': CHANNELS, 'b': HEADS}),
    'difference': (lambda a, b: -(a - b) + (1.0 - a), {'a': HEADS, 'b': HEADS}),
    'exp and log': (lambda a, b: log(exp(a) + 1.0) * b, {'a': HEADS, 'b': CHANNELS}),
    'rectifiers': (lambda a, b: leaky_relu(a, 0.2) + positive(b, a, 2.0 * b), {'a': CHANNELS, 'b': CHANNELS}),
    'equal': (lambda a, b: equal(a, a, b, a) + equal(a, b, a * b, 2.0 * b), {'a': CHANNELS, 'b': CHANNELS}),
    'roots': (lambda a: sqrt(a * a + 1.0), {'a': CHANNELS}),
    'sigmoid': (lambda a, b: sigmoid(a) * softplus(b), {'a': CHANNELS, 'b': HEADS}),
    'slope of a sigmoid': (lambda a, b: sigmoid_slope(a) * b, {'a': CHANNELS, 'b': HEADS}),
    'tangents': (lambda a, b: tanh(a) + sech_squared(b), {'a': CHANNELS, 'b': HEADS}),
    'relu and expm1': (lambda a, b: relu(a) * expm1(b), {'a': CHANNELS, 'b': HEADS}),
    'maximum': (lambda a, b: maximum(a, b) * b, {'a': HEADS, 'b': CHANNELS}),
    'sum over channels': (lambda a, b: sum_channels(a * b) * b, {'a': CHANNELS, 'b': HEADS}),
    'attention': (lambda a, b: sum_channels(leaky_relu(a + b, 0.2) * a), {'a': CHANNELS, 'b': CHANNELS}),
}


def operands_of(levels, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {name: LEVELS[level] for name, level in levels.items()}
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


def function_of(text: str, name: str):
    scope = dict(WORDS)
    exec(text, scope)
    return scope[name]


@pytest.mark.parametrize('name', FUNCTIONS)
def test_the_written_function_computes_the_same(name):
    function, levels = FUNCTIONS[name]
    operands = operands_of(levels)
    trace, expected = Trace.of(function, levels), function(**operands)
    in_words = function_of(trace.text('written', expanded=False), 'written')
    assert torch.equal(in_words(**operands), expected)
    expanded = function_of(trace.text('written'), 'written')
    torch.testing.assert_close(expanded(**operands), expected, rtol=1e-14, atol=0.0)


def test_words_of_one_value_share_an_exponential():
    trace = Trace.of(lambda a, b: sigmoid(a) * softplus(b), {'a': CHANNELS, 'b': CHANNELS})
    text = trace.adjoint_text('adjoint', [['a', 'b']])
    assert text.count('tail(') == 2, text
    assert 'exp(' not in text


@pytest.mark.parametrize('name', FUNCTIONS)
def test_the_adjoint_is_that_of_autograd(name):
    function, levels = FUNCTIONS[name]
    operands = {key: value.requires_grad_() for key, value in operands_of(levels).items()}
    out = function(**operands)
    grad = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(out, list(operands.values()), grad)
    text = Trace.of(function, levels).adjoint_text('adjoint', [[key] for key in levels])
    with torch.no_grad():
        found = function_of(text, 'adjoint')(grad, **operands)
    for (got,), wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.expand_as(wanted), wanted)


def test_a_result_of_heads_used_for_channels_sums_its_gradient():
    trace = Trace.of(lambda a: a * 2.0, {'a': HEADS}, CHANNELS)
    found = function_of(trace.adjoint_text('adjoint', [['a']]), 'adjoint')
    grad = torch.randn(5, H, C)
    torch.testing.assert_close(found(grad, torch.randn(5, H, 1))[0][0], 2 * grad.sum(-1, keepdim=True))


def test_absent_operands_leave_no_trace():
    trace = Trace.of(lambda a, b, c: leaky_relu(a + b + c, 0.2) * (1.0 * a - 0.0), {'a': HEADS})
    assert trace.names() == ['a']
    assert trace.text('f').count('+') == 0


def test_a_product_with_what_is_absent_is_nothing():
    trace = Trace.of(lambda a, b: a + a * b + b * a, {'a': HEADS})
    assert trace.text('f').endswith('return a')


def test_equal_expressions_are_computed_once():
    trace = Trace.of(lambda a: exp(a) * exp(a), {'a': HEADS})
    assert trace.text('f').count('exp') == 1


def test_scalars_have_no_gradient():
    trace = Trace.of(lambda a, s: a * s, {'a': HEADS, 's': SCALAR})
    assert trace.adjoint_text('adjoint', [['a']]).endswith('return ((g0,),)')


def test_an_adjoint_reads_what_its_gradients_mention():
    trace = Trace.of(lambda a, b, c: a * exp(b) + c, {'a': HEADS, 'b': HEADS, 'c': HEADS})
    assert trace.read_by_adjoint(['a']) == {'b'}
    assert trace.read_by_adjoint(['b']) == {'a', 'b'}
    assert trace.read_by_adjoint(['c']) == set()


def test_a_gradient_that_does_not_flow_is_zero():
    trace = Trace.of(lambda a, b: exp(a), {'a': HEADS, 'b': HEADS})
    found = function_of(trace.adjoint_text('adjoint', [['b']]), 'adjoint')
    assert found(torch.ones(1), torch.ones(1), torch.ones(1)) == ((0.0,),)


@pytest.mark.parametrize(
    ('function', 'message'),
    [
        (lambda a: a if a else -a, 'branch'),
        (lambda a: sum_channels(a), 'sum_channels'),
        (lambda a: 3.0, 'not a value'),
    ],
)
def test_what_no_program_can_do(function, message):
    with pytest.raises(TypeError, match=message):
        Trace.of(function, {'a': HEADS})


def test_a_sum_that_ends_a_function_can_be_left_out():
    attention = Trace.of(FUNCTIONS['attention'][0], FUNCTIONS['attention'][1])
    rows = operands_of(FUNCTIONS['attention'][1])
    before = function_of(attention.before_sum().text('before'), 'before')(**rows)
    after = function_of(attention.text('after'), 'after')(**rows)
    assert torch.equal(before.sum(dim=-1, keepdim=True), after)
    assert Trace.of(lambda a: sum_channels(a) + 1.0, {'a': CHANNELS}).before_sum() is None


def test_a_gradient_that_is_a_sum_can_be_left_unsummed():
    message = Trace.of(lambda weight, x: weight * x, {'weight': HEADS, 'x': CHANNELS}, CHANNELS)
    assert message.gradient_is_sum('weight')
    assert not message.gradient_is_sum('x')
    text = message.adjoint_text('adjoint', [['weight'], ['x']], unsummed=['weight'])
    assert 'sum_channels' not in text
    assert 'sum_channels' in message.adjoint_text('adjoint', [['weight'], ['x']])


@pytest.mark.parametrize(
    ('message', 'spread'),
    [
        (lambda weight, x: weight * x, True),
        (lambda weight, x: exp(weight) * x, False),
        (lambda weight, x: weight * weight * x, False),
        (lambda weight, x: weight * (weight * x), True),
    ],
)
def test_what_meets_values_of_channels_only(message, spread):
    trace = Trace.of(message, {'weight': HEADS, 'x': CHANNELS}, CHANNELS)
    assert trace.is_spread('weight') == spread


def test_a_gradient_may_meet_values_of_heads():
    dot = Trace.of(lambda x, y: sum_channels(x * y), {'x': CHANNELS, 'y': CHANNELS})
    assert dot.is_spread('grad', ['x', 'y'])
    squared = Trace.of(lambda a, b: a * sum_channels(b), {'a': HEADS, 'b': CHANNELS})
    assert not squared.is_spread('grad', ['b'])
