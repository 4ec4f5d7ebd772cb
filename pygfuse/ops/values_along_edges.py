"""The values of a program on all edges, a row for each.

They are a gradient. That of ``<1, sum of factor * message>`` for the factor of each edge is the message; and where the
factor is the gradient of the messages, those for the program's operands are the gradients that follow. So the walks of
an adjoint give both, in place of kernels of their own. A factor of each head gives the messages' sums over channels.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.functions import untransformed
from pygfuse._lib.modes import changed
from pygfuse.call import reference
from pygfuse.graph.graph import Graph
from pygfuse.graph.listed import Listed
from pygfuse.ops.aggregation import aggregate, is_fused
from pygfuse.ops.edges import Edges
from pygfuse.ops.given import check_shapes, check_types, given_of
from pygfuse.ops.listed import as_saved, listed_of, say_which
from pygfuse.ops.plan import Adjoint, Plan, plan_of
from pygfuse.ops.schema import flattened, with_parts
from pygfuse.ops.walks import walk_back, walk_few_back
from pygfuse.ops.within_torch import autocast
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.differentiable import differentiable, is_differentiated
from pygfuse.ops.within_torch.intercepted import are_plain, is_intercepted, is_watched
from pygfuse.ops.within_torch.wanted import taken
from pygfuse.program.products import OperandValue
from pygfuse.program.program import BoundProgram, EdgeProgram
from pygfuse.program.trace import CHANNELS, Value

_NO_FEATURES: frozenset[str] = frozenset()


def has_values_along(edges: Edges, tensors: Sequence[Tensor], heads: int, channels: int) -> bool:
    """Whether `values_along` takes edges and tensors like these: nobody intercepts or casts, and no loops are added."""
    is_cast = autocast.is_on(tensors[0].device)
    has_walks = is_fused(heads, channels) and edges.loops is None and edges.num_edges > 0
    return has_walks and not is_cast and not is_watched(tensors)


def values_along(
    program: EdgeProgram,
    factor: str,
    edges: Edges,
    operands: Mapping[str, OperandValue],
    heads: int,
    channels: int,
) -> Tensor:
    """What a program multiplies with a factor of each edge, or its sum over the channels of a head.

    Args:
        program: A program without softmax, whose message is a product with an operand of edges and channels; or with
            a score that is an operand of edges and heads.
        factor: The name of that operand.
        edges: The edges; `has_values_along` says whether there are values of these.
        operands: The other operands, as of `pygfuse.ops.aggregation.aggregate`.
        heads, channels: H and C.

    Returns:
        ``[edges, H * C]``, or ``[edges, H]`` of a factor of each head, in the user's order.

    Raises:
        ValueError: If an operand has another shape, type or device than expected, or an edge names a node that is not
            there.

    Example:
        >>> from pygfuse.program.program import operands
        >>> declared = operands(source='x', target='x_dst', edge='factor')
        >>> differences = EdgeProgram('differences', declared, lambda x, x_dst, factor: factor * (x - x_dst))
        >>> edges, x = Edges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 3, 3), torch.tensor([[1.0], [4.0], [9.0]])
        >>> values_along(differences, 'factor', edges, {'x': x, 'x_dst': x}, heads=1, channels=1).flatten()
        tensor([-3., -5.,  5.])
    """
    given = given_of(program, operands)
    like = given.tensors[0]
    is_of_heads = program.operands[factor].level != CHANNELS
    stand_in = _stand_in(like, (edges.num_edges, heads if is_of_heads else heads * channels))
    given = given._replace(names=(*given.names, factor), tensors=[*given.tensors, stand_in])
    plan = plan_of(given, heads, channels, 'sum')
    check_types(given.names, given.tensors, False)
    check_shapes(plan.expected, given.tensors, edges)
    listed = listed_of(plan, edges, like.element_size())
    graph = edges.graph() if listed is None else listed
    work = _Work(plan if listed is None else plan.formed, edges, graph, given.numbers, is_of_heads)
    tensors = given.tensors[:-1]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _apply(work, *tensors)
    return work.values(tensors)


@dataclasses.dataclass(frozen=True, eq=False)
class _Work:
    """A call but for its tensors; the factor is the last of these."""

    plan: Plan
    edges: Edges
    graph: Graph | Listed
    numbers: Mapping[str, float]
    is_of_heads: bool

    @property
    def width(self) -> int:
        """How many numbers of an edge there are."""
        return self.plan.heads if self.is_of_heads else self.plan.width

    def values(self, tensors: Sequence[Tensor]) -> Tensor:
        """The values."""
        adjoint = self.plan.adjoint((*[False] * len(tensors), True))
        given = [*tensors, _stand_in(tensors[0], (self.edges.num_edges, self.width))]
        try:
            # no view, which nobody could write into once a function of autograd has returned it
            return self._gradients(self.graph, adjoint, given, (len(tensors),))[-1].data
        except IndexError:
            say_which(self.edges)
            raise

    def gradients(
        self, token: Tensor, wanted: Sequence[bool], tensors: Sequence[Tensor | None], unread: _Unread, grad: Tensor
    ) -> list[Tensor | None]:
        """The gradients of the tensors, of which those that are `unread` are None, from that of the values."""
        given = [*tensors, grad.contiguous()]
        for place, shape in unread:
            given[place] = _stand_in(grad, shape)
        graph = as_saved(self.graph, token) if type(self.graph) is Listed else self.graph
        terms = _terms(self.plan.bound, self.plan.tensors)
        walked = tuple([flag and place not in terms for place, flag in enumerate(wanted)])
        found = [None] * len(walked)
        if any(walked):
            adjoint = self.plan.adjoint((*walked, False))
            found = self._gradients(graph, adjoint, given, [place for place, _ in unread])[:-1]
        for place in terms:
            if wanted[place]:
                found[place] = grad.view(given[place].shape)
        return found

    def _gradients(
        self, graph: Graph | Listed, adjoint: Adjoint, tensors: Sequence[Tensor], unread: Sequence[int]
    ) -> list[Tensor | None]:
        """The gradients of a sum of the values times the factor."""
        plan = self.plan
        ones = tensors[-1].new_ones(self.edges.num_targets, plan.width)
        if type(graph) is Listed and not plan.has_products:
            rows = [None if place in unread else tensor for place, tensor in enumerate(tensors)]
            rows = plan.rows(rows, graph.num_edge_ids)
            given = graph, rows, self.numbers.values(), ones, None, None, adjoint.needed.names, _NO_FEATURES
            found = plan.walks(ones).backward(*given)
        else:
            call = plan.call(graph, tensors, self.numbers, 0.0, None, None, unread)
            operands = {**call.tensors, **plan.products(tensors)} if plan.has_products else call.tensors
            given = ones, None, ones, adjoint.needed
            if type(graph) is Listed:
                with autocast.off(ones.device):
                    found = walk_few_back(call, operands, *given)
            else:
                # no row of the ones is zero
                with changed(execution_paths=False, note=None):
                    found = walk_back(call, self.edges.token, operands, *given)
            found = flattened(found) if plan.has_products else found
        pairs = zip(plan.tensors, tensors, strict=True)
        return [None if (of := found.get(name)) is None else of.view(tensor.shape) for name, tensor in pairs]

    def differentiable(self, tensors: Sequence[Tensor], grad: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
        """The gradients of the tensors as functions of them, and of the gradient of the values."""
        plan = self.plan
        if is_batched(grad) or is_watched(tensors):
            # a tensor made like a batch is one
            ones = tensors[0].new_ones(self.edges.num_edges, self.width)

            def messages(*given: Tensor) -> Tensor:
                found = reference.messages(plan.call(self.edges.graph(), [*given, ones], self.numbers, 0.0, None))
                return found.view(-1, plan.heads, plan.channels).sum(-1) if self.is_of_heads else found

            return differentiable(messages, tensors, grad, needed)

        def total(*given: Tensor) -> Tensor:
            operands = with_parts(plan.tensors, given) | dict(self.numbers)
            return aggregate(plan.program, self.edges, operands, plan.heads, plan.channels, flat=True)

        ones = grad.new_ones(self.edges.num_targets, plan.width)
        return differentiable(total, [*tensors, grad], ones, [*needed, False])[:-1]


@functools.lru_cache(maxsize=256)
def _terms(bound: BoundProgram, tensors: tuple[str, ...]) -> tuple[int, ...]:
    """The places of rows of edges that are added to what else there is: their gradient is that of the values.

    No other gradient reads them.
    """
    *names, factor = tensors
    of_score = [] if bound.score is None else bound.score.names()
    rows = [
        name for name in bound.message.names() if name in bound.edge_rows and name in names and name not in of_score
    ]
    gradients = bound.message.gradients(rows, Value('grad', CHANNELS))
    return tuple([names.index(name) for name, of in zip(rows, gradients, strict=True) if _is_of_factor(of, factor)])


def _is_of_factor(gradient: Any, factor: str) -> bool:
    """Whether a gradient is that of a sum times a factor, which here is all."""
    if not isinstance(gradient, Value) or gradient.word != 'mul':
        return False
    read = [(argument.word, argument.name) for argument in gradient.arguments if isinstance(argument, Value)]
    return sorted(name for _, name in read) == sorted(['grad', factor]) and all(word is None for word, _ in read)


def _stand_in(like: Tensor, shape: Sequence[int]) -> Tensor:
    """One number for all, where nobody reads them."""
    return like.new_empty(()).expand(shape)


# places of tensors whose values are not saved, with their shapes
_Unread = Sequence[tuple[int, torch.Size]]


class _Values(torch.autograd.Function):
    @staticmethod
    def forward(ctx, work, *tensors):
        out = work.values(tensors)
        adjoint = work.plan.adjoint((*ctx.needs_input_grad[1:], False))
        terms = _terms(work.plan.bound, work.plan.tensors)
        places = [place for place in {*adjoint.unread, *terms} if place < len(tensors)]
        ctx.unread = [(place, tensors[place].shape) for place in places]
        saved = [None if place in places else tensor for place, tensor in enumerate(tensors)]
        # the token is what the user may write to
        ctx.save_for_backward(work.edges.token, *saved)
        ctx.work = work
        return out

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad):
        work, needed = ctx.work, ctx.needs_input_grad[1:]
        token, *tensors = ctx.saved_tensors
        is_plain = type(grad) is Tensor and not is_intercepted() and not is_differentiated(grad)
        if is_plain and are_plain([tensor for tensor in tensors if tensor is not None]):
            wanted = taken(ctx.next_functions[-len(needed) :], needed)
            return None, *work.gradients(token, wanted, tensors, ctx.unread, grad)
        for place, shape in ctx.unread:
            tensors[place] = torch.zeros(shape, dtype=grad.dtype, device=grad.device, requires_grad=needed[place])
        return None, *work.differentiable(tensors, grad, needed)


_apply = untransformed(_Values)
