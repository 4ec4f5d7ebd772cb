"""How sums of programs change along tangents: programs that are derived, against torch's forward mode."""

from __future__ import annotations

import inspect

import pytest
import torch

import pygfuse.conv  # noqa: F401  registers the programs
from pygfuse.program.library.crystal import CRYSTAL
from pygfuse.program.library.gat import GAT
from pygfuse.program.program import PARAMETER, PROGRAMS, EdgeProgram, operands
from pygfuse.program.tangent import change_of, changes
from pygfuse.program.trace import SCALAR
from pygfuse.program.vocabulary import sigmoid, sum_channels, tanh

HEADS, CHANNELS = 2, 3
EdgeProgram(
    'gated_by_channels',
    operands(source='x', target='z', edge='e'),
    score=lambda x, z: sigmoid(sum_channels(tanh(x + z) * z)),
    message=lambda weight, x, e: weight * (x * e),
)
LINEAR = [
    name
    for name, program in PROGRAMS.items()
    if changes(program.bind(tuple(program.operands)), 'sum') and not name.startswith('compiled_')
]


def numbers_of(program: EdgeProgram) -> set[str]:
    return {name for name, o in program.operands.items() if (o.side, o.level) == (PARAMETER, SCALAR)}


def value_of(program: EdgeProgram, name: str) -> torch.Tensor | float:
    operand = program.operands[name]
    if name in numbers_of(program):
        return 0.7
    shape = {'scalar': (1, 1), 'heads': (HEADS, 1)}.get(operand.level, (HEADS, CHANNELS))
    return torch.rand(5 if operand.side != PARAMETER else 1, *shape, dtype=torch.float64) + 0.1


def computed(program: EdgeProgram, values: dict) -> torch.Tensor:
    """The messages of edges."""
    bound = program.bind(tuple(program.operands))
    given = {name: value for name, value in values.items() if name in program.operands}
    if program.score is not None:
        given['weight'] = program.score(**{name: given[name] for name in bound.score.names()})
    read = inspect.signature(program.message).parameters
    return program.message(**{name: given[name] for name in read}).expand(5, HEADS, CHANNELS)


@pytest.mark.parametrize('name', LINEAR)
def test_a_change_is_that_of_forward_mode(name):
    torch.manual_seed(0)
    program = PROGRAMS[name]
    values = {operand: value_of(program, operand) for operand in program.operands}
    moving = tuple(operand for operand in values if operand not in numbers_of(program))
    tangents = {operand: torch.randn_like(values[operand]) for operand in moving}

    def messages(*given):
        return computed(program, {**values, **dict(zip(moving, given, strict=True))})

    given = tuple(values[operand] for operand in moving)
    expected = torch.func.jvp(messages, given, tuple(tangents.values()))[1]
    change = change_of(program.bind(tuple(program.operands)), moving)
    every = {**values, **{change.tangents[operand]: tangent for operand, tangent in tangents.items()}}
    torch.testing.assert_close(sum(computed(part, every) for part in change.programs), expected)


def test_which_programs_change_so():
    bound = GAT.bind(('x', 'alpha_src', 'alpha_dst', 'negative_slope'))
    assert not changes(bound, 'sum')
    crystal = CRYSTAL.bind(tuple(CRYSTAL.operands))
    assert changes(crystal, 'mean')
    assert not changes(crystal, 'max')
    squared = EdgeProgram(
        'weights_squared',
        operands(source='x', edge_heads='w'),
        score=lambda w: w,
        message=lambda weight, x: weight * weight * x,
    )
    assert not changes(squared.bind(('x', 'w')), 'sum')


def test_changes_change():
    first = change_of(CRYSTAL.bind(('f', 's')), ('f',)).programs[0]
    second = change_of(first.bind(tuple(first.operands)), tuple(first.operands))
    assert set(second.tangents.values()) & set(first.operands) == set()
    values = {name: torch.rand(5, 1, CHANNELS, dtype=torch.float64) for name in first.operands}
    tangents = {name: torch.rand_like(value) for name, value in values.items()}
    message = first.message
    expected = torch.func.jvp(lambda *given: message(*given), tuple(values.values()), tuple(tangents.values()))[1]
    every = {**values, **{second.tangents[name]: tangent for name, tangent in tangents.items()}}
    (program,) = second.programs
    torch.testing.assert_close(program.message(**{name: every[name] for name in program.operands}), expected)
