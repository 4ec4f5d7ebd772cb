"""Compiling ahead: the kernels of a model's steps, before anybody waits for them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# the first step on a graph may go another way than those on a graph that was met before
_STEPS = 3


def warm(model: torch.nn.Module, *inputs: Any, **named: Any) -> None:
    """Compiles the kernels that a model needs, for training and for inference, or loads them from disk.

    It runs some training steps and one forward pass in evaluation mode, on copies: parameters, gradients, buffers and
    the state of torch's random numbers stay as they are. What kind of graph is given decides some kernels (whether it
    has rows of very many edges, whether its edges are sorted), so that an example like those to come is best. Hooks are
    copied with the model and run.

    Args:
        model: Any module, fused or in parts.
        inputs: What its `forward` takes.
        named: What its `forward` takes by name.

    Raises:
        TypeError: If `model` is no module.

    Example:
        >>> from pygfuse.conv import GCNConv
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> warm(GCNConv(4, 2), torch.randn(3, 4), edge_index)
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"Expected 'model' to be a torch.nn.Module (got {type(model).__name__})")
    model, inputs, named = copy.deepcopy((model, inputs, named))
    with torch.random.fork_rng(), torch.enable_grad():
        model.train()
        for _ in range(_STEPS):
            found = [tensor for tensor in _tensors(model(*inputs, **named)) if tensor.requires_grad]
            torch.autograd.backward(found, [torch.randn_like(tensor) for tensor in found])
        model.eval()
        with torch.no_grad():
            model(*inputs, **named)


def _tensors(output: Any) -> Iterator[Tensor]:
    """The tensors of a model's output."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (tuple, list, dict)):
        for item in output.values() if isinstance(output, dict) else output:
            yield from _tensors(item)
