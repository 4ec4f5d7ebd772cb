"""Rows of length one and their adjoint, of short rows too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from pygfuse.ops.directions import DIRECTIONS
from pygfuse.program.program import SOURCE, TARGET


@pytest.mark.parametrize('scale', [1.0, 1e-13, 0.0])
def test_directions_and_their_adjoint(scale):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, 3, dtype=torch.float64, generator=generator)
    x[::2] *= scale
    x, beta = x.requires_grad_(), torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    rows = {SOURCE: x, TARGET: x}
    operands = dict(zip(DIRECTIONS.reads, DIRECTIONS.compute(rows, (beta,)), strict=True))
    x_norm = F.normalize(x, dim=-1)
    expected = {'x_norm': x_norm, 'x_norm_dst': beta * x_norm}
    torch.testing.assert_close(operands, expected)
    grads = {name: torch.randn(5, 3, dtype=torch.float64, generator=generator) for name in operands}
    with torch.no_grad():
        found = DIRECTIONS.adjoint(grads, operands, rows, (beta,))
    wanted = torch.autograd.grad([*expected.values()], (x, beta), [*grads.values()])
    torch.testing.assert_close((found[SOURCE], found[0]), wanted)
