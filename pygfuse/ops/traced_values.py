"""Values of a program on all edges as a PyTorch operator, for `torch.compile`; `values_along_edges` runs without one.

Both are a gradient: see there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from pygfuse.ops.autograd import kept_arguments, needed_names, save_arguments, structured
from pygfuse.ops.edges import Edges
from pygfuse.ops.given import check_shapes, check_types, expected_of, given_of
from pygfuse.ops.schema import Arguments, operator, parted
from pygfuse.ops.within_torch.kept_memory import fake_of
from pygfuse.program.products import OperandValue
from pygfuse.program.program import EdgeProgram


def traced_values_along(
    program: EdgeProgram, factor: str, edges: Edges, operands: Mapping[str, OperandValue], heads: int, channels: int,
    width: int,
) -> Tensor:  # fmt: skip
    """`pygfuse.ops.values_along_edges.values_along` as an operator, which has gradients, but none of these.

    Args:
        program, factor, operands, heads, channels: As there.
        edges: The edges, whose token is an ``edge_index``.
        width: How many numbers of an edge there are: `heads`, or `heads` times `channels`.

    Returns:
        ``[edges, width]``, in the user's order.

    Raises:
        ValueError: If an operand has another shape, type or device than expected, or an edge names a node that is not
            there.

    Example:
        >>> from pygfuse.program.program import operands
        >>> declared = operands(source='x', target='x_dst', edge='factor')
        >>> differences = EdgeProgram('traced differences', declared, lambda x, x_dst, factor: factor * (x - x_dst))
        >>> edges, x = Edges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 3, 3), torch.tensor([[1.0], [4.0], [9.0]])
        >>> traced_values_along(differences, 'factor', edges, {'x': x, 'x_dst': x}, 1, 1, width=1).flatten()
        tensor([-3., -5.,  5.])
    """
    given = given_of(program, operands)
    check_types(given.names, given.tensors, False)
    check_shapes(expected_of(program, given.names, heads, channels), given.tensors, edges)
    return torch.ops.pygfuse.values_along(*given.arguments(edges, heads, channels, 'sum', 0.0, None), factor, width)


@operator('values_along', 'str factor, SymInt width', 'Tensor')
def _values_along(*given) -> Tensor:
    arguments, (factor, width) = parted(given)
    stand_in = arguments.tensors[0].new_empty(()).expand(arguments.token.shape[1], width)
    return _gradients(_of_factor(arguments, factor, stand_in), (factor,))[0]


@fake_of(_values_along)
def _(*given):
    arguments, (_, width) = parted(given)
    return arguments.tensors[0].new_empty(arguments.token.shape[1], width)


def _of_factor(arguments: Arguments, factor: str, values: Tensor) -> Arguments:
    """The arguments of the sum of the values times a factor of each edge."""
    return arguments._replace(names=f'{arguments.names},{factor}', tensors=[*arguments.tensors, values])


def _gradients(arguments: Arguments, names: Collection[str]) -> list[Tensor]:
    """The gradients of the total of what a call gives."""
    like = arguments.tensors[0]
    ones, none = like.new_ones(arguments.num_targets, arguments.heads * arguments.channels), like.new_empty(0)
    return torch.ops.pygfuse.aggregate_backward(*arguments, ones, none, none, ones, ','.join(names))


def _context(ctx, inputs, output):
    arguments, (factor, _) = parted(inputs)
    save_arguments(ctx, arguments, ())
    ctx.factor = factor


def _backward(ctx, grad):
    arguments, _ = kept_arguments(ctx)
    needed = needed_names(ctx, arguments)
    found = _gradients(_of_factor(arguments, ctx.factor, grad.contiguous()), needed) if needed else ()
    return structured(arguments, dict(zip(needed, found, strict=True)), 2)


_values_along.register_autograd(_backward, setup_context=_context)
