"""Networks of stages on few edges: one kernel forward and one backward, on one thread or some, take edges as they come.

Edges go through all stages block by block; for the gradient of a maximum the values of all lie in memory while a kernel
runs. Nothing is sorted, nothing of edges is kept, and backward computes their values again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.compilation.launch import Launch
from pygfuse.cpu.edges.walked_edges import nothing
from pygfuse.cpu.few_edges.stage_bodies import backward_body, forward_body, held_of_edge, holds_all
from pygfuse.cpu.networks.activation_tangents import texts_of
from pygfuse.cpu.networks.row_networks import WIDEST
from pygfuse.cpu.networks.row_stages import BLOCK
from pygfuse.cpu.vectors.simd import register_bytes
from pygfuse.program.few_edge_stages import Applied, FewEdgeStages

# numbers that are multiplied: beyond, two threads take less than one, and more than a wait for a busy core
MOST_OF_ONE_PART = 2**22
# times as many, from which on there are twice as many parts
_TWICE_THE_PARTS = 1, 16, 64, 256


def is_taken(network: FewEdgeStages) -> bool:
    """Whether there are kernels for a network."""
    is_typed = network.dtype in (torch.float32, torch.float64)
    return is_typed and min(network.widths) > 0 and max(network.widths) <= WIDEST


@functools.lru_cache(maxsize=256)
def _forward(network: FewEdgeStages, count: int, with_state: bool) -> Launch:
    rows, edges = nothing(network.dtype), nothing(torch.int64)
    kernel = _kernel(forward_body(network, with_state), network)
    return kernel.untested((0, edges, 0, 0, 0, (rows,) * count, rows, rows, rows if with_state else None, edges))


@functools.lru_cache(maxsize=256)
def _backward(network: FewEdgeStages, with_out: bool, with_state: bool, wanted: tuple[bool, ...]) -> Launch:
    rows, edges = nothing(network.dtype), nothing(torch.int64)
    kernel = _kernel(backward_body(network, with_out, with_state, wanted), network, str(wanted), str(with_out))
    grads = tuple([rows if is_wanted else None for is_wanted in wanted])
    given = rows if with_out else None, rows if with_state else None
    return kernel.untested((0, edges, 0, 0, 0, (rows,) * len(wanted), rows, rows, *given, rows, grads, edges))


def _kernel(body: object, network: FewEdgeStages, *more: str) -> Kernel:
    texts = [text for stage in network.stages if isinstance(stage, Applied) for text in texts_of(stage.activation)]
    return Kernel(body, f'{body.__name__} of {network}', (str(register_bytes()), *texts, *more))


def forward(
    network: FewEdgeStages, edge_index: Tensor, target_row: int, num_targets: int, num_sources: int,
    tensors: Sequence[Tensor], with_state: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The reduced values, no rows where nothing is reduced, and those of edges, or None.

    Args:
        network: The network.
        edge_index: ``[2, edges]``, int64, contiguous.
        target_row: Which of its rows holds the targets.
        num_targets, num_sources: Number of nodes.
        tensors: Those of all stages, contiguous, of the shapes that the stages say: sources ``[num_sources, width]``,
            targets ``[num_targets, width]``, features ``[edges, *]``, weights ``[after, before]``, biases ``[after]``.
        with_state: Whether the values of edges are wanted.

    Returns:
        ``[num_targets, width]``, or ``[0, width]``, and ``[edges, width]`` in the order of `edge_index`.

    Raises:
        IndexError: If an edge names a node that is not there. Nothing has been read by it.
    """
    like, width, num_edges = tensors[0], network.widths[-1], edge_index.shape[1]
    parts, step = _parts_of(network, num_edges, num_targets + num_sources)
    room = like.new_empty(parts * BLOCK * held_of_edge(network))
    state = like.new_empty(num_edges, width) if with_state else None
    out = _room_of_parts(like, parts, (num_targets if network.reduce != 'none' else 0, width))
    failed, key = torch.empty(1, dtype=torch.int64), ('forward', with_state)
    launch = network.memo.get_or_make(key, lambda: _forward(network, len(tensors), with_state))
    block = launch.pack(
        parts, step, edge_index, target_row, num_targets, num_sources, tuple(tensors), room, out, state, failed
    )
    launch.run(block, min(parts, torch.get_num_threads()))
    _check(failed)
    return _of_parts(out, parts, network.reduce == 'max'), state


def _parts_of(network: FewEdgeStages, num_edges: int, num_nodes: int) -> tuple[int, int]:
    """How many parts take how many edges each: a function of the work alone, so that threads change no bit."""
    products = num_edges * network.products
    parts = 2 ** sum(products > times * MOST_OF_ONE_PART for times in _TWICE_THE_PARTS)
    # each has copies of what nodes get: together no more rows than those of edges, forward and backward
    while parts > 2 and parts * num_nodes > 2 * num_edges:
        parts //= 2
    return parts, -(-num_edges // (parts * BLOCK)) * BLOCK


def _room_of_parts(like: Tensor, parts: int, shape: Sequence[int]) -> Tensor:
    return like.new_empty(shape if parts == 1 else (parts, *shape))


def _of_parts(copies: Tensor, parts: int, is_largest: bool = False) -> Tensor:
    """What all parts give together."""
    if parts == 1:
        return copies
    return copies.amax(0) if is_largest else copies.sum(0)


def backward(
    network: FewEdgeStages, edge_index: Tensor, target_row: int, num_targets: int, num_sources: int,
    tensors: Sequence[Tensor], of_out: Tensor | None, of_state: Tensor | None, wanted: tuple[bool, ...],
) -> list[Tensor | None]:  # fmt: skip
    """The gradients of the tensors that are wanted.

    Args:
        network, edge_index, target_row, num_targets, num_sources, tensors: As of `forward`.
        of_out, of_state: The gradients of its results, contiguous, or None; not both are None.
        wanted: Which gradients are wanted, a bool for each tensor.

    Returns:
        For each tensor one of its shape, or None.

    Raises:
        IndexError: As of `forward`.
    """
    like, width, num_edges = tensors[0], network.widths[-1], edge_index.shape[1]
    is_whole = holds_all(network, of_out is not None)
    at_once = 1, -(-num_edges // BLOCK) * BLOCK
    parts, step = at_once if is_whole else _parts_of(network, num_edges, num_targets + num_sources)
    room = like.new_empty((num_edges if is_whole else parts * BLOCK) * held_of_edge(network))
    of_rows = like.new_empty(2 * num_targets * width if is_whole else 0)
    of_edges = network.of_edges
    grads = [
        _room_of_parts(like, 1 if is_of_edges else parts, t.shape) if is_wanted else None
        for t, is_wanted, is_of_edges in zip(tensors, wanted, of_edges, strict=True)
    ]
    failed, key = torch.empty(1, dtype=torch.int64), ('backward', of_out is not None, of_state is not None, wanted)
    launch = network.memo.get_or_make(key, lambda: _backward(network, *key[1:]))
    block = launch.pack(
        *(parts, step, edge_index, target_row, num_targets, num_sources, tuple(tensors), room, of_rows, of_out),
        *(of_state, nothing(like.dtype), tuple(grads), failed),
    )
    launch.run(block, min(parts, torch.get_num_threads()))
    _check(failed)
    if parts == 1:
        return grads
    pairs = zip(grads, of_edges, strict=True)
    return [grad if grad is None or is_of_edges else _of_parts(grad, parts) for grad, is_of_edges in pairs]


def _check(failed: Tensor) -> None:
    if failed.item():
        raise IndexError('an edge names a node that is not there')
