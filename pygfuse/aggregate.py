"""An edge program as a PyTorch operator: the one way from convolutions to targets.

The operators take tensors and numbers only, so that ``torch.compile`` traces through them; the graph is looked up
inside, by the tensor that stands for it. Saved for backward are the operands, the output and its
statistics: the log-sum-exp of a softmax, the numbers of edges that attain a maximum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from pygfuse import products, reference
from pygfuse.call import Call, Dropout, statistics_dtype
from pygfuse.execution_path import prepare, reported_to, running
from pygfuse.graph import Graph
from pygfuse.program import EDGE, PARAMETER, PROGRAMS, SOURCE, TARGET, EdgeProgram
from pygfuse.switches import switches
from pygfuse.targets import target_of
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
    return _run(program, edges, operands, heads, channels, reduce, dropout, seed)[0]


def aggregate_with_weights(
    program: EdgeProgram,
    edges: Edges,
    operands: Mapping[str, products.Value],
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
    """
    out, arguments, statistics = _run(program, edges, operands, heads, channels, reduce, dropout, seed)
    if statistics is None:
        return out, reference.weights(_call_of(*arguments))
    return out, torch.ops.pygfuse.edge_weights(*arguments, statistics)


def _run(
    program: EdgeProgram,
    edges: Edges,
    operands: Mapping[str, products.Value],
    heads: int,
    channels: int,
    reduce: str,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, tuple, Tensor | None]:
    """The output, the operator's arguments and the statistics, None where no operator ran."""
    tensors = products.parts_of(operands)
    scalars = {name: float(value) for name, value in operands.items() if isinstance(value, (int, float))}
    _check(program, edges, tensors, heads, channels)
    arguments = (
        *(program.name, ','.join(tensors), [tensor.flatten(1) for tensor in tensors.values()]),
        *(','.join(scalars), list(scalars.values())),
        *(edges.token, edges.num_sources, edges.num_targets, edges.flow, edges.loops),
        *(heads, channels, reduce, dropout, seed if dropout > 0.0 else None),
    )
    on = switches()
    if on.fusion:
        stash = not on.recomputation and program.score is not None
        out, statistics, _ = torch.ops.pygfuse.aggregate(*arguments, stash)
    else:
        # PyTorch's own operators, with tensors of edges x features, which autograd keeps
        call, statistics = _call_of(*arguments), None
        out = reference.aggregate(call, _kept(call))
    return out.view(-1, heads, channels), arguments, statistics


def _kept(call: Call) -> Tensor | None:
    """The factors of dropout, if there is any."""
    if call.dropout is None:
        return None
    like = call.like()
    return target_of(like.device).dropout_factors(call.graph.num_edge_ids, call.heads, call.dropout, like)


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


def _call_of(
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
    weights: Tensor | None = None,
) -> Call:
    graph = Edges(token, num_sources, num_targets, flow, loops).graph()
    tensors = [tensor.contiguous() for tensor in tensors]
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
    drawn = Dropout(dropout, _drawn_seed(seed)) if seed is not None else None
    weights = weights if weights is not None and len(weights) else None
    return Call(bound, graph, by_name, numbers, heads, channels, reduce, drawn, weights)


def _drawn_seed(seed: Tensor) -> int | Tensor:
    """The seed as a target takes it: a GPU reads it itself, so that nobody waits and captured graphs draw anew."""
    return seed if seed.is_cuda else int(seed)


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
    stash: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    call = _call_of(
        *(program, names, tensors, scalar_names, scalars, token, num_sources, num_targets, flow, loops),
        *(heads, channels, reduce, dropout, seed),
    )
    target = target_of(call.like().device)
    out, statistics = target.forward(call)
    weights = target.weights(call, statistics) if stash else out.new_empty(0)
    return out, out.new_empty(0) if statistics is None else statistics, weights


@_aggregate.register_fake
def _(
    program, names, tensors, scalar_names, scalars, token, num_sources, num_targets, flow, loops, heads, channels,
    reduce, dropout, seed, stash,
):  # fmt: skip
    out = tensors[0].new_empty(num_targets, heads * channels)
    weights = out.new_empty(torch.library.get_ctx().new_dynamic_size(), heads) if stash else out.new_empty(0)
    if PROGRAMS[program].softmax:
        return out, out.new_empty(num_targets, heads, dtype=statistics_dtype(out.dtype)), weights
    ties = torch.empty_like(out, dtype=statistics_dtype(out.dtype)) if reduce in ('max', 'min') else out.new_empty(0)
    return out, ties, weights


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
    weights: Tensor,
    grad_out: Tensor,
    needed: str,
) -> list[Tensor]:
    call = _call_of(
        *(program, names, tensors, scalar_names, scalars, token, num_sources, num_targets, flow, loops),
        *(heads, channels, reduce, dropout, seed, weights),
    )
    if grad_out.device.type == 'cpu':  # elsewhere all edges are walked
        prepare(call.graph, token)
    wanted, chosen = needed.split(','), PROGRAMS[program]
    walked = products.needed_of_walks(chosen, wanted)
    found = target_of(grad_out.device).backward(call, out, statistics, grad_out.contiguous(), walked)
    return products.gradients_of_parts(chosen, dict(zip(names.split(','), tensors, strict=True)), found, wanted)


@_aggregate_backward.register_fake
def _(
    program, names, tensors, scalar_names, scalars, token, num_sources, num_targets, flow, loops, heads, channels,
    reduce, dropout, seed, out, statistics, weights, grad_out, needed,
):  # fmt: skip
    by_name = dict(zip(names.split(','), tensors, strict=True))
    return [torch.empty_like(by_name[name], memory_format=torch.contiguous_format) for name in needed.split(',')]


def _setup_context(ctx, inputs, output):
    program, names, tensors, scalar_names, scalars, token, *numbers, seed, _ = inputs
    ctx.save_for_backward(*tensors, token, seed, *output)
    ctx.program, ctx.names, ctx.scalar_names, ctx.scalars = program, names, scalar_names, scalars
    ctx.numbers = numbers
    # a layer's other aggregations (degrees) do not walk along the edges
    ctx.layer = running() if any(operand.side == SOURCE for operand in PROGRAMS[program].operands.values()) else None
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx, grad_out, *_):
    *tensors, token, seed, out, statistics, weights = ctx.saved_tensors
    arguments = (ctx.program, ctx.names, tensors, ctx.scalar_names, ctx.scalars, token, *ctx.numbers, seed)
    needed = _needed(ctx)
    gradients: dict[str, Tensor] = {}
    if grad_out is not None and needed:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            gradients = _by_reference(arguments, needed, grad_out, lambda call: reference.aggregate(call, _kept(call)))
        else:
            with reported_to(ctx.layer):
                found = torch.ops.pygfuse.aggregate_backward(
                    *arguments, out, statistics, weights, grad_out, ','.join(needed)
                )
            gradients = dict(zip(needed, found, strict=True))
    return _structured(ctx, gradients, 1)


def _needed(ctx) -> list[str]:
    """The names of the tensors that need a gradient."""
    return [name for name, flag in zip(ctx.names.split(','), ctx.needs_input_grad[2], strict=True) if flag]


def _structured(ctx, gradients: Mapping[str, Tensor], more: int) -> tuple:
    """Gradients in the order of an operator's arguments, of which there are `more` after those of a call."""
    # program, names, tensors, scalar_names, scalars, token, the numbers, seed
    of_tensors = [gradients.get(name) for name in ctx.names.split(',')]
    # the structure that torch.library expects: an empty list counts as a list, any other as one argument
    of_scalars = None if ctx.scalars else []
    return None, None, of_tensors, None, of_scalars, None, *[None] * len(ctx.numbers), None, *[None] * more


def _by_reference(
    arguments: tuple, needed: Sequence[str], grad: Tensor, function: Callable[[Call], Tensor]
) -> dict[str, Tensor]:
    """The gradients of what the reference computes, as functions of the operands again if gradients are enabled."""
    program, names, tensors, *rest = arguments
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # an operand may be computed from another: a view of its own keeps their gradients apart
        tensors = [tensor.view_as(tensor) for tensor in tensors]
        given = dict(zip(names.split(','), tensors, strict=True))
        for name in needed:
            if not given[name].requires_grad:
                given[name].requires_grad_()
        result = function(_call_of(program, names, tensors, *rest))
        found = torch.autograd.grad(
            result, [given[name] for name in needed], grad, create_graph=with_graph, allow_unused=True
        )
    return dict(zip(needed, found, strict=True))


_aggregate.register_autograd(_backward, setup_context=_setup_context)


@torch.library.custom_op('pygfuse::edge_weights', mutates_args=())
def _edge_weights(
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
    statistics: Tensor,
) -> Tensor:
    call = _call_of(
        *(program, names, tensors, scalar_names, scalars, token, num_sources, num_targets, flow, loops),
        *(heads, channels, reduce, dropout, seed),
    )
    return target_of(statistics.device).weights(call, statistics)


def _weights_context(ctx, inputs, output):
    program, names, tensors, scalar_names, scalars, token, *numbers, seed, _ = inputs
    ctx.save_for_backward(*tensors, token, seed)
    ctx.program, ctx.names, ctx.scalar_names, ctx.scalars = program, names, scalar_names, scalars
    ctx.numbers = numbers


def _weights_backward(ctx, grad):
    *tensors, token, seed = ctx.saved_tensors
    arguments = (ctx.program, ctx.names, tensors, ctx.scalar_names, ctx.scalars, token, *ctx.numbers, seed)
    return _structured(ctx, _by_reference(arguments, _needed(ctx), grad, reference.weights), 1)


_edge_weights.register_autograd(_weights_backward, setup_context=_weights_context)


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
    dropout = Dropout(probability, _drawn_seed(seed))
    return target_of(like.device).dropout_factors(rows, heads, dropout, like)


@dropout_factors.register_fake
def _(rows, heads, probability, seed, like):
    return like.new_empty(rows, heads)


def new_seed(like: Tensor | None = None) -> Tensor:
    """A seed from torch's generator of the device of `like` (or the CPU): ``torch.manual_seed`` decides it."""
    return torch.randint(torch.iinfo(torch.int64).max, (), device=None if like is None else like.device)
