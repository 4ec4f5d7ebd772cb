"""Edge programs over graphs: the one way from convolutions to backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from pygfuse._lib.modes import modes
from pygfuse._lib.note import Note
from pygfuse.call import reference
from pygfuse.call.call import common_dtype
from pygfuse.ops import operator  # noqa: F401  registers the operators
from pygfuse.ops.degrees import mean_of
from pygfuse.ops.dropout import factors_of
from pygfuse.ops.eager import aggregate_eagerly
from pygfuse.ops.edges import Edges
from pygfuse.ops.given import check_shapes, check_types, expected_of, given_of
from pygfuse.ops.plan import call_of, plan_of
from pygfuse.ops.schema import Arguments
from pygfuse.ops.within_torch import autocast
from pygfuse.ops.within_torch.intercepted import are_plain, is_watched, of_no_own_class
from pygfuse.program.products import OperandValue, Product, tensors_in
from pygfuse.program.program import EdgeProgram


def aggregate(
    program: EdgeProgram,
    edges: Edges,
    operands: Mapping[str, OperandValue],
    heads: int,
    channels: int,
    reduce: str = 'sum',
    dropout: float = 0.0,
    seed: Tensor | None = None,
    flat: bool = False,
) -> Tensor:
    """Runs an edge program over a graph.

    Args:
        program: What happens on an edge.
        edges: The edges.
        operands: The program's operands by name: tensors ``[rows, H]`` for heads and ``[rows, H, C]`` (or ``[rows, H *
            C]``) for channels, numbers for scalars; None for what is absent. Operands of edges may be a
            `pygfuse.program.products.Product`: features times a weight, formed when a walk needs it.
        heads: H.
        channels: C.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'`` over a target's edges.
        dropout: Probability of dropping a weight.
        seed: A tensor of one int64 that decides what is dropped; needed with `dropout`.
        flat: Whether heads are to be side by side.

    Returns:
        ``[num_targets, H, C]``, or, if `flat`, ``[num_targets, H * C]``.

    Raises:
        ValueError: If an operand has another shape, type or device than expected, or `reduce` is an extreme of a
            program with softmax.

    Example:
        >>> from pygfuse.program.library.neighbours import NEIGHBOURS
        >>> edges, x = Edges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 3, 3), torch.arange(6.0).view(3, 1, 2)
        >>> aggregate(NEIGHBOURS, edges, {'x': x}, heads=1, channels=2).flatten(1)
        tensor([[0., 0.],
                [4., 6.],
                [2., 3.]])
    """
    if not torch.compiler.is_compiling():
        tensors = tuple(tensors_in(operands))
        if has_torch_function(tensors):
            return handle_torch_function(
                *(aggregate, tensors, program, edges, operands, heads, channels),
                reduce=reduce,
                dropout=dropout,
                seed=seed,
                flat=flat,
            )
    out = _run(program, edges, operands, heads, channels, reduce, dropout, seed)[0]
    return out if flat else out.view(edges.num_targets, heads, channels)


def aggregate_known(
    program: EdgeProgram,
    edges: Edges,
    operands: Mapping[str, OperandValue],
    heads: int,
    channels: int,
    reduce: str,
    dropout: float,
    seed: Tensor | None,
    note: Note | None,
) -> Tensor:
    """`aggregate`, flat, where the caller knows that nobody intercepts, compiles or casts, and that nothing is said.

    Args:
        program, edges, operands, heads, channels, reduce, dropout, seed: As of `aggregate`; the graph of the edges is
            there.
        note: Where the layer learns how its backward pass runs.
    """
    given = given_of(program, operands)
    plan = plan_of(given, heads, channels, reduce)
    check_types(given.names, given.tensors, False)
    check_shapes(plan.expected, given.tensors, edges)
    if plan.width == 0 or not are_plain(given.tensors) or is_divided(program, reduce):
        return aggregate(program, edges, operands, heads, channels, reduce, dropout, seed, flat=True)
    return aggregate_eagerly(plan, edges, given, dropout, seed, False, note)[0]


def aggregate_with_weights(
    program: EdgeProgram,
    edges: Edges,
    operands: Mapping[str, OperandValue],
    heads: int,
    channels: int,
    reduce: str = 'sum',
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Runs a program with a score over a graph, and gives the weights of edges too: see `aggregate`.

    Returns:
        ``[num_targets, H, C]``, and the weight of each edge before dropout, ``[edge ids, H]``. Both may be
        differentiated; the gradient of the weights takes PyTorch's operators, with tensors of edges x features.

    Example:
        >>> from pygfuse.program.library.gat import GAT
        >>> edges = Edges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 3, 3)
        >>> operands = {'x': torch.ones(3, 1, 2), 'alpha_src': torch.zeros(3, 1), 'negative_slope': 0.2}
        >>> aggregate_with_weights(GAT, edges, operands, heads=1, channels=2)[1].flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """
    out, arguments, statistics = _run(program, edges, operands, heads, channels, reduce, dropout, seed)
    with autocast.off(out.device):
        if not is_fused(heads, channels):
            weights = reference.weights(call_of(arguments()))
        else:
            statistics = out.new_empty(0) if statistics is None else statistics
            weights = torch.ops.pygfuse.edge_weights(*arguments(), statistics)
    return out.view(edges.num_targets, heads, channels), weights.to(out.dtype)


def is_divided(program: EdgeProgram, reduce: str) -> bool:
    """Whether a reduction is a walk's sum, divided by an operator of torch: a mean of what a softmax weighs.

    The adjoint reads what the walk gave. Were that divided and rounded, the gradients of scores would not cancel where
    one edge has all the weight.
    """
    return program.softmax and reduce == 'mean'


def is_fused(heads: int, channels: int) -> bool:
    """Whether walks run; else PyTorch's own operators on edges x features: on request, or without channels."""
    return modes().fusion and heads * channels > 0


def _run(
    program: EdgeProgram,
    edges: Edges,
    operands: Mapping[str, OperandValue],
    heads: int,
    channels: int,
    reduce: str,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Callable[[], Arguments], Tensor | None]:
    """The output ``[targets, H * C]``, what gives the operator's arguments, and the statistics if there are any."""
    if program.softmax and reduce not in ('sum', 'mean'):
        raise ValueError(f"Expected 'reduce' to be 'sum' or 'mean' for a program with softmax (got {reduce!r})")
    given = given_of(program, operands)
    device = given.tensors[0].device
    casts = autocast.is_on(device)
    check_types(given.names, given.tensors, casts)
    dtype = common_dtype(given.tensors) if casts else given.tensors[0].dtype
    if casts:
        tensors = {name: value for name, value in operands.items() if isinstance(value, (Tensor, Product))}
        given = given_of(program, autocast.operands(tensors, reduce) | given.numbers)
    if not torch.compiler.is_compiling():
        given = given._replace(tensors=of_no_own_class(given.tensors))
    divides = is_divided(program, reduce)
    form = heads, channels, 'sum' if divides else reduce
    seed = seed if dropout > 0.0 else None

    def arguments() -> Arguments:
        return given.arguments(edges, *form, dropout, seed)

    with autocast.off(device):
        stash = not modes().recomputation and program.score is not None
        if is_fused(heads, channels) and not is_watched(given.tensors):
            plan = plan_of(given, *form)
            check_shapes(plan.expected, given.tensors, edges)
            out, statistics = aggregate_eagerly(plan, edges, given, dropout, seed, stash, modes().note)
        else:
            check_shapes(expected_of(program, given.names, heads, channels), given.tensors, edges)
            if is_fused(heads, channels):
                out, statistics, _ = torch.ops.pygfuse.aggregate(*arguments(), stash)
            else:
                # autograd keeps them
                call, statistics = call_of(arguments()), None
                out = reference.aggregate(call, factors_of(call))
        if divides:
            out = mean_of(out, edges)
    return (out if out.dtype == dtype else out.to(dtype)), arguments, statistics
