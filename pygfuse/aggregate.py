"""An edge program as a PyTorch operator: the one way from convolutions to targets.

The operators take tensors and numbers only, so that ``torch.compile`` traces through them; the graph is looked up
inside, by the tensor that stands for it. Saved for backward are the operands, the output and its
statistics: the log-sum-exp of a softmax, the numbers of edges that attain a maximum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pygfuse import products, reference
from pygfuse.call import Call, Dropout
from pygfuse.cpu import random, target
from pygfuse.graph import Graph
from pygfuse.program import EDGE, PARAMETER, PROGRAMS, SOURCE, TARGET, EdgeProgram
from pygfuse.trace import HEADS, SCALAR


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
    operands: Mapping[str, products.Value],
    heads: int,
    channels: int,
    reduce: str = 'sum',
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """Runs an edge program over a graph.

    Args:
        program: What happens on an edge.
        edges: The edges.
        operands: The program's operands by name: tensors ``[rows, H]`` for heads and ``[rows, H, C]`` (or ``[rows, H *
            C]``) for channels, numbers for scalars; None for what is absent. Operands of edges may be a
            `pygfuse.products.Product`: features times a weight, formed when a walk needs it.
        heads: H.
        channels: C.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'`` over a target's edges.
        dropout: Probability of dropping a weight.
        seed: A tensor of one int64 that decides what is dropped; needed with `dropout`.

    Returns:
        ``[num_targets, H, C]``.

    Raises:
        ValueError: If an operand has another shape, type or device than expected.
    """
    tensors = products.parts_of(operands)
    scalars = {name: float(value) for name, value in operands.items() if isinstance(value, (int, float))}
    _check(program, edges, tensors, heads, channels)
    out, _ = torch.ops.pygfuse.aggregate(
        program.name,
        ','.join(tensors),
        [tensor.flatten(1) for tensor in tensors.values()],
        ','.join(scalars),
        list(scalars.values()),
        edges.token,
        edges.num_sources,
        edges.num_targets,
        edges.flow,
        edges.loops,
        heads,
        channels,
        reduce,
        dropout,
        seed if dropout > 0.0 else None,
    )
    return out.view(-1, heads, channels)


def _check(program: EdgeProgram, edges: Edges, tensors: Mapping[str, Tensor], heads: int, channels: int) -> None:
    first_name, first = next(iter(tensors.items()))
    rows = {SOURCE: edges.num_sources, TARGET: edges.num_targets, PARAMETER: 1}
    for name, tensor in tensors.items():
        plain, _, factor = name.partition(':')
        operand = program.operands[plain]
        if tensor.device != first.device:
            raise ValueError(f"Expected '{name}' on the device of '{first_name}', {first.device} (got {tensor.device})")
        if tensor.dtype != first.dtype:
            raise ValueError(f"Expected '{name}' of the type of '{first_name}', {first.dtype} (got {tensor.dtype})")
        if factor in (products.FEATURES, products.LOOPS):
            continue
        width = {SCALAR: 1, HEADS: heads}.get(operand.level, heads * channels)
        expected = tensor.shape[0] if factor else rows.get(operand.side, tensor.shape[0])
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
    reduce: str,
    dropout: float,
    seed: Tensor | None,
) -> Call:
    graph = edges.graph()
    chosen = PROGRAMS[program]
    by_name = products.formed(chosen, dict(zip(names.split(','), tensors, strict=True)))
    numbers = dict(zip(scalar_names.split(','), scalars, strict=True)) if scalar_names else {}
    present = tuple(dict.fromkeys(products.operand_of(name) for name in (*by_name, *numbers)))
    bound = chosen.bind(present, tuple(name for name in present if f'{name}:{products.WEIGHT}' in by_name))
    for name, tensor in by_name.items():
        on_edges = chosen.operands[products.operand_of(name)].side == EDGE and not name.endswith(products.WEIGHT)
        if on_edges and tensor.shape[0] != graph.num_edge_ids:
            raise ValueError(
                f"Expected '{name}' to have a row for each of {graph.num_edge_ids} edges (got {tensor.shape[0]})"
            )
    drawn = Dropout(dropout, int(seed)) if seed is not None else None
    return Call(bound, graph, by_name, numbers, heads, channels, reduce, drawn)


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
    reduce: str,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    edges = Edges(token, num_sources, num_targets, flow, loops)
    tensors = [tensor.contiguous() for tensor in tensors]
    call = _call(program, names, tensors, scalar_names, scalars, edges, heads, channels, reduce, dropout, seed)
    out, statistics = target.forward(call)
    return out, out.new_empty(0) if statistics is None else statistics


@_aggregate.register_fake
def _(
    program, names, tensors, scalar_names, scalars, token, num_sources, num_targets, flow, loops, heads, channels,
    reduce, dropout, seed,
):  # fmt: skip
    out = tensors[0].new_empty(num_targets, heads * channels)
    if PROGRAMS[program].softmax:
        return out, out.new_empty(num_targets, heads)
    return out, torch.empty_like(out) if reduce in ('max', 'min') else out.new_empty(0)


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
    reduce: str,
    dropout: float,
    seed: Tensor | None,
    out: Tensor,
    statistics: Tensor,
    grad_out: Tensor,
    needed: str,
) -> list[Tensor]:
    edges = Edges(token, num_sources, num_targets, flow, loops)
    tensors = [tensor.contiguous() for tensor in tensors]
    call = _call(program, names, tensors, scalar_names, scalars, edges, heads, channels, reduce, dropout, seed)
    wanted, chosen = needed.split(','), PROGRAMS[program]
    walked = products.needed_of_walks(chosen, wanted)
    found = target.backward(call, out, statistics, grad_out.contiguous(), walked)
    return products.gradients_of_parts(chosen, dict(zip(names.split(','), tensors, strict=True)), found, wanted)


@_aggregate_backward.register_fake
def _(
    program, names, tensors, scalar_names, scalars, token, num_sources, num_targets, flow, loops, heads, channels,
    reduce, dropout, seed, out, statistics, grad_out, needed,
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
    *tensors, token, seed, out, statistics = ctx.saved_tensors
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
                *first, *ctx.numbers, seed, out, statistics, grad_out, ','.join(needed)
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
    # an operand may be computed from another: a view of its own keeps their gradients apart
    tensors = [tensor.view_as(tensor) for tensor in tensors]
    num_sources, num_targets, flow, loops, heads, channels, reduce, dropout = numbers
    edges = Edges(token, num_sources, num_targets, flow, loops)
    call = _call(program, names, tensors, scalar_names, scalars, edges, heads, channels, reduce, dropout, seed)
    kept = None
    if call.dropout is not None:
        kept = random.dropout_factors(call.graph.num_edge_ids, heads, call.dropout, call.like().dtype)
    out = reference.aggregate(call, kept)
    given = dict(zip(names.split(','), tensors, strict=True))
    found = torch.autograd.grad(out, [given[name] for name in needed], grad_out, create_graph=True, allow_unused=True)
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
