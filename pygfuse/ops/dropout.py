"""What dropout draws for the weights of edges: ``torch.manual_seed`` decides it."""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.backends import DTYPES, backend_of
from pygfuse.call.call import Call, Dropout
from pygfuse.ops.within_torch.compiled_graphs import register_fake


def new_seed(like: Tensor | None = None) -> Tensor:
    """A seed from torch's generator of the device of `like` (or the CPU): ``torch.manual_seed`` decides it.

    Returns:
        One int64, ``[]``, on that device: what `aggregate` takes as ``seed``.
    """
    return torch.randint(torch.iinfo(torch.int64).max, (), device=None if like is None else like.device)


def drawn_seed(seed: Tensor) -> int | Tensor:
    """The seed as a backend takes it: a GPU reads it itself, so that nobody waits and captured graphs draw anew."""
    return seed if seed.is_cuda else int(seed)


def factors_of(call: Call) -> Tensor | None:
    """The factors of dropout, if there is any."""
    if call.dropout is None:
        return None
    like = call.like
    return backend_of(like.device).dropout_factors(call.graph.num_edge_ids, call.heads, call.dropout, like)


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
    dropout, device = Dropout(probability, drawn_seed(seed)), like.device
    # no kernel draws a narrow type, which weights have under autocast
    drawn = like if like.dtype in DTYPES[device.type] else like.new_empty(0, dtype=torch.float32)
    return backend_of(device).dropout_factors(rows, heads, dropout, drawn).to(like.dtype)


@register_fake(dropout_factors)
def _(rows, heads, probability, seed, like):
    return like.new_empty(rows, heads)
