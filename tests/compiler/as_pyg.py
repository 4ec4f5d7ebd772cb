"""What is asked of a layer of one's own that is compiled."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch_geometric.nn import MessagePassing

import pygfuse
from tests.support import parity


def assert_as_pyg(conv: MessagePassing, given: dict[str, Any], reason: str | None = None) -> None:
    """Compiles a layer, whose outputs and gradients are then PyG's, in float64 and in float32.

    Args:
        conv: The layer.
        given: The arguments.
        reason: For which it may run PyG's operators.
    """
    reference = parity.results(copy.deepcopy(conv).double(), given, torch.float64, 0)
    plain = parity.results(copy.deepcopy(conv), given, torch.float32, 0)
    pygfuse.compile(conv)
    parity.assert_close(parity.results(copy.deepcopy(conv).double(), given, torch.float64, 0), reference)
    parity.assert_close(parity.results(conv, given, torch.float32, 0), reference, plain)
    assert conv.note.reason in (None, reason)
