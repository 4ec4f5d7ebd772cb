"""An edge program computed by torch, with tensors of all edges: what the backends are checked against.

It also serves where no fused walk can: a backward pass that is itself to be differentiated, or of a batch of gradients.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch_geometric.utils import scatter, softmax

from pygfuse.call.call import Call
from pygfuse.program.program import EDGE, PARAMETER, SOURCE, TARGET
from pygfuse.program.trace import HEADS, SCALAR


def aggregate(call: Call, kept: Tensor | None = None) -> Tensor:
    """The output of a call, ``[targets, H * C]``, differentiable as often as one likes.

    Args:
        call: The call; its tensors may require gradients.
        kept: The factors of dropout ``[edge ids, H]``, if there is any.
    """
    targets, _, message = _messages(call, kept)
    return scatter(message, targets, 0, call.graph.num_targets, reduce=call.reduce)


def messages(call: Call) -> Tensor:
    """The message of each edge, ``[edge ids, H * C]``; 0 for ids of edges that are not walked."""
    _, ids, found = _messages(call, None)
    return found.new_zeros(call.graph.num_edge_ids, call.width).index_put((ids,), found)


def _messages(call: Call, kept: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The target, the id and the message of each edge."""
    targets, ids, values = _edges(call)
    if call.bound.score is not None:
        weight = _weight(call, targets, values)
        if kept is not None:
            weight = weight * kept[ids].unsqueeze(-1)
        values['weight'] = weight
    message = _apply(call.bound.program.message, values)
    return targets, ids, message.expand(len(ids), call.heads, call.channels).reshape(len(ids), call.width)


def weights(call: Call) -> Tensor:
    """The weight of each edge before dropout, ``[edge ids, H]``; 0 for ids of edges that are not walked."""
    targets, ids, values = _edges(call)
    found = _weight(call, targets, values).squeeze(-1)
    return found.new_zeros(call.graph.num_edge_ids, call.heads).index_put((ids,), found)


def _edges(call: Call) -> tuple[Tensor, Tensor, dict[str, Tensor | float]]:
    """The target and the id of each edge, and the operands on it."""
    csr = call.graph.csr
    targets = csr.rows()
    ids = torch.arange(csr.num_edges, device=targets.device) if csr.edge_id is None else csr.edge_id.long()
    return targets, ids, _values_on_edges(call, {SOURCE: csr.index.long(), TARGET: targets, EDGE: ids})


def _weight(call: Call, targets: Tensor, values: Mapping[str, Tensor | float]) -> Tensor:
    weight = _apply(call.bound.program.score, values).expand(len(targets), call.heads, 1)
    return softmax(weight, targets, num_nodes=call.graph.num_targets) if call.bound.softmax else weight


def _values_on_edges(call: Call, places: Mapping[str, Tensor]) -> dict[str, Tensor | float]:
    values: dict[str, Tensor | float] = {}
    for name in call.bound.present:
        operand = call.bound.program.operands[name]
        if name in call.scalars:
            values[name] = call.scalars[name]
            continue
        shape = {SCALAR: (1, 1), HEADS: (call.heads, 1)}.get(operand.level, (call.heads, call.channels))
        tensor = _rows(call, name)
        tensor = tensor.reshape(tensor.shape[0], *shape)
        values[name] = tensor if operand.side == PARAMETER else tensor[places[operand.side]]
    return values


def _rows(call: Call, name: str) -> Tensor:
    product = call.products.get(name)
    if product is None:
        return call.tensors[name]
    features, weight, loops = product
    return (features if loops is None else torch.cat([features, loops])) @ weight


def _apply(function: Callable, values: Mapping[str, Tensor | float]) -> Tensor:
    return function(**{name: values.get(name, 0.0) for name in inspect.signature(function).parameters})
