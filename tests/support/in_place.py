"""The CUDA backend in the place of the CPU's."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

import pytest

from pygfuse._lib import backends


@contextlib.contextmanager
def in_place_of_the_cpu() -> Iterator[None]:
    """A ``with`` block in which walks, sorting and HAGs of tensors of the CPU are done by the CUDA backend."""
    given = backends._module
    modules = {name: importlib.import_module(f'pygfuse.cuda.{name}') for name in ('backend', 'sort', 'hag')}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backends._BACKENDS, 'cpu', modules['backend'])
        patch.setattr(backends, '_module', lambda kind, name: modules.get(name) or given(kind, name))
        patch.setattr('pygfuse.ops.walked_products.forms_products_by_chunks', lambda kind: False)
        # a GPU sorts few edges as well
        patch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
        yield
