"""Edge programs as PyTorch operators: ``torch.compile`` and ``torch.export`` trace through them.

They take tensors and numbers only; the graph is looked up inside, by the tensor that stands for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.backends import backend_of
from pygfuse.call.call import common_dtype, statistics_dtype
from pygfuse.ops.autograd import backward, flags_of, in_order, setup_context, weights_backward, weights_context
from pygfuse.ops.binding import needed_of
from pygfuse.ops.plan import call_of
from pygfuse.ops.programs import program_named
from pygfuse.ops.schema import operator, parted
from pygfuse.ops.walks import walk, walk_back
from pygfuse.ops.within_torch.kept_memory import fake_of


@operator('aggregate', 'bool stash', '(Tensor, Tensor, Tensor)')
def _aggregate(*given) -> tuple[Tensor, Tensor, Tensor]:
    arguments, (stash,) = parted(given)
    out, *rest = walk(call_of(arguments), stash)
    return out, *(out.new_empty(0) if tensor is None else tensor for tensor in rest)


@fake_of(_aggregate)
def _(*given):
    arguments, (stash,) = parted(given)
    heads, reduce = arguments.heads, arguments.reduce
    dtype = common_dtype(arguments.tensors)
    out = arguments.tensors[0].new_empty(arguments.num_targets, heads * arguments.channels, dtype=dtype)
    weights = out.new_empty(torch.library.get_ctx().new_dynamic_size(), heads) if stash else out.new_empty(0)
    if program_named(arguments.program).softmax:
        return out, out.new_empty(arguments.num_targets, 2, heads, dtype=statistics_dtype(out.dtype)), weights
    ties = torch.empty_like(out, dtype=statistics_dtype(out.dtype)) if reduce in ('max', 'min') else out.new_empty(0)
    return out, ties, weights


@operator(
    'aggregate_backward', 'Tensor out, Tensor statistics, Tensor weights, Tensor grad_out, str needed', 'Tensor[]'
)
def _aggregate_backward(*given) -> list[Tensor]:
    arguments, (out, statistics, weights, grad_out, needed) = parted(given)
    names = needed.split(',')
    call = call_of(arguments, weights)
    needed = needed_of(call.bound, flags_of(arguments, names))
    gradients = walk_back(call, arguments.token, arguments.operands(), out, statistics, grad_out, needed)
    return in_order(names, gradients)


@fake_of(_aggregate_backward)
def _(*given):
    arguments, (*_, needed) = parted(given)
    by_name = dict(zip(arguments.names.split(','), arguments.tensors, strict=True))
    return [torch.empty_like(by_name[name], memory_format=torch.contiguous_format) for name in needed.split(',')]


_aggregate.register_autograd(backward, setup_context=setup_context)


@operator('edge_weights', 'Tensor statistics', 'Tensor')
def _edge_weights(*given) -> Tensor:
    arguments, (statistics,) = parted(given)
    return backend_of(statistics.device).weights(call_of(arguments), statistics)


_edge_weights.register_autograd(weights_backward, setup_context=weights_context)
