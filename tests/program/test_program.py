from __future__ import annotations

import pytest
import torch

from pygfuse.ops import Edges, aggregate
from pygfuse.ops.programs import program_named
from pygfuse.program.library.gat import GAT
from pygfuse.program.program import PROGRAMS, EdgeProgram, Operand
from pygfuse.program.vocabulary import exp, positive

SOURCE_X = {'x': Operand('source', 'channels')}


@pytest.fixture
def programs():
    """Forgets the programs that a test makes."""
    before = dict(PROGRAMS)
    yield PROGRAMS
    PROGRAMS.clear()
    PROGRAMS.update(before)


def test_operands_are_checked():
    with pytest.raises(ValueError, match="'side'"):
        Operand('nowhere', 'heads')
    with pytest.raises(ValueError, match="'level'"):
        Operand('source', 'scalar')


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'message': lambda x: x, 'softmax': True}, "needs a 'score'"),
        ({'message': lambda weight, x: x}, "'weight' first"),
        ({'message': lambda x: x, 'score': lambda x: x}, "'weight' first"),
        ({'message': lambda y: y}, "'y' is not among"),
        ({'message': lambda weight, x: x, 'score': lambda z: z}, "'z' is not among"),
        ({'message': lambda h: h}, 'enter by the'),
    ],
)
def test_programs_are_checked(programs, arguments, message):
    with pytest.raises(ValueError, match=message):
        EdgeProgram('bad', operands={**SOURCE_X, 'h': Operand('source', 'heads')}, **arguments)


def test_binding_leaves_out_what_is_absent():
    bound = GAT.bind(('x', 'alpha_src', 'negative_slope'))
    assert bound.present == ('x', 'alpha_src', 'negative_slope')
    assert bound.score.names() == ['alpha_src', 'negative_slope']
    assert bound.names('source', 'heads') == ['alpha_src']
    assert bound.names('edge', 'heads') == []
    assert GAT.bind(('x', 'alpha_src', 'negative_slope')) is bound


def test_words_of_numbers_are_numbers():
    """As operands are that are absent."""
    assert (positive(1.0, 2.0, 3.0), positive(0, 2, 3)) == (2.0, 3.0)
    assert exp(0.0) == 1.0


def test_properties_of_gat():
    bound = GAT.bind(tuple(GAT.operands))
    assert bound.softmax
    assert bound.score_is_of_heads
    assert bound.separable


@pytest.mark.parametrize(
    'message', [lambda weight, x: weight * weight * x, lambda weight, x: weight * x + x, lambda weight, x: x]
)
def test_a_message_that_is_not_linear_in_the_weight_of_a_softmax(programs, message):
    operands = {'x': SOURCE_X['x'], 'a': Operand('source', 'heads')}
    program = EdgeProgram('not linear', operands=operands, score=lambda a: a, message=message, softmax=True)
    with pytest.raises(ValueError, match="'weight' times something that"):
        program.bind(('x', 'a'))


EDGES = torch.tensor([[0, 1, 2, 2], [1, 0, 1, 2]])
OPERANDS = {'x': (3, 2, 4), 'alpha_src': (3, 2), 'alpha_dst': (3, 2)}


def operands(**changed) -> dict:
    tensors = {name: torch.randn(shape) for name, shape in OPERANDS.items()}
    return {**tensors, 'negative_slope': 0.2, **changed}


@pytest.mark.parametrize(
    ('name', 'value'),
    [
        ('x', torch.randn(4, 2, 4)),
        ('x', torch.randn(3, 2, 5)),
        ('alpha_src', torch.randn(3, 3)),
        ('alpha_dst', torch.randn(2, 2)),
        ('alpha_edge', torch.randn(3, 2)),
        ('alpha_src', torch.randn(3, 2, dtype=torch.float64)),
        ('alpha_src', torch.randn(3, 2, device='meta')),
    ],
)
def test_operands_of_a_wrong_shape_or_type(name, value):
    with pytest.raises(ValueError, match=f"'{name}'"):
        aggregate(GAT, Edges(EDGES, 3, 3), operands(**{name: value}), 2, 4)


def test_the_operators_pass_torchs_own_checks():
    tensors = [torch.randn(shape, requires_grad=True).flatten(1) for shape in OPERANDS.values()]
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    arguments = (
        *('gat', ','.join(OPERANDS), tensors, 'negative_slope', [0.2]),
        *(EDGES, 3, 3, 'source_to_target', None, 2, 4, 'sum', 0.0, None),
    )
    torch.library.opcheck(torch.ops.pygfuse.aggregate.default, (*arguments, False))


def test_programs_of_a_family_are_found_by_a_process_that_has_not_made_them(programs):
    for name in ('gaussian_7', 'separate_gaussians_2_3'):
        programs.pop(name, None)
        assert program_named(name).name == name
    with pytest.raises(ValueError, match="No program is named 'gauss_7' in this process"):
        program_named('gauss_7')
