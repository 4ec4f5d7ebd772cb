"""Rows of length one, and those times a number: the operands of cosines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pygfuse.ops.mapped_walk.derived import Derived, Source
from pygfuse.program.program import SOURCE, TARGET

# shorter rows are divided by it, as `torch.nn.functional.normalize` does
_LEAST = 1e-12


def _lengths(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=1, keepdim=True)


def _compute(rows: Mapping[str, Tensor], given: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    x_norm = rows[SOURCE] / _lengths(rows[SOURCE]).clamp_min(_LEAST)
    return x_norm, given[0] * x_norm


def _adjoint(
    found: Mapping[str, Tensor], operands: Mapping[str, Tensor], rows: Mapping[str, Tensor], given: Sequence[Tensor]
) -> dict[Source, Tensor]:
    (beta,), x_norm, of_scaled = given, operands['x_norm'], found['x_norm_dst']
    gradients: dict[Source, Tensor] = {0: (of_scaled * x_norm).sum().view(beta.shape)}
    if 'x_norm' in found:
        grad, lengths = torch.addcmul(found['x_norm'], of_scaled, beta), _lengths(rows[SOURCE])
        # no step along a row changes what is divided by its length
        along = (grad * x_norm).sum(dim=1, keepdim=True).masked_fill_(lengths < _LEAST, 0.0)
        gradients[SOURCE] = torch.addcmul(grad, x_norm, along, value=-1.0).div_(lengths.clamp_min_(_LEAST))
    return gradients


# the operands of `pygfuse.program.library.agnn.AGNN`, ``[nodes, channels]``, of the rows of one set of nodes and a
# temperature, ``[1]``
DIRECTIONS = Derived({'x_norm': (SOURCE,), 'x_norm_dst': (TARGET, 0)}, _compute, _adjoint)
