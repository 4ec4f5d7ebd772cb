"""Edges and sparse matrices that a module holds, and is not given: as attributes or buffers, of itself or of a part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.nn import Module

from pygfuse.compiler.modules.captured_module import OF_MODULE
from pygfuse.conv._modules.edges_by_name import are_other_edges
from pygfuse.conv._modules.matrix_arguments import is_matrix


def held_edges(module: Module) -> Iterator[tuple[str, Any]]:
    """The names and values of what a module holds that are edges, or a sparse matrix.

    Example:
        >>> module = torch.nn.Sequential(torch.nn.Linear(2, 2))
        >>> module[0].edge_index = torch.zeros(2, 9, dtype=torch.int64)
        >>> [name for name, _ in held_edges(module)]
        ['self.0.edge_index']
    """
    for path, part in module.named_modules():
        for name, item in (*vars(part).items(), *part._buffers.items()):
            if is_matrix(item) or (type(item) is Tensor and are_other_edges(name, item)):
                yield f'{OF_MODULE}{path}{"." if path else ""}{name}', item
