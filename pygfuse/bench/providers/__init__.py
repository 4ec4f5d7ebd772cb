"""The libraries that are compared, one a file; where one is not installed, nothing of it is imported."""

from __future__ import annotations

from pygfuse.bench.providers.cudnn import CUDNN
from pygfuse.bench.providers.dgl import DGL
from pygfuse.bench.providers.fused import PYGFUSE
from pygfuse.bench.providers.provider import Problem, Provider, Side
from pygfuse.bench.providers.pyg import COMPILED, PYG, SPARSE
from pygfuse.bench.providers.turbo_gnn import TURBO_GNN

PROVIDERS = {provider.name: provider for provider in (PYG, COMPILED, SPARSE, DGL, CUDNN, TURBO_GNN, PYGFUSE)}

__all__ = ['PROVIDERS', 'Problem', 'Provider', 'Side']
