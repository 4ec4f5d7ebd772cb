"""Linear maps of sums along few edges: one node of autograd where the sum, each map and their sum would be one each.

Of so few rows, what autograd does for a node takes as long as the node's products.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from pygfuse._lib.backends import few_edges_of
from pygfuse._lib.functions import untransformed
from pygfuse._lib.hooks import weight_and_bias
from pygfuse._lib.modes import nothing_is_said
from pygfuse.graph.adjacency import target_row_of
from pygfuse.ops.few_edges.sums import TYPES, FewEdges, check_sum, sum_along
from pygfuse.ops.listed import list_of
from pygfuse.ops.nodes.product_lines import ProductLines, contiguous
from pygfuse.ops.nodes.sum_maps import write_adjoint, write_maps
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.differentiable import differentiable
from pygfuse.ops.within_torch.intercepted import PLAIN, is_plain_gradient


def mapped_sum_along(
    linear: Module,
    x: tuple[Tensor, Tensor | None],
    edges: FewEdges,
    reduce: str,
    root: Module | None = None,
    itself: float | None = None,
) -> Tensor:
    """``linear(sum_along(x[0], edges, reduce, itself)) + root(x[1])``.

    Args:
        linear: What maps the sums; modules that are more than a linear map are called as they are.
        x: Rows of sources, ``[num_sources, in]``, and of targets, ``[num_targets, in]``: the same tensor, another or
            None.
        edges: The edges.
        reduce: As of `sum_along`, but not weighted.
        root: What maps the rows of targets, or None.
        itself: How many times each row is added to its own sum, where sources and targets are the same nodes.

    Returns:
        ``[num_targets, out]``.

    Raises:
        ValueError: If an edge names a node that is not there, the sources have another number of rows, or sources and
            targets are not the same nodes where they have to be.

    Example:
        >>> edges = FewEdges(torch.tensor([[0, 1, 2], [1, 2, 1]]), 'source_to_target', 3, 3)
        >>> linear = torch.nn.Linear(2, 1, bias=False)
        >>> torch.nn.init.ones_(linear.weight).requires_grad
        True
        >>> mapped_sum_along(linear, (torch.arange(6.0).view(3, 2), None), edges, 'sum').tolist()
        [[0.0], [10.0], [5.0]]
    """
    source, target = x
    root = None if target is None else root
    of_linear, of_root = weights_for(source, linear), None if root is None else weights_for(target, root)
    if of_linear is not None and (root is None or (of_root is not None and of_root[1] is None)):
        of_targets = None if of_root is None else (target, of_root[0])
        return mapped_sum(*of_linear, source, edges, reduce, of_targets, itself)
    out = linear(sum_along(source, edges, reduce, itself))
    return out if root is None else out + root(target)


def mapped_sum(
    weight: Tensor,
    bias: Tensor | None,
    x: Tensor,
    edges: FewEdges,
    reduce: str,
    of_targets: tuple[Tensor, Tensor] | None = None,
    itself: float | None = None,
) -> Tensor:
    """``sum_along(x, edges, reduce, itself) @ weight.t() + bias``, and rows of targets by another weight beside it.

    Args:
        weight: ``[out, in]``, torch's own as all tensors, of the type of `x`.
        bias: ``[out]``, or None.
        x: Rows of sources, ``[num_sources, in]``.
        edges, reduce, itself: As of `mapped_sum_along`.
        of_targets: Rows, ``[num_targets, other]``, which may be `x`, and their weight, ``[out, other]``; or None.

    Returns:
        ``[num_targets, out]``.

    Raises:
        ValueError: As of `mapped_sum_along`, and if the shapes of tensors do not fit one another.

    Example:
        >>> edges, x = FewEdges(torch.tensor([[0, 1], [1, 1]]), 'source_to_target', 2, 2), torch.ones(2, 3)
        >>> mapped_sum(torch.ones(1, 3), torch.ones(1), x, edges, 'sum').tolist()
        [[1.0], [7.0]]
    """
    target, root = (None, None) if of_targets is None else of_targets
    # of rows that are both, one gradient
    form, tensors = (reduce, itself), (x, None if target is x else target, weight, bias, root)
    if torch.is_grad_enabled():
        return _apply(edges, form, edges.edge_index, *tensors)
    return _forward(_step_of(edges, form, tensors, None), edges, itself, edges.edge_index, tensors)[0]


def weights_for(x: Tensor, linear: Module) -> tuple[Tensor, Tensor | None] | None:
    """The weight ``[out, in]`` and bias of a module that is a linear map of such rows, ``[nodes, in]``, and nothing
    else; None of others."""
    found = weight_and_bias(linear) if type(x) in PLAIN and x.dtype in TYPES else None
    if found is None or found[0].dtype is not x.dtype:
        return None
    return found if len(x.shape) == 2 and found[0].shape[1:] == x.shape[1:] else None


# how sums are formed, and how many times a row is added to its own
Sum = tuple[str, float | None]


class _Kind(NamedTuple):
    """What lines depend on.

    Attributes:
        of: The type and device of all tensors.
        width: Of the rows that are summed.
        reduce: How these are summed.
        with_itself: Whether rows are added to their own sums.
        biased, rooted: Whether there are a bias and a weight of targets.
        same: Whether sources and targets are one tensor.
        needed: Which of sources, targets, the weight, the bias and the other weight need a gradient; None where nobody
            differentiates.
    """

    of: tuple[torch.dtype, torch.device]
    width: int
    reduce: str
    with_itself: bool
    biased: bool
    rooted: bool
    same: bool
    needed: tuple[bool, ...] | None


class _Step:
    """Calls of a kind, written out.

    Args:
        kind: The kind.

    Attributes:
        forward: ``forward(edge_index, ..., itself, x, target, weight, bias, root)``: the output, and memory that holds
            the sums or None.
    """

    def __init__(self, kind: _Kind) -> None:
        self._kind, lines = kind, _lines(kind)
        # only the gradient of the weight reads the sums
        room = 'kept' if kind.needed is not None and kind.needed[2] else 'rows'
        lines.reserve('sums', f'num_targets * {kind.width}', room)
        few_edges_of(kind.of[1]).write_sum(lines, _summed(kind), out='sums')
        write_maps(lines, kind.biased, kind.rooted, ('num_targets', kind.width))
        lines.wait()
        ((self._room, self._contents),) = lines.rooms.items()
        kept = self._room if room == 'kept' else 'None'
        self.forward = lines.function(f'{_OF_EDGES}, {_TENSORS}', f'out, {kept}')

    @functools.cached_property
    def backward(self) -> Callable[..., tuple[tuple[Tensor | None, ...], int | None]]:
        """``backward(edge_index, ..., itself, grad, kept, x, target, weight, bias, root)``: the gradients of the last
        five, and the number of edges walked or None; who never asks waits for no kernel of it."""
        kind, lines, needed = self._kind, _lines(self._kind), self._kind.needed
        is_shared = kind.rooted and kind.same
        if needed[2]:
            # hooks of saved tensors may have laid them out otherwise
            lines.prepare(contiguous([self._room]))
            lines.place(self._room, self._contents)
        size = 'num_targets', kind.width
        of_sums, of_own, *others = write_adjoint(lines, needed, is_shared, size, reserves_sums=True)
        of_x, num_added = 'None', 'None'
        if needed[0]:
            # of rows that are both, to the gradient that the other map gives
            of_x, num_added = of_own if is_shared else 'of_x', 'num_added'
            if not is_shared:
                lines.prepare('of_x = x.new_empty(x.shape)')
            few_edges_of(kind.of[1]).write_sum(lines, _summed(kind, transposed=True), of_sums, of_x)
        found = ', '.join([of_x, 'None' if is_shared else of_own, *others])
        return lines.function(f'{_OF_EDGES}, grad, {self._room}, {_TENSORS}', f'({found}), {num_added}')


_OF_EDGES = 'edge_index, target_row, num_sources, num_targets, itself'
_TENSORS = 'x, target, weight, bias, root'


_step = functools.lru_cache(maxsize=1024)(_Step)


def _lines(kind: _Kind) -> ProductLines:
    lines = ProductLines('x', kind.of)
    lines.prepare(contiguous(['x']))
    # the rows that the other weight maps
    lines.prepare(f'own = {"x" if kind.same else "target"}')
    return lines


def _summed(kind: _Kind, transposed: bool = False) -> Any:
    begun = transposed and kind.rooted and kind.same
    sums = few_edges_of(kind.of[1])
    return sums.Summed(kind.of[0], kind.width, kind.reduce, transposed, kind.with_itself, begun)


def _step_of(edges: FewEdges, form: Sum, tensors: Sequence[Tensor | None], needed: tuple[bool, ...] | None) -> _Step:
    x, target, _, bias, root = tensors
    reduce, itself = form
    check_sum(x, edges, reduce, itself)
    there = itself is not None, bias is not None, root is not None, target is None
    return _step(_Kind((x.dtype, x.device), x.shape[1], reduce, *there, needed))


def _forward(
    step: _Step, edges: FewEdges, itself: float | None, edge_index: Tensor, tensors: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    """The output, and what is kept."""
    nodes = target_row_of(edges.flow), edges.num_sources, edges.num_targets
    try:
        return step.forward(edge_index, *nodes, itself, *tensors)
    except IndexError:
        edges.check()
        raise


class _MappedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges, form, edge_index, *tensors):
        step = _step_of(edges, form, tensors, ctx.needs_input_grad[3:])
        out, kept = _forward(step, edges, form[1], edge_index, tensors)
        ctx.save_for_backward(edge_index, kept, *tensors)
        ctx.said = step, edges, form
        return out

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad):
        step, edges, form = ctx.said
        edge_index, kept, *tensors = ctx.saved_tensors
        if is_plain_gradient(grad) and nothing_is_said() and not torch.is_grad_enabled():
            walked = edge_index if edge_index is edges.edge_index else list_of(edge_index)
            nodes = target_row_of(edges.flow), edges.num_sources, edges.num_targets
            found, num_added = step.backward(walked, *nodes, form[1], grad, kept, *tensors)
            if num_added is not None:
                edges.walked_back(num_added)
        else:
            # the sums' own adjoint is noted, and can be differentiated
            compute = _by_parts(edges, form, edge_index)
            found = differentiable(compute, tensors, grad, ctx.needs_input_grad[3:])
        return None, None, None, *found


_apply = untransformed(_MappedSum)


def _by_parts(edges: FewEdges, form: Sum, edge_index: Tensor) -> Callable[..., Tensor]:
    """The same of one node for each part."""
    edges = edges._replace(edge_index=edge_index)

    def compute(x, target, weight, bias, root):
        out = F.linear(sum_along(x, edges, *form), weight, bias)
        return out if root is None else out + F.linear(x if target is None else target, root)

    return compute
