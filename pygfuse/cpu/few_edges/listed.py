"""Calls over few edges as they come: one kernel forward and one for all of the adjoint, on the calling thread.

Nothing is sorted and nothing kept, so that edges that are new cost what others cost.
"""

from __future__ import annotations

from torch import Tensor

from pygfuse.call.call import Call
from pygfuse.call.gradient import Gradient
from pygfuse.cpu.few_edges.listed_arguments import PARTS
from pygfuse.cpu.few_edges.listed_walks import Walks, walks_of
from pygfuse.cpu.operands import draws_of
from pygfuse.program.products import Product


def forward(call: Call) -> tuple[Tensor, Tensor | None]:
    """The output and what its adjoint needs of it, as of `pygfuse.cpu.backend.forward`.

    Args:
        call: A call whose graph is a `Listed`; its products have no loops.

    Raises:
        IndexError: If an edge names a node that is not there. Nothing has been read by it.
    """
    return _walks_of(call).forward(call.graph, _tensors_of(call), call.scalars.values(), draws_of(call))


def backward(asked: Gradient) -> dict[str, Tensor | Product]:
    """The gradients of operands, by name.

    Args:
        asked: Of a call as `forward` takes it.

    Raises:
        IndexError: As of `forward`.
    """
    call, of_output = asked.call, (asked.grad_out, asked.out, asked.statistics)
    needed = frozenset(asked.needed), frozenset(asked.features)
    given = call.graph, _tensors_of(call), call.scalars.values()
    return _walks_of(call).backward(*given, *of_output, *needed, draws_of(call))


def _walks_of(call: Call) -> Walks:
    names = *call.tensors, *[f'{name}:{part}' for name in call.products for part in PARTS]
    return walks_of(call.bound, names, tuple(call.scalars), call.heads, call.channels, call.reduce, call.like.dtype)


def _tensors_of(call: Call) -> list[Tensor]:
    products = [part for product in call.products.values() for part in product[: len(PARTS)]]
    return [*call.tensors.values(), *products]
