"""Networks on few edges: one kernel forward and one backward, on the calling thread, take the edges as they come.

The first linear map is taken once a node. What all edges have after each stage lies in memory while a kernel runs:
edges are few. Nothing is sorted and nothing of edges is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.compilation.launch import Launch
from pygfuse.cpu.edges.walked_edges import nothing
from pygfuse.cpu.few_edges.network_bodies import backward_body, forward_body
from pygfuse.cpu.networks.activation_tangents import texts_of
from pygfuse.cpu.networks.row_networks import WIDEST
from pygfuse.cpu.vectors.simd import register_bytes
from pygfuse.program.activation import Activation
from pygfuse.program.networks_along_edges import FewEdgeNetwork


def is_taken(network: FewEdgeNetwork) -> bool:
    """Whether there are kernels for a network."""
    return max(network.width, *network.widths) <= WIDEST


def _launch(network: FewEdgeNetwork, of_features: bool | None) -> Launch:
    """Forward, or backward with or without gradients of features."""
    # a search by all fields of the network takes as long as a launch
    found = network.memo.get(('launch', of_features))
    return network.memo.put(('launch', of_features), _new_launch(network, of_features)) if found is None else found


@functools.lru_cache(maxsize=256)
def _new_launch(network: FewEdgeNetwork, of_features: bool | None) -> Launch:
    texts = [text for act in network.stages if isinstance(act, Activation) for text in texts_of(act)]
    body = forward_body if of_features is None else backward_body
    name = f'{body.__name__} of {network}'
    kernel = Kernel(body(network), name, (str(register_bytes()), *texts))
    rows, edges = nothing(network.dtype), nothing(torch.int64)
    some, biases = (rows,) * len(network.biased), tuple(rows if has_bias else None for has_bias in network.biased)
    arguments = edges, 0, 0, 0, rows, rows, some, biases, rows, rows, rows
    if of_features is None:
        arguments = *arguments, rows, edges
    else:
        of_x = rows if of_features else None
        of_target = None if network.shared else of_x
        arguments = *arguments, rows, rows, rows, of_x, of_target, some, biases, edges
    # nobody asks what arguments are: `forward` and `backward` have no others
    return kernel.untested(arguments)


def forward(
    network: FewEdgeNetwork,
    edge_index: Tensor,
    target_row: int,
    pair: tuple[Tensor, Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
) -> tuple[Tensor, Tensor, Tensor]:
    """The reduced values, and what the first map makes of sources and of targets.

    Args:
        network: The network.
        edge_index: ``[2, edges]``, int64, contiguous.
        target_row: Which of its rows holds the targets.
        pair: Features of sources and of targets, contiguous.
        weights, biases: Of all linear maps, the first of which takes both ends; contiguous.

    Raises:
        IndexError: If an edge names a node that is not there. Nothing has been read by it.
    """
    x, x_target = pair
    num_sources, num_targets, num_edges = x.shape[0], x_target.shape[0], edge_index.shape[1]
    of_sources, of_targets = x.new_empty(num_sources, network.hidden), x.new_empty(num_targets, network.hidden)
    room, out = x.new_empty(num_edges * sum(network.widths)), x.new_empty(num_targets, network.widths[-1])
    failed, launch = torch.empty(1, dtype=torch.int64), _launch(network, None)
    launch.run(
        launch.pack(
            *(1, edge_index, target_row, num_targets, num_sources, x, x_target, tuple(weights), tuple(biases)),
            *(of_sources, of_targets, room, out, failed),
        ),
        1,
    )
    _check(failed)
    return out, of_sources, of_targets


def backward(
    network: FewEdgeNetwork,
    edge_index: Tensor,
    target_row: int,
    pair: tuple[Tensor, Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    ends: tuple[Tensor, Tensor],
    grad: Tensor,
    of_features: bool,
) -> tuple[Tensor | None, Tensor | None, list[Tensor], list[Tensor | None]]:
    """The gradients of sources, of targets where these are other nodes, of all weights and of all biases.

    Args:
        network, edge_index, target_row, pair, weights, biases: As of `forward`.
        ends: What the first map made of sources and of targets.
        grad: The gradient of the reduced values, contiguous.
        of_features: Whether somebody wants the gradients of features.

    Raises:
        IndexError: As of `forward`.
    """
    x, x_target = pair
    num_sources, num_targets, num_edges = x.shape[0], x_target.shape[0], edge_index.shape[1]
    last = network.widths[-1]
    room = x.new_empty(num_edges * network.held)
    of_rows = x.new_empty(max(2 * num_targets * last, (num_targets + num_sources) * network.hidden))
    of_x = torch.empty_like(x) if of_features else None
    of_target = torch.empty_like(x_target) if of_features and not network.shared else None
    of_weights = [torch.empty_like(weight) for weight in weights]
    of_biases = [None if bias is None else torch.empty_like(bias) for bias in biases]
    failed, launch = torch.empty(1, dtype=torch.int64), _launch(network, of_features)
    launch.run(
        launch.pack(
            *(1, edge_index, target_row, num_targets, num_sources, x, x_target, tuple(weights), tuple(biases)),
            *(*ends, room, of_rows, grad, nothing(x.dtype), of_x, of_target, tuple(of_weights), tuple(of_biases)),
            failed,
        ),
        1,
    )
    _check(failed)
    return of_x, of_target, of_weights, of_biases


def _check(failed: Tensor) -> None:
    if failed.item():
        raise IndexError('an edge names a node that is not there')
