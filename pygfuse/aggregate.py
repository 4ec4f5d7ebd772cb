"""An edge program as a PyTorch operator: the one way from convolutions to targets.

The operators take tensors and numbers only, so that ``torch.compile`` traces through them; the graph is looked up
inside, by the tensor that stands for it. Saved for backward are the operands, the output and the log-sum-exp.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pygfuse import reference
from pygfuse.call import Call, Dropout
from pygfuse.cpu import random, target
from pygfuse.graph import Graph
from pygfuse.program import EDGE, PARAMETER, PROGRAMS, SOURCE, TARGET, EdgeProgram
from pygfuse.trace import HEADS


@dataclasses.dataclass(frozen=True)
class Edges:
    """The edges of a call, as an operator takes them.

    Attributes:
        token: The ``edge_index``, or the token of a `Graph`.
        num_sources: Number of source nodes.
        num_targets: Number of target nodes.
        flow: PyG's flow.
        loops: None, or the number of nodes that get exactly one self-loop.
    """

    token: Tensor
    num_sources: int
    num_targets: int
    flow: str = 'source_to_target'
    loops: int | None = None

    def graph(self) -> Graph:
        """The graph, from the cache if it was seen before."""
        graph = Graph.of(self.token, num_sources=self.num_sources, num_targets=self.num_targets, flow=self.flow)
        return graph if self.loops is None else graph.with_self_loops(self.loops)


def aggregate(
    program: EdgeProgram,
    edges: Edges,
    operands: Mapping[str, Tensor | float | None],
    heads: int,
    channels: int,
    mean: bool = False,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """Runs an edge program over a graph.

    Args:
        program: What happens on an edge.
        edges: The edges.
        operands: The program's operands by name: tensors ``[rows, H]`` for heads and ``[rows, H, C]`` (or ``[rows, H *
            C]``) for channels, numbers for scalars; None for what is absent.
        heads: H.
        channels: C.
        mean: Whether the sum over a row's edges is divided by their number.
        dropout: Probability of dropping a weight.
        seed: A tensor of one int64 that decides what is dropped; needed with `dropout`.

    Returns:
        ``[num_targets, H, C]``.

    Raises:
        ValueError: If an operand has another shape, type or device than expected.
    """
    tensors = {name: value for name, value in operands.items() if isinstance(value, Tensor)}
    scalars = {name: float(value) for name, value in operands.items() if isinstance(value, (int, float))}
    _check(program, edges, tensors, heads, channels)
    out, _ = torch.ops.pygfuse.aggregate(
        program.name,
        ','.join(tensors),
        [tensor.reshape(tensor.shape[0], -1) for tensor in tensors.values()],
        ','.join(scalars),
        list(scalars.values()),
        edges.token,
        edges.num_sources,
        edges.num_targets,
        edges.flow,
        edges.loops,
        heads,
        channels,
        mean,
        dropout,
        seed if dropout > 0.0 else None,
    )
    return out.view(-1, heads, channels)


def _check(program: EdgeProgram, edges: Edges, tensors: Mapping[str, Tensor], heads: int, channels: int) -> None:
    first_name, first = next(iter(tensors.items()))
    rows = {SOURCE: edges.num_sources, TARGET: edges.num_targets, PARAMETER: 1}
    for name, tensor in tensors.items():
        operand = program.operands[name]
        if tensor.device != first.device:
            raise ValueError(f"Expected '{name}' on the device of '{first_name}', {first.device} (got {tensor.device})")
        if tensor.dtype != first.dtype:
            raise ValueError(f"Expected '{name}' of the type of '{first_name}', {first.dtype} (got {tensor.dtype})")
        width = heads if operand.level == HEADS else heads * channels
        expected = rows.get(operand.side, tensor.shape[0])
        if tensor.shape[0] != expected or tensor[:1].numel() != width * min(1, tensor.shape[0]):
            raise ValueError(
                f"Expected '{name}' to hold {width} values for each of {expected} {operand.side} rows "
                f'(got shape {list(tensor.shape)})'
            )


def _call(
    program: str,
    names: str,
    tensors: Sequence[Tensor],
    scalar_names: str,
    scalars: Sequence[float],
    edges: Edges,
    heads: int,
    channels: int,
    mean: bool,
    dropout: float,
    seed: Tensor | None,
) -> Call:
    graph = edges.graph()
    by_name = dict(zip(names.split(','), tensors, strict=True))
    numbers = dict(zip(scalar_names.split(','), scalars, strict=True)) if scalar_names else {}
    bound = PROGRAMS[program].bind((*by_name, *numbers))
    for name, tensor in by_name.items():
        if bound.program.operands[name].side == EDGE and tensor.shape[0] != graph.num_edge_ids:
            raise ValueError(
                f"Expected '{name}' to have a row for each of {graph.num_edge_ids} edges (got {tensor.shape[0]})"
            )
    drawn = Dropout(dropout, int(seed)) if seed is not None else None
    return Call(bound, graph, by_name, numbers, heads, channels, mean, drawn)


@torch.library.custom_op('pygfuse::aggregate', mutates_args=())
def _aggregate(
    program: str,
    names: str,
    tensors: Sequence[Tensor],
    scalar_names: str,
    scalars: Sequence[float],
    token: Tensor,
    num_sources: int,
    num_targets: int,
    flow: str,
    loops: int | None,
    heads: int,
    channels: int,
    mean: bool,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    edges = Edges(token, num_sources, num_targets, flow, loops)
    tensors = [tensor.contiguous() for tensor in tensors]
    call = _call(program, names, tensors, scalar_names, scalars, edges, heads, channels, mean, dropout, seed)
    out, logsumexp = target.forward(call)
    return out, out.new_empty(0) if logsumexp is None else logsumexp


@_aggregate.register_fake
def _(
    program, names, tensors, scalar_names, scalars, token, num_sources, num_targets, flow, loops, heads, channels,
    mean, dropout, seed,
):  # fmt: skip
    softmax = PROGRAMS[program].softmax
    out = tensors[0].new_empty(num_targets, heads * channels)
    return out, out.new_empty(num_targets, heads) if softmax else out.new_empty(0)


@torch.library.custom_op('pygfuse::aggregate_backward', mutates_args=())
def _aggregate_backward(
    program: str,
    names: str,
    tensors: Sequence[Tensor],
    scalar_names: str,
    scalars: Sequence[float],
    token: Tensor,
    num_sources: int,
    num_targets: int,
    flow: str,
    loops: int | None,
    heads: int,
    channels: int,
    mean: bool,
    dropout: float,
    seed: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    grad_out: Tensor,
    needed: str,
) -> list[Tensor]:
    edges = Edges(token, num_sources, num_targets, flow, loops)
    tensors = [tensor.contiguous() for tensor in tensors]
    call = _call(program, names, tensors, scalar_names, scalars, edges, heads, channels, mean, dropout, seed)
    if mean:
        grad_out = grad_out / call.graph.degree.clamp(min=1).unsqueeze(-1)
    wanted = needed.split(',')
    found = target.backward(call, out, logsumexp, grad_out.contiguous(), wanted)
    return [found[name] for name in wanted]


@_aggregate_backward.register_fake
def _(
    program, names, tensors, scalar_names, scalars, token, num_sources, num_targets, flow, loops, heads, channels,
    mean, dropout, seed, out, logsumexp, grad_out, needed,
):  # fmt: skip
    by_name = dict(zip(names.split(','), tensors, strict=True))
    return [torch.empty_like(by_name[name], memory_format=torch.contiguous_format) for name in needed.split(',')]


def _setup_context(ctx, inputs, output):
    program, names, tensors, scalar_names, scalars, token, *numbers, seed = inputs
    ctx.save_for_backward(*tensors, token, seed, *output)
    ctx.program, ctx.names, ctx.scalar_names, ctx.scalars = program, names, scalar_names, scalars
    ctx.numbers = numbers
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx, grad_out, _):
    *tensors, token, seed, out, logsumexp = ctx.saved_tensors
    names = ctx.names.split(',')
    flags = ctx.needs_input_grad[2]
    needed = [name for name, flag in zip(names, flags, strict=True) if flag]
    gradients: dict[str, Tensor] = {}
    if grad_out is not None and needed:
        first = (ctx.program, ctx.names, tensors, ctx.scalar_names, ctx.scalars, token)
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            gradients = _differentiable_backward(first, ctx.numbers, seed, grad_out, needed)
        else:
            found = torch.ops.pygfuse.aggregate_backward(
                *first, *ctx.numbers, seed, out, logsumexp, grad_out, ','.join(needed)
            )
            gradients = dict(zip(needed, found, strict=True))
    # program, names, tensors, scalar_names, scalars, token, the numbers, seed
    of_tensors = [gradients.get(name) for name in names]
    # the structure that torch.library expects: an empty list counts as a list, any other as one argument
    of_scalars = None if ctx.scalars else []
    return None, None, of_tensors, None, of_scalars, None, *[None] * len(ctx.numbers), None


def _differentiable_backward(first, numbers, seed, grad_out, needed):
    """The gradients as functions of the operands again (a double backward), by the reference."""
    program, names, tensors, scalar_names, scalars, token = first
    num_sources, num_targets, flow, loops, heads, channels, mean, dropout = numbers
    edges = Edges(token, num_sources, num_targets, flow, loops)
    call = _call(program, names, tensors, scalar_names, scalars, edges, heads, channels, mean, dropout, seed)
    kept = None
    if call.dropout is not None:
        kept = random.dropout_factors(call.graph.num_edge_ids, heads, call.dropout, call.like().dtype)
    out = reference.aggregate(call, kept)
    found = torch.autograd.grad(
        out, [call.tensors[name] for name in needed], grad_out, create_graph=True, allow_unused=True
    )
    return dict(zip(needed, found, strict=True))


_aggregate.register_autograd(_backward, setup_context=_setup_context)


@torch.library.custom_op('pygfuse::dropout_factors', mutates_args=())
def dropout_factors(rows: int, heads: int, probability: float, seed: Tensor, like: Tensor) -> Tensor:
    """The factors that `aggregate` draws for its weights: ``[rows, heads]``, each 0 or ``1 / (1 - probability)``.

    Args:
        rows: Number of edge ids.
        heads: Number of heads.
        probability: Of dropping.
        seed: As given to `aggregate`.
        like: A tensor of the wanted type.
    """
    return random.dropout_factors(rows, heads, Dropout(probability, int(seed)), like.dtype)


@dropout_factors.register_fake
def _(rows, heads, probability, seed, like):
    return like.new_empty(rows, heads)


def new_seed() -> Tensor:
    """A seed from torch's generator: ``torch.manual_seed`` decides it."""
    return torch.randint(torch.iinfo(torch.int64).max, ())
