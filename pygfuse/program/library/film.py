"""GNN-FiLM (Brockschmidt, 2020): neighbours scaled and shifted channel by channel as the target says, by activation."""

from __future__ import annotations

from collections.abc import Callable

from pygfuse.program.library.activations import ACTIVATIONS
from pygfuse.program.program import EdgeProgram, operands

_OPERANDS = operands(source='x', target='gamma beta', parameter_scalar='first second', parameter='slope')


def _message(activation: Callable) -> Callable:
    return lambda x, gamma, beta, first, second, slope: activation(gamma * x + beta, first, second, slope)


FILM = {name: EdgeProgram(f'film_{name}', _OPERANDS, _message(act)) for name, act in ACTIVATIONS.items()}
