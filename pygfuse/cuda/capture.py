"""A whole training step as one CUDA graph: for small graphs, where launching takes longer than computing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pygfuse.partial.paths.policy import execution_paths


def capture(step: Callable[[], Any], warmup: int = 3) -> Callable[[], Any]:
    """Records what ``step()`` launches and returns a function that launches all of it again at once.

    The usual rules of CUDA graphs hold: the step reads and writes the same tensors each time (features, ``edge_index``,
    parameters, the state of the optimiser, which is made with ``capturable=True`` where that is an option), its shapes
    do not change and it never waits for the GPU. Dropout draws anew in each replay. Execution paths are not walked.

    Args:
        step: Forward, backward and the optimiser's step, say; its result must be tensors, or None.
        warmup: How often it runs before; these runs count as steps. They build the graph's rows and compile kernels.

    Returns:
        A function without arguments. It returns the tensors that the captured step returned, with new values.

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
    with torch.cuda.graph(graph), execution_paths(False):
        result = step()

    def replay() -> Any:
        graph.replay()
        return result

    return replay
