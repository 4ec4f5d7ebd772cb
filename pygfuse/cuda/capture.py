"""A whole training step as one CUDA graph: for small graphs, where launching takes longer than computing."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from pygfuse.cuda.holding import holding
from pygfuse.graph.adjacency import state_of
from pygfuse.graph.attached import ATTACHED
from pygfuse.partial.paths.policy import execution_paths


def capture(step: Callable[[], Any], warmup: int = 3) -> Callable[[], Any]:
    """Records what ``step()`` launches and returns a function that launches all of it again at once.

    The usual rules of CUDA graphs hold: the step reads and writes the same tensors each time (features, ``edge_index``,
    parameters, the state of the optimiser, which is made with ``capturable=True`` where that is an option), its shapes
    do not change and it never waits for the GPU. Dropout draws anew in each replay. Execution paths are not walked.
    What is kept with ``edge_index`` and read by the captured kernels lives as long as the function that is returned.

    Args:
        step: Forward, backward and the optimiser's step, say; its result must be tensors, or None.
        warmup: How often it runs before; these runs count as steps. They build the graph's rows and compile kernels.

    Returns:
        A function without arguments. It returns the tensors that the captured step returned, with new values. After a
        write to ``edge_index``, or to another tensor of whose values the rows were made, it raises a ValueError.

    Raises:
        ValueError: If there is no CUDA device, or `warmup` is less than 1.

    Example::

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x, edge_index)[train], y[train])
            loss.backward()
            optimizer.step()
            return loss


        train_step = capture(step)
        for epoch in range(200):
            loss = train_step()
    """
    if warmup < 1:
        raise ValueError(f"Expected 'warmup' to be at least 1: the first run builds what the others use (got {warmup})")
    if not torch.cuda.is_available():
        raise ValueError("Expected 'step' to run on a CUDA device (got none: torch sees no GPU)")
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    # nobody can look at a gradient while it is captured: whole graphs are walked, and built before
    with torch.cuda.stream(beside), execution_paths(False):
        for _ in range(warmup):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), execution_paths(False), ATTACHED.noting() as used, holding() as read:
        result = step()

    return _Captured(graph, result, used, read)


class _Captured:
    """A step that was captured.

    Args:
        graph: What was recorded.
        result: What the step returned.
        used: What was found for the user's tensors: each with its state and what was made of it.
        read: Index tensors that launches read.
    """

    def __init__(
        self, graph: torch.cuda.CUDAGraph, result: Any, used: list[tuple[Any, Hashable, Any]], read: list[Tensor]
    ) -> None:
        self._graph, self._result, self._used = graph, result, used
        # caches may drop them, and the launches would still read their memory
        self._read = read

    def __call__(self) -> Any:
        for owner, state, _ in self._used:
            if state_of(owner) != state:
                raise ValueError(
                    f"Expected what 'step' reads edges from to be as it was when it was captured (got a "
                    f'{type(owner).__name__} that was written to since): capture the step again'
                )
        self._graph.replay()
        return self._result
