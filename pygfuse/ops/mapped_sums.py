"""Linear maps of sums along few edges: one node of autograd where the sum, each map and their sum would be one each.

Of so few rows, what autograd does for a node takes as long as the node's products.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from pygfuse._lib.functions import untransformed
from pygfuse._lib.hooks import LINEAR, is_plain, why_not_as_it_is
from pygfuse._lib.modes import nothing_is_said
from pygfuse.ops.autograd import differentiable
from pygfuse.ops.batched import is_batched
from pygfuse.ops.few_edges import TYPES, FewEdges, added_along, sum_along
from pygfuse.ops.intercepted import PLAIN, is_intercepted


def mapped_sum_along(
    linear: Module,
    x: tuple[Tensor, Tensor | None],
    edges: FewEdges,
    reduce: str,
    root: Module | None = None,
) -> Tensor:
    """``linear(sum_along(x[0], edges, reduce)) + root(x[1])``.

    Args:
        linear: What maps the sums; modules that are more than a linear map are called as they are.
        x: Rows of sources, ``[num_sources, in]``, and of targets, ``[num_targets, in]``: the same tensor, another or
            None.
        edges: The edges.
        reduce: ``'sum'`` or ``'mean'``.
        root: What maps the rows of targets, or None.

    Returns:
        ``[num_targets, out]``.

    Raises:
        ValueError: If an edge names a node that is not there, or the sources have another number of rows.

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
    if _is_one_node(linear, source) and (root is None or _is_one_node(root, target, biased=False)):
        of_linear = linear._parameters
        weights = of_linear['weight'], of_linear['bias'], None if root is None else root._parameters['weight']
        # of rows that are both, one gradient
        other = None if root is None or target is source else target
        if torch.is_grad_enabled():
            return _apply(edges, reduce, edges.edge_index, source, other, *weights)
        return _forward(edges, reduce, edges.edge_index, source, other, *weights)[0]
    out = linear(sum_along(source, edges, reduce))
    return out if root is None else out + root(target)


def _is_one_node(linear: Module, x: Tensor, biased: bool = True) -> bool:
    """Whether a module is a linear map of such rows and nothing else, and has no bias unless it may be `biased`."""
    if type(linear) not in LINEAR or type(x) not in PLAIN or why_not_as_it_is(linear, 'it') is not None:
        return False
    parameters, shape = linear._parameters, x.shape
    # what is no parameter may be any attribute
    weight = None if 'bias' not in parameters else parameters.get('weight')
    if weight is None or not (biased or parameters['bias'] is None) or not is_plain(weight):
        return False
    return weight.dtype is x.dtype and x.dtype in TYPES and len(shape) == 2 and weight.shape[1:] == shape[1:]


def _forward(
    edges: FewEdges, reduce: str, edge_index: Tensor, x: Tensor, target: Tensor | None,
    weight: Tensor, bias: Tensor | None, root: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The output and the sums."""
    sums, _ = added_along(x, edge_index, edges, reduce, None, False)
    turned = weight.t()
    out = sums.mm(turned) if bias is None else torch.addmm(bias, sums, turned)
    return out if root is None else out.addmm_(x if target is None else target, root.t()), sums


class _MappedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges, reduce, edge_index, x, target, weight, bias, root):
        out, sums = _forward(edges, reduce, edge_index, x, target, weight, bias, root)
        # only the gradient of the weight reads them
        kept = sums if weight.requires_grad else None
        ctx.save_for_backward(edge_index, kept, x, target, weight, bias, root)
        ctx.edges, ctx.reduce = edges, reduce
        return out

    @staticmethod
    def backward(ctx, grad):
        edge_index, sums, *tensors = ctx.saved_tensors
        needed = ctx.needs_input_grad[3:]
        is_plain = type(grad) is Tensor and not is_intercepted() and not is_batched(grad) and nothing_is_said()
        if is_plain and not torch.is_grad_enabled() and not torch.is_autocast_enabled(grad.device.type):
            found = _gradients(ctx.edges, ctx.reduce, edge_index, sums, tensors, grad, needed)
        else:
            # the sums' own adjoint is noted, and can be differentiated
            found = differentiable(_by_parts(ctx.edges, ctx.reduce, edge_index), tensors, grad, needed)
        return None, None, None, *found


_apply = untransformed(_MappedSum)


def _gradients(
    edges: FewEdges, reduce: str, edge_index: Tensor, sums: Tensor, tensors: list[Tensor | None],
    grad: Tensor, needed: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of sources, targets, the weight, the bias and the other weight."""
    x, target, weight, _, root = tensors
    for_x, for_target, for_weight, for_bias, for_root = needed
    of_x = of_target = of_weight = of_bias = of_root = None
    by_channel = grad.t()
    if for_x:
        of_x, added = added_along(grad.mm(weight), edge_index, edges, reduce, None, True)
        if root is not None and target is None:
            of_x.addmm_(grad, root)
        edges.walked_back(added)
    if for_target:
        of_target = grad.mm(root)
    if for_weight:
        of_weight = by_channel.mm(sums)
    if for_bias:
        of_bias = grad.sum(0)
    if for_root:
        of_root = by_channel.mm(x if target is None else target)
    return of_x, of_target, of_weight, of_bias, of_root


def _by_parts(edges: FewEdges, reduce: str, edge_index: Tensor) -> Callable[..., Tensor]:
    """The same of one node for each part."""
    edges = edges._replace(edge_index=edge_index)

    def compute(x, target, weight, bias, root):
        out = F.linear(sum_along(x, edges, reduce), weight, bias)
        return out if root is None else out + F.linear(x if target is None else target, root)

    return compute
