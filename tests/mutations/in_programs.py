"""What is broken in the adjoint of programs."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

TRACE = 'tests/program/test_trace.py'

OF_PROGRAMS = (
    Mutation(
        'the derivative of a difference',
        'program/derivatives.py',
        'return grad, -grad if isinstance(y, Value) else None',
        'return grad, grad if isinstance(y, Value) else None',
        TRACE,
    ),
    Mutation(
        'the derivative of a quotient',
        'program/derivatives.py',
        'return scaled, -(scaled * out) if isinstance(y, Value) else None',
        'return scaled, scaled * out if isinstance(y, Value) else None',
        TRACE,
    ),
    Mutation(
        'the derivative of a root',
        'program/derivatives.py',
        'return (grad * 0.5 / out,)',
        'return (grad / out,)',
        TRACE,
    ),
    Mutation(
        'the derivative of a sigmoid',
        'program/derivatives.py',
        "return (grad * record('sigmoid_slope', (x,)),)",
        "return (grad * record('sigmoid', (x,)),)",
        TRACE,
    ),
    Mutation(
        'the second derivative of a tangent',
        'program/derivatives.py',
        "return (grad * (-2.0 * record('tanh', (x,)) * out),)",
        "return (grad * (2.0 * record('tanh', (x,)) * out),)",
        TRACE,
    ),
    Mutation(
        'the slope of a rectifier',
        'program/derivatives.py',
        "return record('positive', (x, grad, grad * negative_slope)), None",
        "return record('positive', (x, grad, grad)), None",
        TRACE,
    ),
    Mutation(
        'the derivative of the smaller of two',
        'program/derivatives.py',
        "record('positive', (difference, grad, 0.0)), record('positive', (difference, 0.0, grad))",
        "record('positive', (difference, grad, 0.0)), record('positive', (difference, grad, 0.0))",
        TRACE,
    ),
    Mutation(
        'gradients that meet',
        'program/trace.py',
        'found[id(argument)] + part if id(argument) in found else part',
        'part',
        TRACE,
    ),
    Mutation(
        'a product with nothing',
        'program/recording.py',
        "if word == 'mul' and _is(arguments[1], 0):\n        return 0.0",
        "if word == 'mul' and _is(arguments[1], 0):\n        return arguments[0]",
        TRACE,
    ),
)
