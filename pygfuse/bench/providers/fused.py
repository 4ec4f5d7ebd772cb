"""pygfuse."""

from __future__ import annotations

import copy

import pygfuse
from pygfuse.bench.providers.provider import Problem, Provider, Side


def fused(problem: Problem) -> Side:
    """PyG's layer or model, fused."""
    module = pygfuse.fuse(copy.deepcopy(problem.plain))
    return Side(module, lambda: problem.training.forward(module))


PYGFUSE = Provider('pygfuse', fused)
