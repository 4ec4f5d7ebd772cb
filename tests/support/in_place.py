"""The CUDA backend in the place of the CPU's."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

import pytest

from pygfuse._lib import backends


def in_place_of(name: str, patch: pytest.MonkeyPatch) -> None:
    """Has what a module of the CPU does done by the one of that name for GPUs."""
    given, module = backends._module, importlib.import_module(f'pygfuse.cuda.{name}')
    patch.setattr(backends, '_module', lambda kind, asked: module if asked == name else given(kind, asked))


@contextlib.contextmanager
def in_place_of_the_cpu() -> Iterator[None]:
    """A ``with`` block in which what is done with tensors of the CPU is done by the CUDA backend."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ('backend', 'edges.sort', 'hag', 'edge_chunks', 'points.knn', 'points.radius'):
            in_place_of(name, patch)
        patch.setitem(backends._BACKENDS, 'cpu', importlib.import_module('pygfuse.cuda.backend'))
        patch.setattr('pygfuse.ops.walked_products.forms_products_by_chunks', lambda kind: False)
        patch.setattr('pygfuse.mapping.mapping.cuts_of', lambda device: None)
        # a GPU sorts few edges as well
        patch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
        yield
