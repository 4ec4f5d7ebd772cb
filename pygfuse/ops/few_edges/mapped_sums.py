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
from pygfuse._lib.hooks import weight_and_bias
from pygfuse._lib.modes import nothing_is_said
from pygfuse.ops.few_edges.sums import TYPES, FewEdges, added_along, sum_along
from pygfuse.ops.nodes.sum_maps import adjoint_of_maps, maps_of_sums
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
        reduce: ``'sum'`` or ``'mean'``.
        root: What maps the rows of targets, or None.
        itself: How many times each row is added to its own sum, where sources and targets are the same nodes.

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
    of_linear, of_root = _weights_for(source, linear), None if root is None else _weights_for(target, root)
    if of_linear is not None and (root is None or (of_root is not None and of_root[1] is None)):
        weights = *of_linear, None if of_root is None else of_root[0]
        # of rows that are both, one gradient
        other = None if root is None or target is source else target
        said = edges, (reduce, itself), edges.edge_index
        if torch.is_grad_enabled():
            return _apply(*said, source, other, *weights)
        return _forward(*said, source, other, *weights)[0]
    out = linear(sum_along(source, edges, reduce, itself))
    return out if root is None else out + root(target)


def _weights_for(x: Tensor, linear: Module) -> tuple[Tensor, Tensor | None] | None:
    """The weight and bias of a module that is a linear map of such rows and nothing else; None of others."""
    found = weight_and_bias(linear) if type(x) in PLAIN and x.dtype in TYPES else None
    if found is None or found[0].dtype is not x.dtype:
        return None
    return found if len(x.shape) == 2 and found[0].shape[1:] == x.shape[1:] else None


# how sums are formed: 'sum' or 'mean', and how many times a row is added to its own
Sum = tuple[str, float | None]


def _forward(
    edges: FewEdges, form: Sum, edge_index: Tensor, x: Tensor, target: Tensor | None,
    weight: Tensor, bias: Tensor | None, root: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The output and the sums."""
    sums, _ = added_along(x, edge_index, edges, *form, False)
    own = None if root is None else x if target is None else target
    return maps_of_sums(bias is not None, root is not None)(sums, own, weight, bias, root), sums


class _MappedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, edges, form, edge_index, x, target, weight, bias, root):
        out, sums = _forward(edges, form, edge_index, x, target, weight, bias, root)
        # only the gradient of the weight reads them
        kept = sums if weight.requires_grad else None
        ctx.save_for_backward(edge_index, kept, x, target, weight, bias, root)
        ctx.edges, ctx.form = edges, form
        return out

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad):
        edge_index, sums, *tensors = ctx.saved_tensors
        needed = ctx.needs_input_grad[3:]
        if is_plain_gradient(grad) and nothing_is_said() and not torch.is_grad_enabled():
            found = _gradients(ctx.edges, ctx.form, edge_index, sums, tensors, grad, needed)
        else:
            # the sums' own adjoint is noted, and can be differentiated
            found = differentiable(_by_parts(ctx.edges, ctx.form, edge_index), tensors, grad, needed)
        return None, None, None, *found


_apply = untransformed(_MappedSum)


def _gradients(
    edges: FewEdges, form: Sum, edge_index: Tensor, sums: Tensor, tensors: list[Tensor | None],
    grad: Tensor, needed: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of sources, targets, the weight, the bias and the other weight."""
    x, target, weight, _, root = tensors
    is_shared = root is not None and target is None
    of_sums, of_own, *others = adjoint_of_maps(needed, is_shared)(grad, sums, x if is_shared else target, weight, root)
    if not needed[0]:
        return None, of_own, *others
    of_x, added = added_along(of_sums, edge_index, edges, *form, True, of_own if is_shared else None)
    edges.walked_back(added)
    return of_x, None if is_shared else of_own, *others


def _by_parts(edges: FewEdges, form: Sum, edge_index: Tensor) -> Callable[..., Tensor]:
    """The same of one node for each part."""
    edges = edges._replace(edge_index=edge_index)

    def compute(x, target, weight, bias, root):
        out = F.linear(sum_along(x, edges, *form), weight, bias)
        return out if root is None else out + F.linear(x if target is None else target, root)

    return compute
