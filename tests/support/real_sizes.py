"""Graphs of the size that people train on, for kernels that run on this machine's processor."""

from __future__ import annotations

import functools
import os

import numpy as np
import torch
from torch import Tensor

from tests.support.parity import Example

# as many nodes as Tolokers, and half its edges
NODES, EDGES = 11_758, 519_000
HUB = 100_000
# a file of NumPy's, such as PyG's HeterophilousGraphDataset has them: ``edges``, each once, of shape ``[edges, 2]``
FILE = 'PYGFUSE_TEST_EDGES'


def _skewed(generator: torch.Generator) -> Tensor:
    """Edges whose ends are drawn by a power law: 44 edges a node, more than 1,000 of the first."""
    share = (torch.arange(NODES) + 120.0) ** -0.8
    return torch.multinomial(share.double(), 2 * EDGES, replacement=True, generator=generator).view(2, -1)


def _of_file(path: str) -> Tensor:
    with np.load(path) as found:
        edges = torch.from_numpy(found['edges']).long().t()
    return torch.cat([edges, edges.flip(0)], dim=1)


@functools.cache
def many_edges() -> Example:
    """Some 700,000 edges, of a file or drawn at random; `HUB` of them end in one node, as many begin in one."""
    generator = torch.Generator().manual_seed(0)
    path = os.environ.get(FILE)
    edges = _of_file(path) if path else _skewed(generator)
    count = int(edges.max()) + 1
    others, hub = torch.randint(count, (2, HUB), generator=generator), torch.full((HUB,), count - 1)
    into, out_of = torch.stack([others[0], hub]), torch.stack([hub - 1, others[1]])
    edges = torch.cat([edges, into, out_of], dim=1)
    return Example(edges[:, torch.randperm(edges.shape[1], generator=generator)], count, count)
