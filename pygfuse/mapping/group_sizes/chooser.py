"""Which chooser of group sizes is in force, and what it chooses."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import numbers
import weakref
from typing import Any, Protocol

from pygfuse._lib.device_table import DeviceTable
from pygfuse._lib.modes import changed, modes
from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import Mapping


class Chooser(Protocol):
    """A function from the structure of a graph, seen by rows, to a group size."""

    def __call__(self, csr: Csr, row_bytes: int) -> int | None:
        """The edges and rows of a group.

        Args:
            csr: The edges by row: a graph's or an execution path's.
            row_bytes: Bytes of a row of channels.

        Returns:
            A size of at least 1, or None where nothing is known of the device that holds the edges.
        """


# the module of each chooser's ``group_size``, imported when it is first asked; `pygfuse.tune` adds its own
CHOOSERS = {
    'regression': 'pygfuse.mapping.group_sizes.regression',
    'learned': 'pygfuse.mapping.group_sizes.learned',
}

# what choosers keep of this device: refitted coefficients, sizes found by search
TABLE = DeviceTable('group_sizes.json')


def group_sizes(chooser: str | Chooser) -> contextlib.AbstractContextManager[None]:
    """Chooses the group size of every graph and every execution path within a ``with`` block.

    Without it, all groups have ``PART_WORK`` edges and rows, unless `pygfuse.autotune` or the cost model found another
    size. A mapping that `pygfuse.force_mapping` forces goes before. A CPU makes at most ``PARTS_LIMIT`` groups, so
    that a smaller size counts as that share of the work. An execution path is cut by itself, no longer at the places
    where the whole graph is.

    The size decides which rows are summed in pieces: of rows that are cut, sums differ by rounding between sizes. On a
    GPU, where autograd runs backward in threads of its own, the block has to hold the forward pass.

    Args:
        chooser: ``'regression'``: the linear regression of Xu et al. over vertices, edges and mean degree, with the
            published coefficients, which were fitted on a GPU and are far too small for a CPU, until
            ``benchmarks/refit_group_regression.py --remember`` has fitted them to this one. ``'learned'``: a graph
            classifier with self-attention pooling, trained on graphs that were measured on two cores. ``'measured'``: a
            search that times sums over the graph when it is first met, remembered on disk for graphs of about this
            shape. Or a function ``(csr, row_bytes) -> size``. On a GPU, ``'learned'`` and ``'measured'`` know nothing
            and leave the size as it is.

    Raises:
        ValueError: If there is no such chooser; from the layers, if a function returns neither None nor an int of at
            least 1.

    Example:
        >>> import torch
        >>> from pygfuse.conv import SAGEConv
        >>> conv, x, edge_index = SAGEConv(8, 8), torch.randn(9, 8), torch.randint(9, (2, 40))
        >>> with group_sizes('regression'):
        ...     conv(x, edge_index).shape
        torch.Size([9, 8])
    """
    if not callable(chooser) and chooser not in CHOOSERS:
        raise ValueError(f"Expected 'chooser' to be one of {tuple(CHOOSERS)} or a function (got {chooser!r})")
    return changed(group_sizes=chooser)


def chooser_in_force() -> str | Chooser | None:
    """The chooser that `group_sizes` names here, or None."""
    return modes().group_sizes


def with_group_size(mapping: Mapping, csr: Csr, row_bytes: int) -> Mapping:
    """The mapping with groups of the size that the chooser in force says, if one is."""
    chooser = chooser_in_force()
    if chooser is None:
        return mapping
    sizes, key = _sizes_of(chooser, csr), (row_bytes, TABLE.generation)
    if key not in sizes:
        # while a search times walks, none is in force
        with changed(group_sizes=None):
            sizes[key] = _checked(_function(chooser)(csr, row_bytes))
    size = sizes[key]
    return mapping if size is None else dataclasses.replace(mapping, part_work=size)


def _sizes_of(chooser: str | Chooser, csr: Csr) -> dict[Any, int | None]:
    """What a chooser said of these edges. A function's answers live as long as the function does."""
    if isinstance(chooser, str):
        return csr.memo.get_or_make(('group sizes', chooser), dict)
    of_functions = csr.memo.get_or_make(('group sizes by functions',), weakref.WeakKeyDictionary)
    try:
        return of_functions.setdefault(chooser, {})
    except TypeError:  # an object without a hash or weak references: asked each time
        return {}


def _checked(size: Any) -> int | None:
    if size is None:
        return None
    if not isinstance(size, numbers.Integral) or size < 1:
        raise ValueError(f"Expected 'chooser' to return an int of at least 1 or None (got {size!r})")
    return int(size)


def _function(chooser: str | Chooser) -> Chooser:
    return importlib.import_module(CHOOSERS[chooser]).group_size if isinstance(chooser, str) else chooser
