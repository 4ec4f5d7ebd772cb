"""Linear maps of nodes of which only some rows are wanted, forward or backward.

Rows are taken block by block: they are never copied all together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pygfuse._lib.backends import row_search_of
from pygfuse._lib.finite import is_finite
from pygfuse._lib.functions import applied
from pygfuse._lib.hooks import LINEAR, is_plain, why_not_as_it_is
from pygfuse._lib.modes import modes
from pygfuse._lib.row_products import ROWS_AT_ONCE, sum_over_rows
from pygfuse.ops.nodes.large_products import added_product, is_adjoint_listed, product
from pygfuse.ops.nodes.product_lines import is_mapped_by_list
from pygfuse.ops.nodes.sum_maps import adjoint_of_maps, map_by_list
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.intercepted import PLAIN, are_plain, is_transformed
from pygfuse.ops.within_torch.lazy_values import given_values

# bytes of the rows that are copied together: they should stay in a core's cache
BLOCK_BYTES = 2**20
# the least bytes of a map's input, and the largest share of rows with a gradient, for which the others are left out;
# the wider a row, the less it counts that its gradient has to be looked at and copied
LEAST_BYTES, MOST_SHARE, SHARE_PER_BYTE = 2**22, 0.5, 1 / 1280
# bytes of a map's input from which on it is worth asking whether torch's product is the fastest
LEAST_LISTED = 2**18
# rows of a gradient that tell roughly how many are not zero
SAMPLES = 64
# the number of edges of each node, asked for where something is not finite
Counts = Callable[[], Tensor]


def _blocks(x: Tensor, rows: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The places of some of the rows, and these rows."""
    at_once = min(ROWS_AT_ONCE, max(64, BLOCK_BYTES // max(x.shape[1] * x.element_size(), 1)))
    if len(rows) <= at_once:
        yield slice(None), x.index_select(0, rows)
        return
    room = x.new_empty(at_once, x.shape[1])
    for begin in range(0, len(rows), at_once):
        places = slice(begin, begin + at_once)
        block = rows[places]
        yield places, torch.index_select(x, 0, block, out=room[: len(block)])


def weight_gradient(x: Tensor, rows: Tensor, grad: Tensor) -> Tensor:
    """The gradient of a weight from some rows, ``grad.t() @ x[rows]``.

    Args:
        x: What was mapped, ``[nodes, in]``.
        rows: The rows that count, int64.
        grad: The gradient of their results, ``[rows, out]``.
    """
    result = grad.new_zeros(grad.shape[1], x.shape[1])
    for places, block in _blocks(x, rows):
        result.addmm_(grad[places].t(), block)
    return result


class _LinearOfRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, rows, weight)
        out = x.new_empty(len(rows), weight.shape[0])
        for places, block in _blocks(x, rows):
            if bias is None:
                torch.mm(block, weight.t(), out=out[places])
            else:
                torch.addmm(bias, block, weight.t(), out=out[places])
        return out

    @staticmethod
    @given_values
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, rows, weight = ctx.saved_tensors
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = torch.zeros_like(x).index_copy(0, rows, grad @ weight)
        if ctx.needs_input_grad[2]:
            # this may be differentiated again
            with_graph = torch.is_grad_enabled()
            of_weight = sum_over_rows(grad, x.index_select(0, rows)) if with_graph else weight_gradient(x, rows, grad)
        if ctx.needs_input_grad[3]:
            of_bias = grad.sum(0)
        return of_x, None, of_weight, of_bias


def linear_of_rows(x: Tensor, rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``torch.nn.functional.linear(x[rows], weight, bias)``.

    Args:
        x: ``[nodes, in]``.
        rows: Numbers of rows, each at most once, int64.
        weight: ``[out, in]``.
        bias: ``[out]``, or None.

    Example:
        >>> x, weight, rows = torch.randn(9, 4), torch.randn(3, 4), torch.tensor([2, 5])
        >>> torch.allclose(linear_of_rows(x, rows, weight), F.linear(x[rows], weight))
        True
    """
    if x.device.type != 'cpu' or not are_plain((x,)):
        return F.linear(x.index_select(0, rows), weight, bias)
    return applied(_LinearOfRows, x, rows, weight, bias)


class _LinearOfFewGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None, counts: Counts | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.counts, ctx.reads_result = counts, False
        return product(x, weight.t(), bias)

    @staticmethod
    @given_values
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return *gradients_of_map(x, weight, grad, ctx.needs_input_grad[:3], ctx.counts), None


def gradients_of_map(
    x: Tensor,
    weight: Tensor,
    grad: Tensor,
    needed: Sequence[bool],
    counts: Counts | None = None,
    of_x: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of what was mapped, of the weight and of the bias; rows without a gradient are left out.

    Args:
        x: What was mapped, ``[nodes, in]``.
        weight: ``[out, in]``.
        grad: The gradient of the result, ``[nodes, out]``.
        needed: Which of the three are wanted; the others are None.
        counts: As of `apply_weight`.
        of_x: What is added to the first, a tensor that may be written to.
    """
    rows = None if torch.is_grad_enabled() or x.nbytes < LEAST_BYTES else few_rows(grad, x)
    is_repaired = counts is not None and not is_batched(grad)
    if is_repaired and needed[0] and not is_finite(weight):
        found = _gradient_of_x(weight, grad, counts)
        of_x = found if of_x is None else of_x + found
        _, of_weight, of_bias = _gradients_of_rows(x, weight, grad, (False, *needed[1:]), rows, None)
    else:
        of_x, of_weight, of_bias = _gradients_of_rows(x, weight, grad, needed, rows, of_x)
    if is_repaired and needed[1] and not is_finite(of_weight):
        of_weight = _gradient_of_weight(x, grad, counts)
    return of_x, of_weight, of_bias


def _gradients_of_rows(
    x: Tensor, weight: Tensor, grad: Tensor, needed: Sequence[bool], rows: Tensor | None, of_x: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """`gradients_of_map` from some rows, or from all."""
    if rows is None and is_adjoint_listed(grad, x, weight, of_x):
        adds = of_x is not None
        adjoint = adjoint_of_maps((needed[0], False, *needed[1:], False), False, adds, not adds)
        found, _, *others, _ = adjoint(grad, x, None, weight, None, of_x)
        return found if needed[0] else of_x, *others
    of_weight = of_bias = None
    if rows is not None:
        grad = grad.index_select(0, rows)
    if needed[0]:
        if rows is None:
            of_x = added_product(of_x, grad, weight)
        elif of_x is None:
            of_x = row_search_of(x.device).among_zeros(grad @ weight, rows, len(x))
        else:
            of_x = of_x.index_add_(0, rows, grad @ weight)
    if needed[1]:
        of_weight = sum_over_rows(grad, x) if rows is None else weight_gradient(x, rows, grad)
    if needed[2]:
        of_bias = grad.sum(0)
    return of_x, of_weight, of_bias


def _gradient_of_x(weight: Tensor, grad: Tensor, counts: Counts) -> Tensor:
    """The gradient of what is mapped, in which nodes without edges have no share."""
    return torch.where(counts().unsqueeze(1) > 0, grad @ weight, 0.0)


def _gradient_of_weight(x: Tensor, grad: Tensor, counts: Counts) -> Tensor:
    """The same for the gradient of the weight."""
    return sum_over_rows(grad, torch.where(counts().unsqueeze(1) > 0, x, 0.0))


def few_rows(grad: Tensor, x: Tensor) -> Tensor | None:
    """The rows of a gradient that are not zero, if they are so few that leaving out the others pays, else None.

    Args:
        grad: ``[nodes, out]``.
        x: What was mapped, ``[nodes, in]``.
    """
    if is_batched(grad):
        return None
    on, limit = modes().execution_paths, MOST_SHARE
    if on is None:
        limit = min(limit, SHARE_PER_BYTE * x.shape[1] * x.element_size())
    if on is False or not grad.numel() or grad.dtype not in (torch.float32, torch.float64):
        return None
    grad, search = grad.contiguous(), row_search_of(grad.device)
    if on is None and search.active_share(grad, torch.arange(0, len(grad), max(1, len(grad) // SAMPLES))) > limit:
        return None
    active, count, _ = search.active_rows(grad, None)
    return active.nonzero().flatten() if count <= limit * len(grad) else None


def apply_linear(module: torch.nn.Module, x: Tensor) -> Tensor:
    """``module(x)``, of a linear map of nodes whose backward leaves out rows without a gradient where that pays.

    Where the loss reads few nodes, most rows of the gradients of weights are products with zero. Weight gradients then
    differ from those of all rows by rounding; as along execution paths (`pygfuse.execution_paths` turns both off), a
    zero gradient times an infinite or NaN feature, which is NaN, is left out.

    Args:
        module: A linear map; one with hooks, or of a class or a forward of one's own, is called as it is.
        x: ``[nodes, in]``.
    """
    if is_listed_map(x, module):
        return map_by_list(x, module.weight, module.bias)
    if not is_large_map(x) or not is_plain_linear(module) or module.weight.dtype is not x.dtype:
        return module(x)
    if not torch.is_grad_enabled():
        return product(x, module.weight.t(), module.bias)
    if not (module.weight.requires_grad or x.requires_grad):
        return module(x)
    return applied(_LinearOfFewGradients, x, module.weight, module.bias, None)


def apply_weight(x: Tensor, weight: Tensor, bias: Tensor | None = None, counts: Counts | None = None) -> Tensor:
    """``torch.nn.functional.linear(x, weight, bias)`` of nodes, for a map of the layer's own making.

    The gradient of a map that PyG applies to edges, or that is no matrix product in PyG, has to have the digits of
    PyG's: it is summed over blocks of nodes (`pygfuse._lib.row_products`). Rows without a gradient are left out as in
    `apply_linear`.

    Args:
        x: ``[nodes, in]``.
        weight: ``[out, in]``.
        bias: ``[out]``, or None.
        counts: Where PyG maps edges: gives the number of edges that a node has here, ``[nodes]``. A node that has none
            then does not turn gradients into NaN, whatever its features are.

    Example:
        >>> apply_weight(torch.ones(2, 3), torch.ones(1, 3))
        tensor([[3.],
                [3.]])
    """
    if torch.compiler.is_compiling() or not are_plain((x,)) or not _is_matrix(x):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type) or weight.dtype != x.dtype:
        return F.linear(x, weight, bias)
    if counts is None and len(x) <= ROWS_AT_ONCE:
        return F.linear(x, weight, bias)
    return applied(_LinearOfFewGradients, x, weight, bias, counts)


def is_plain_linear(module: torch.nn.Module) -> bool:
    """Whether a module is a linear map and nothing else: of torch or PyG, not parametrised, without hooks."""
    return type(module) in LINEAR and why_not_as_it_is(module, 'it') is None and is_plain(module.weight)


def is_large_map(x: Tensor, *weights: Tensor) -> bool:
    """`is_map_here`, of many nodes."""
    is_large = not torch.compiler.is_compiling() and _is_matrix(x) and x.nbytes >= LEAST_BYTES
    return is_large and is_map_here(x, *weights)


def are_many_rows(x: Tensor) -> bool:
    """Whether `apply_linear` may do more with such rows than call a module."""
    if torch.compiler.is_compiling() or type(x) is not Tensor:
        return False
    # mostly they are few, which is cheaper to ask
    return x.nbytes >= LEAST_LISTED and is_map_here(x)


def is_listed_map(x: Tensor, *modules: torch.nn.Module) -> bool:
    """Whether linear maps of nodes, too few to leave out rows without a gradient, are faster as products of a list."""
    if torch.compiler.is_compiling() or not _is_matrix(x) or not LEAST_LISTED <= x.nbytes < LEAST_BYTES:
        return False
    # addresses are read, which what stands for a tensor has not
    if type(x) not in PLAIN or not all(map(is_plain_linear, modules)):
        return False
    weights = [module.weight for module in modules]
    return is_map_here(x, *weights) and is_mapped_by_list(x, *weights)


def is_map_here(x: Tensor, *weights: Tensor) -> bool:
    """Whether nodes on a CPU are mapped by weights of their type, and nobody intercepts it."""
    if torch.compiler.is_compiling() or not _is_matrix(x) or not are_plain((x,)) or is_transformed():
        return False
    return not torch.is_autocast_enabled(x.device.type) and all(weight.dtype is x.dtype for weight in weights)


def _is_matrix(x: Tensor) -> bool:
    return x.device.type == 'cpu' and x.layout is torch.strided and x.dim() == 2
