"""An edge program as a PyTorch operator: the one way from convolutions to targets.

The operators take tensors and numbers only, so that ``torch.compile`` traces through them; the graph is looked up
inside, by the tensor that stands for it. Saved for backward are the operands, the output and its
statistics: of a softmax its maxima and sums of exponentials, of a maximum the numbers of edges that attain it; of a
sum, only operands that its adjoint reads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.library import CustomOpDef
from torch.overrides import handle_torch_function, has_torch_function

from pygfuse._lib.backends import target_of
from pygfuse._lib.modes import changed, modes
from pygfuse.call import reference
from pygfuse.call.call import Call, Dropout, common_dtype, statistics_dtype
from pygfuse.graph.graph import Graph
from pygfuse.ops import autocast
from pygfuse.ops.batched import is_batched
from pygfuse.partial.paths.attach import prepare
from pygfuse.program import products
from pygfuse.program.adjoint import unread_rows
from pygfuse.program.program import EDGE, PARAMETER, PROGRAMS, SOURCE, TARGET, BoundProgram, EdgeProgram
from pygfuse.program.trace import HEADS, SCALAR


@dataclasses.dataclass(frozen=True)
class Edges:
    """The edges of a call, as an operator takes them.

    Attributes:
        token: The ``edge_index``, or the token of a `Graph`.
        num_sources: Number of source nodes.
        num_targets: Number of target nodes.
        flow: PyG's flow.
        loops: None, or the number of nodes that get exactly one self-loop.
        walked: The graph itself where it is known, else None.

    Example:
        >>> Edges(torch.tensor([[0, 1, 2], [1, 2, 0]]), num_sources=3, num_targets=3).graph()
        Graph(num_sources=3, num_targets=3, num_user_edges=3)
    """

    token: Tensor
    num_sources: int
    num_targets: int
    flow: str = 'source_to_target'
    loops: int | None = None
    walked: Graph | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def num_user_edges(self) -> int:
        """Number of edges that the user passed."""
        return self.token.shape[1] if self.walked is None else self.walked.num_user_edges

    @property
    def num_edges(self) -> int:
        """Number of edges that are walked; while torch compiles, of those that the user passed."""
        return self.token.shape[1] if self.walked is None else self.walked.num_edges

    def graph(self) -> Graph:
        """The graph, from the cache if it was seen before."""
        if self.walked is not None:
            return self.walked
        graph = Graph.of(self.token, num_sources=self.num_sources, num_targets=self.num_targets, flow=self.flow)
        return graph if self.loops is None else graph.with_self_loops(self.loops)


class _Arguments(NamedTuple):
    """A call as operators take it: tensors and numbers in the order of the schema."""

    program: str
    names: str
    tensors: Sequence[Tensor]
    scalar_names: str
    scalars: Sequence[float]
    token: Tensor
    num_sources: int
    num_targets: int
    flow: str
    loops: int | None
    heads: int
    channels: int
    reduce: str
    dropout: float
    seed: Tensor | None

    def by_name(self) -> dict[str, Tensor]:
        """The tensors by the names of operands and their parts."""
        return dict(zip(self.names.split(','), self.tensors, strict=True))

    def numbers(self) -> dict[str, float]:
        """The scalars by the names of operands."""
        names = self.scalar_names.split(',') if self.scalar_names else ()
        return dict(zip(names, self.scalars, strict=True))

    def bound(self) -> BoundProgram:
        """The program with the operands that are given."""
        tensors, program = self.by_name(), PROGRAMS[self.program]
        present = tuple(dict.fromkeys(products.operand_of(name) for name in (*tensors, *self.numbers())))
        pairs = [name for name in present if f'{name}:{products.WEIGHT}' in tensors]
        return program.bind(present, tuple(name for name in pairs if not products.is_formed(program, tensors, name)))


_SCHEMA = (
    'str program, str names, Tensor[] tensors, str scalar_names, float[] scalars, '
    'Tensor token, SymInt num_sources, SymInt num_targets, str flow, SymInt? loops, '
    'SymInt heads, SymInt channels, str reduce, float dropout, Tensor? seed'
)


def _operator(name: str, more: str, result: str) -> Callable[[Callable], CustomOpDef]:
    """Makes a function of the arguments of a call, and of `more`, an operator."""
    schema = f'({_SCHEMA}, {more}) -> {result}'
    return torch.library.custom_op(f'pygfuse::{name}', mutates_args=(), schema=schema)


def _parted(arguments: Sequence) -> tuple[_Arguments, Sequence]:
    """An operator's arguments: those of a call, and the rest."""
    count = len(_Arguments._fields)
    return _Arguments(*arguments[:count]), arguments[count:]


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
            `pygfuse.program.products.Product`: features times a weight, formed when a walk needs it.
        heads: H.
        channels: C.
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'`` over a target's edges.
        dropout: Probability of dropping a weight.
        seed: A tensor of one int64 that decides what is dropped; needed with `dropout`.

    Returns:
        ``[num_targets, H, C]``.

    Raises:
        ValueError: If an operand has another shape, type or device than expected.

    Example:
        >>> from pygfuse.program.library.neighbours import NEIGHBOURS
        >>> edges, x = Edges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 3, 3), torch.arange(6.0).view(3, 1, 2)
        >>> aggregate(NEIGHBOURS, edges, {'x': x}, heads=1, channels=2).flatten(1)
        tensor([[0., 0.],
                [4., 6.],
                [2., 3.]])
    """
    if not torch.compiler.is_compiling():
        tensors = tuple(products.parts_of(operands).values())
        if has_torch_function(tensors):
            return handle_torch_function(
                *(aggregate, tensors, program, edges, operands, heads, channels),
                reduce=reduce,
                dropout=dropout,
                seed=seed,
            )
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

    Example:
        >>> from pygfuse.program.library.gat import GAT
        >>> edges = Edges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 3, 3)
        >>> operands = {'x': torch.ones(3, 1, 2), 'alpha_src': torch.zeros(3, 1), 'negative_slope': 0.2}
        >>> aggregate_with_weights(GAT, edges, operands, heads=1, channels=2)[1].flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """
    out, arguments, statistics = _run(program, edges, operands, heads, channels, reduce, dropout, seed)
    with autocast.off(out.device):
        if statistics is None:
            weights = reference.weights(_call_of(arguments))
        else:
            weights = torch.ops.pygfuse.edge_weights(*arguments, statistics)
    return out, weights.to(out.dtype)


def _run(
    program: EdgeProgram,
    edges: Edges,
    operands: Mapping[str, products.Value],
    heads: int,
    channels: int,
    reduce: str,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, _Arguments, Tensor | None]:
    """The output, the operator's arguments and the statistics, None where no operator ran."""
    tensors = products.parts_of(operands)
    device, dtype = next(iter(tensors.values())).device, common_dtype(tensors.values())
    if autocast.is_on(device):
        tensors = autocast.operands(tensors, reduce)
    scalars = {name: float(value) for name, value in operands.items() if isinstance(value, (int, float))}
    _check(program, edges, tensors, heads, channels)
    arguments = _Arguments(
        *(program.name, ','.join(tensors), [tensor.flatten(1) for tensor in tensors.values()]),
        *(','.join(scalars), list(scalars.values())),
        *(edges.token, edges.num_sources, edges.num_targets, edges.flow, edges.loops),
        *(heads, channels, reduce, dropout, seed if dropout > 0.0 else None),
    )
    on = modes()
    with autocast.off(device):
        if on.fusion and heads * channels > 0:
            stash = not on.recomputation and program.score is not None
            out, statistics, _ = torch.ops.pygfuse.aggregate(*arguments, stash)
        else:
            # PyTorch's own operators on edges x features, which autograd keeps: on request, or without channels
            call, statistics = _call_of(arguments), None
            out = reference.aggregate(call, _kept(call))
    return out.view(edges.num_targets, heads, channels).to(dtype), arguments, statistics


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
        if tensor.dtype != first.dtype and not autocast.is_on(first.device):
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


def _call_of(arguments: _Arguments, weights: Tensor | None = None) -> Call:
    edges = Edges(arguments.token, arguments.num_sources, arguments.num_targets, arguments.flow, arguments.loops)
    graph, program = edges.graph(), PROGRAMS[arguments.program]
    tensors = {name: tensor.contiguous() for name, tensor in arguments.by_name().items()}
    by_name = products.formed(program, tensors)
    for name, tensor in by_name.items():
        on_edges = program.operands[products.operand_of(name)].side == EDGE and not name.endswith(products.WEIGHT)
        if on_edges and tensor.shape[0] != graph.num_edge_ids:
            raise ValueError(
                f"Expected '{name}' to have a row for each of {graph.num_edge_ids} edges (got {tensor.shape[0]})"
            )
    seed = arguments.seed
    drawn = Dropout(arguments.dropout, _drawn_seed(seed)) if seed is not None else None
    weights = weights if weights is not None and len(weights) else None
    return Call(
        *(arguments.bound(), graph, by_name, arguments.numbers()),
        *(arguments.heads, arguments.channels, arguments.reduce, drawn, weights),
    )


def _drawn_seed(seed: Tensor) -> int | Tensor:
    """The seed as a target takes it: a GPU reads it itself, so that nobody waits and captured graphs draw anew."""
    return seed if seed.is_cuda else int(seed)


@_operator('aggregate', 'bool stash', '(Tensor, Tensor, Tensor)')
def _aggregate(*given) -> tuple[Tensor, Tensor, Tensor]:
    arguments, (stash,) = _parted(given)
    call = _call_of(arguments)
    target = target_of(call.like().device)
    out, statistics = target.forward(call)
    weights = target.weights(call, statistics) if stash else out.new_empty(0)
    return out, out.new_empty(0) if statistics is None else statistics, weights


@_aggregate.register_fake
def _(*given):
    arguments, (stash,) = _parted(given)
    heads, reduce = arguments.heads, arguments.reduce
    dtype = common_dtype(arguments.tensors)
    out = arguments.tensors[0].new_empty(arguments.num_targets, heads * arguments.channels, dtype=dtype)
    weights = out.new_empty(torch.library.get_ctx().new_dynamic_size(), heads) if stash else out.new_empty(0)
    if PROGRAMS[arguments.program].softmax:
        return out, out.new_empty(arguments.num_targets, 2, heads, dtype=statistics_dtype(out.dtype)), weights
    ties = torch.empty_like(out, dtype=statistics_dtype(out.dtype)) if reduce in ('max', 'min') else out.new_empty(0)
    return out, ties, weights


@_operator(
    'aggregate_backward', 'Tensor out, Tensor statistics, Tensor weights, Tensor grad_out, str needed', 'Tensor[]'
)
def _aggregate_backward(*given) -> list[Tensor]:
    arguments, (out, statistics, weights, grad_out, needed) = _parted(given)
    call = _call_of(arguments, weights)
    prepare(call.graph, arguments.token)
    wanted, program = needed.split(','), PROGRAMS[arguments.program]
    walked = products.needed_of_walks(program, arguments.by_name(), wanted)
    with autocast.off(grad_out.device):
        found = target_of(grad_out.device).backward(call, out, statistics, grad_out.contiguous(), walked)
        return products.gradients_of_parts(program, arguments.by_name(), found, wanted)


@_aggregate_backward.register_fake
def _(*given):
    arguments, (*_, needed) = _parted(given)
    by_name = arguments.by_name()
    return [torch.empty_like(by_name[name], memory_format=torch.contiguous_format) for name in needed.split(',')]


def _keep(ctx, arguments: _Arguments, output: Sequence[Tensor | None], unread: Collection[str] = ()) -> None:
    """Saves the arguments and the output, without the values of the tensors `unread`."""
    by_name = arguments.by_name()
    ctx.unread = {name: (by_name[name].shape, by_name[name].dtype, by_name[name].device) for name in unread}
    tensors = (None if name in unread else tensor for name, tensor in by_name.items())
    ctx.save_for_backward(*tensors, arguments.token, arguments.seed, *output)
    ctx.arguments = arguments._replace(tensors=(), token=None, seed=None)
    # what hooks of saved tensors give back may be a copy, for which no graph is kept
    ctx.token = None if torch.compiler.is_compiling() else arguments.token


def _kept_arguments(ctx) -> tuple[_Arguments, Sequence[Tensor | None]]:
    """What `_keep` was given; tensors whose values were not saved hold anything."""
    # once: reading them a second time would compute a checkpoint a second time, which it refuses
    saved, names = ctx.saved_tensors, ctx.arguments.names.split(',')
    token, seed, *output = saved[len(names) :]
    token = token if ctx.token is None else ctx.token
    tensors = dict(zip(names, saved, strict=False))
    for name, (shape, dtype, device) in ctx.unread.items():
        tensors[name] = torch.empty(shape, dtype=dtype, device=device)
    return ctx.arguments._replace(tensors=list(tensors.values()), token=token, seed=seed), output


def _setup_context(ctx, inputs, output):
    arguments, _ = _parted(inputs)
    program, (out, *rest) = PROGRAMS[arguments.program], output
    # a sum's adjoint does not read the sum: its owner may write to it
    is_read = program.softmax or arguments.reduce in ('max', 'min')
    needed = tuple(products.operand_of(name) for name, tensor in arguments.by_name().items() if tensor.requires_grad)
    unread = unread_rows(arguments.bound(), needed, arguments.reduce)
    _keep(ctx, arguments, (out if is_read else None, *rest), unread)
    said, operands = modes(), program.operands.values()
    # a layer's other aggregations (degrees) do not walk along the edges
    is_noted = said.note is not None and any(operand.side == SOURCE for operand in operands)
    ctx.note = weakref.ref(said.note) if is_noted else None
    # autograd's threads for a GPU do not know what is said in the caller's
    ctx.paths = said.execution_paths if arguments.tensors[0].is_cuda else None
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx, grad_out, *_):
    arguments, output = _kept_arguments(ctx)
    needed = _needed(ctx, arguments)
    gradients: dict[str, Tensor] = {}
    if grad_out is not None and needed:
        if not torch.compiler.is_compiling() and (torch.is_grad_enabled() or is_batched(grad_out)):
            gradients = _by_reference(arguments, needed, grad_out, lambda call: reference.aggregate(call, _kept(call)))
        else:
            with _as_in_forward(ctx):
                out, *rest = (grad_out if kept is None else kept for kept in output)
                found = torch.ops.pygfuse.aggregate_backward(*arguments, out, *rest, grad_out, ','.join(needed))
            gradients = dict(zip(needed, found, strict=True))
    return _structured(arguments, gradients, 1)


def _as_in_forward(ctx) -> contextlib.AbstractContextManager[None]:
    """A ``with`` block for a backward pass: its layer's note, and what forward was told where nothing is said now."""
    paths = modes().execution_paths
    return changed(
        note=None if ctx.note is None else ctx.note(),
        execution_paths=ctx.paths if paths is None else paths,
    )


def _needed(ctx, arguments: _Arguments) -> list[str]:
    """The names of the tensors that need a gradient."""
    flags = ctx.needs_input_grad[_Arguments._fields.index('tensors')]
    return [name for name, flag in zip(arguments.names.split(','), flags, strict=True) if flag]


def _structured(arguments: _Arguments, gradients: Mapping[str, Tensor], more: int) -> tuple:
    """Gradients in the order of an operator's arguments, of which there are `more` after those of a call."""
    none = _Arguments(*[None] * len(_Arguments._fields))
    # the structure that torch.library expects: an empty list counts as a list, any other as one argument
    of_scalars = None if arguments.scalars else []
    of_tensors = [gradients.get(name) for name in arguments.names.split(',')]
    return *none._replace(tensors=of_tensors, scalars=of_scalars), *[None] * more


def _by_reference(
    arguments: _Arguments, needed: Sequence[str], grad: Tensor, function: Callable[[Call], Tensor]
) -> dict[str, Tensor]:
    """The gradients of what the reference computes, as functions of the operands again if gradients are enabled."""
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # an operand may be computed from another: a view of its own keeps their gradients apart
        arguments = arguments._replace(tensors=[tensor.view_as(tensor) for tensor in arguments.tensors])
        by_name = arguments.by_name()
        given = [by_name[name] for name in needed]
        for tensor in given:
            if not tensor.requires_grad:
                tensor.requires_grad_()
        found = torch.autograd.grad(
            function(_call_of(arguments)), given, grad, create_graph=with_graph, allow_unused=True
        )
    return dict(zip(needed, found, strict=True))


_aggregate.register_autograd(_backward, setup_context=_setup_context)


@_operator('edge_weights', 'Tensor statistics', 'Tensor')
def _edge_weights(*given) -> Tensor:
    arguments, (statistics,) = _parted(given)
    return target_of(statistics.device).weights(_call_of(arguments), statistics)


def _weights_context(ctx, inputs, output):
    _keep(ctx, _parted(inputs)[0], ())


def _weights_backward(ctx, grad):
    arguments, _ = _kept_arguments(ctx)
    gradients = _by_reference(arguments, _needed(ctx, arguments), grad, reference.weights)
    return _structured(arguments, gradients, 1)


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
