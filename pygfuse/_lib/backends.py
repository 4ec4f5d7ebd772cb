"""Which backend serves a device, and what it takes."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType

import torch

# as tensors say it, and as somebody may: a look at the type of a device makes a string
_CPU = torch.device('cpu'), torch.device('cpu', 0)
DTYPES = {
    'cpu': (torch.float32, torch.float64),
    'cuda': (torch.float32, torch.float64, torch.float16, torch.bfloat16),
}


def why_not(kind: str) -> str | None:
    """The reason, if any, for which devices of a kind have no kernels.

    Example:
        >>> why_not('cpu') is None
        True
        >>> why_not('mps')
        "the device 'mps' has no fused kernels"
    """
    if kind not in DTYPES:
        return f'the device {kind!r} has no fused kernels'
    if kind == 'cuda' and not _has_numba_cuda():
        major = (torch.version.cuda or '13').split('.')[0]
        return f"fused kernels for CUDA need numba-cuda (pip install 'pygfuse[cuda{major}]')"
    return None


# not `why_not` itself: torch.compile warns of caches that it looks through
@functools.cache
def _has_numba_cuda() -> bool:
    return importlib.util.find_spec('numba_cuda') is not None


# kinds of devices -> what serves them
_BACKENDS: dict[str, ModuleType] = {}


def backend_of(device: torch.device) -> ModuleType:
    """The backend that runs calls whose tensors are on this device: it has ``forward``, ``backward``, ``weights`` and
    ``dropout_factors``.

    Raises:
        ValueError: If there is none, saying what to install where that helps.
    """
    found = _BACKENDS.get(device.type)
    if found is None:
        _check(device)
        found = _BACKENDS[device.type] = _module(device.type, 'backend')
    return found


def sorting_of(device: torch.device) -> ModuleType:
    """The module that sorts edges on this device: it has ``sort_by_target``, ``transpose`` and
    ``inverted``."""
    return _module(device.type, 'edges.sort')


def cuts_of(device: torch.device) -> ModuleType | None:
    """The module that cuts rows into parts on this device: it has ``cut``. None: operators of torch do."""
    return _module('cpu', 'edges.cuts') if device in _CPU else None


def pairs_of(device: torch.device) -> ModuleType | None:
    """The module that finds pairs of relations and nodes on this device: it has ``pairs`` and ``fits_table``. None:
    torch sorts them."""
    return _module('cpu', 'edges.pairs') if device in _CPU else None


def hag_walks_of(device: torch.device) -> ModuleType:
    """The module that aggregates over HAGs on this device: it has ``sums``, ``extremes`` and ``extremes_backward``."""
    return _module(device.type, 'hag')


def edge_chunks_of(device: torch.device) -> ModuleType:
    """The module that works on chunks of edges on this device (`pygfuse.cpu.edge_chunks`, whose functions all have)."""
    return _module(device.type, 'edge_chunks')


def forms_products_by_chunks(kind: str) -> bool:
    """Whether walks on devices of a kind multiply features of edges by a weight for chunks of edges, as fast as one
    matrix product would be."""
    return kind == 'cpu'


def neighbour_search_of(device: torch.device) -> ModuleType | None:
    """The module that searches nearest neighbours on this device: it has ``nearest``. None: torch searches."""
    return _module(device.type, 'points.knn') if why_not(device.type) is None else None


def radius_search_of(device: torch.device) -> ModuleType | None:
    """The module that searches all points within a distance on this device: it has ``within``. None: torch searches."""
    return _module(device.type, 'points.radius') if why_not(device.type) is None else None


def few_edges_of(device: torch.device) -> ModuleType | None:
    """The module that adds along few edges as they come on this device: it has ``add_along_edges``, ``write_sum`` and
    ``Summed``. None: there is none."""
    return _module('cpu', 'few_edges.sums') if device in _CPU else None


def edge_norms_of(device: torch.device) -> ModuleType | None:
    """The module with norms of edges on this device: it has ``edge_norms`` and ``TYPES``. None: torch computes them."""
    return _module('cpu', 'edges.edge_norms') if device in _CPU else None


def listed_walks_of(device: torch.device) -> ModuleType | None:
    """The module that walks few edges as they come on this device: it has ``walks_of``. None: there is none."""
    return _module('cpu', 'few_edges.listed_walks') if device in _CPU else None


def few_edge_networks_of(device: torch.device) -> ModuleType | None:
    """The module that takes few edges as they come through a network on this device: it has ``forward`` and
    ``backward``. None: there is none."""
    return _module('cpu', 'few_edges.networks') if device in _CPU else None


def few_edge_stages_of(device: torch.device) -> ModuleType | None:
    """The module that takes few edges as they come through a network of stages on this device: it has ``is_taken``,
    ``forward`` and ``backward``. None: there is none."""
    return _module('cpu', 'few_edges.stages') if device in _CPU else None


def product_list_of(device: torch.device) -> ModuleType | None:
    """The module with products of small matrices on this device: it has ``multiply_listed``, ``OfList``
    and ``is_faster``. None: there is none."""
    return _module('cpu', 'products.product_list') if device in _CPU else None


def launches_of(device: torch.device) -> ModuleType | None:
    """The module that runs launches one after another on this device: it has ``InTurn``. None: there is none."""
    return _module('cpu', 'compilation.in_turn') if device in _CPU else None


def sparse_products_of(device: torch.device) -> ModuleType | None:
    """The module that multiplies sparse matrices by dense ones on this device: it has ``product``. None: torch does."""
    return _module('cpu', 'products.sparse_products') if device in _CPU else None


def head_products_of(device: torch.device) -> ModuleType | None:
    """The module with the products of heads on this device: it has ``products`` and ``products_adjoint``. None: torch
    computes them."""
    return _module('cpu', 'nodes.head_products') if device in _CPU else None


def directions_of(device: torch.device) -> ModuleType | None:
    """The module with rows of length one on this device: it has ``directions`` and ``directions_adjoint``. None: torch
    computes them."""
    return _module('cpu', 'nodes.directions') if device in _CPU else None


def smearing_of(device: torch.device) -> ModuleType | None:
    """The module with Gaussians of distances on this device: it has ``smeared`` and ``sum_of_smeared``. None: torch
    computes them."""
    return _module('cpu', 'smearing') if device in _CPU else None


def gaussians_of(device: torch.device) -> ModuleType | None:
    """The module with the operands of Gaussians of few edges on this device: it has ``operands`` and
    ``operands_adjoint``. None: there is none, nor walks of few edges."""
    return _module('cpu', 'gaussians') if device in _CPU else None


def row_search_of(device: torch.device) -> ModuleType:
    """The module that finds active rows on this device: it has ``active_rows``, ``kept_rows`` and ``SYNCHRONISES``,
    whether a look makes the host wait for the device. A CPU's has ``active_share``, ``among_zeros``
    and ``distances`` too."""
    return _module(device.type, 'edges.row_search')


@functools.cache
def _module(kind: str, name: str) -> ModuleType:
    return importlib.import_module(f'pygfuse.{kind}.{name}')


def _check(device: torch.device) -> None:
    reason = why_not(device.type)
    if reason is not None:
        raise ValueError(f"Expected tensors on a device that has kernels (got '{device}': {reason})")
