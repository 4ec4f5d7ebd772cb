"""Sparse adjacencies as the list of their edges, of which layers know more ways than of a matrix.

To a sum, a matrix without values, or of ones, is a list of edges; so is an ``EdgeIndex``. Few edges of a list are taken
as they come, and norms of a list are computed by kernels.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.index import ptr2index
from torch_geometric.nn import (
    APPNP,
    ARMAConv,
    ClusterGCNConv,
    GatedGraphConv,
    GCN2Conv,
    LEConv,
    LGConv,
    MFConv,
    MixHopConv,
    SGConv,
    SimpleConv,
    SSGConv,
    TAGConv,
)
from torch_geometric.typing import SparseTensor

from pygfuse._lib.backends import few_edges_of
from pygfuse._lib.modes import nothing_is_said
from pygfuse.conv._layer.fallback import is_observed
from pygfuse.graph.adjacency import FLOWS, SPARSE_LAYOUTS, read, state_of, values_of
from pygfuse.graph.attached import ATTACHED
from pygfuse.hag.attach import attached
from pygfuse.mapping.few_edges import are_listed, fewest_of
from pygfuse.ops.within_torch.intercepted import is_intercepted

# of PyG's layers that are compiled, those that give the same over a matrix and over the list of its edges
_SAME_OVER_LISTS = (
    APPNP, ARMAConv, ClusterGCNConv, GatedGraphConv, GCN2Conv, LEConv, LGConv, MFConv, MixHopConv, SGConv, SimpleConv,
    SSGConv, TAGConv,
)  # fmt: skip
# of these, those that PyG runs by a product alone
_PRODUCTS = (GatedGraphConv, SimpleConv)
_SUMS = ('add', 'sum', 'mean')
# one that is replaced in a layer may be one that PyG calls with a matrix
_METHODS = {'propagate', 'message', 'aggregate', 'update', 'message_and_aggregate'}


def as_list(
    layer: Any,
    x: Any,
    adjacency: Any,
    others: Mapping[str, Any],
    adds_loops: bool,
    drops_values: bool = False,
    keeps_loops: bool = False,
) -> Any:
    """The ``edge_index`` of a sparse adjacency, if it is not too long and a layer gives the same over it; else the
    adjacency.

    Nobody asks while torch compiles.

    Args:
        layer: The layer.
        x: Features, or a pair of them.
        adjacency: What the user passed.
        others: What else the layer is called with, by name.
        adds_loops: Whether the layer puts in self-loops.
        drops_values: Whether it takes no values of a ``SparseTensor``.
        keeps_loops: Whether it adds them to those of a list, and puts them in place of those of a ``SparseTensor``.

    Returns:
        ``[2, edges]``, int64, sources above, or the adjacency.

    Raises:
        ValueError: If the row pointer of a sparse matrix is none.
    """
    if type(adjacency) is Tensor and adjacency.layout is torch.strided:
        return adjacency
    is_sum = type(layer.aggr) is str and layer.aggr in _SUMS and layer.flow == FLOWS[0]
    if not is_sum or getattr(layer, 'cached', False) or is_observed(layer):
        return adjacency
    if any(value is not None for value in others.values()):
        return adjacency
    if not nothing_is_said() or is_intercepted() or torch._C._is_any_autocast_enabled():
        return adjacency
    if attached(adjacency) is not None:
        return adjacency
    sizes = _sizes_of(x)
    if sizes is None or not _is_known(adjacency, sizes) or _has_values(adjacency, drops_values):
        return adjacency
    found = _kept(adjacency, 'as a list', _list_of)
    # in a matrix of torch's, PyG adds self-loops to those that there are
    is_other = type(adjacency) is Tensor or (keeps_loops and isinstance(adjacency, SparseTensor))
    is_same = not adds_loops or not is_other or _kept(found, 'is simple', _simple)
    return found if is_same else adjacency


def is_short_product(adjacency: Any) -> bool:
    """Whether a matrix is torch's own, and PyG's product with it takes less than making the list of a new one."""
    is_of_torch = type(adjacency) is Tensor and adjacency.layout in SPARSE_LAYOUTS
    return is_of_torch and adjacency._nnz() < fewest_of(is_short=True)


def _sizes_of(x: Any) -> tuple[int, int] | None:
    """The numbers of sources and targets that features ``[nodes, channels]`` belong to."""
    pair = x if isinstance(x, tuple) and len(x) == 2 else (x, x)
    if not all(isinstance(part, Tensor) and part.dim() == 2 for part in pair):
        return None
    return pair[0].shape[0], pair[1].shape[0]


def _is_known(adjacency: Any, sizes: tuple[int, int]) -> bool:
    """Whether an adjacency is one of not too many edges between so many sources and targets."""
    if isinstance(adjacency, SparseTensor):
        col = adjacency.storage.col()
        return tuple(adjacency.sparse_sizes()) == sizes[::-1] and _are_listed(col, col.numel())
    if isinstance(adjacency, EdgeIndex):
        is_known = all(size in (None, count) for size, count in zip(adjacency.sparse_size(), sizes, strict=True))
        return is_known and _are_listed(adjacency, adjacency.shape[1])
    if not isinstance(adjacency, Tensor) or adjacency.layout not in SPARSE_LAYOUTS or adjacency.requires_grad:
        return False
    if tuple(adjacency.shape) != sizes[::-1] or (adjacency.layout is torch.sparse_coo and not adjacency.is_coalesced()):
        return False
    return _are_listed(adjacency, adjacency._nnz())


def _has_values(adjacency: Any, drops_values: bool) -> bool:
    """Whether an adjacency has values, other than ones in a matrix of torch's, which is none without."""
    if isinstance(adjacency, SparseTensor):
        return adjacency.has_value() and not drops_values
    values = values_of(adjacency)
    # looked at in each call: what writes to them is not counted by the matrix
    return values is not None and not (values.dim() == 1 and bool((values == 1).all()))


def _are_listed(tensor: Tensor, num_edges: int) -> bool:
    return are_listed(num_edges) and few_edges_of(tensor.device) is not None


def _kept(adjacency: Any, name: str, function: Callable[[Any], Any]) -> Any:
    """What a function makes of an adjacency, kept with it as long as it is not written to."""
    found = ATTACHED.get(adjacency, (name,))
    if found is None:
        state = state_of(adjacency)
        with torch.inference_mode(False), torch.no_grad():
            made = function(adjacency)
        found = ATTACHED.keep(adjacency, (name,), state, made)
    return found


def _list_of(adjacency: Any) -> Tensor:
    """The ``edge_index`` of an adjacency, by target where it is a matrix."""
    if isinstance(adjacency, EdgeIndex):
        # another tensor over the same memory: what belongs to it goes where the EdgeIndex is written to
        return adjacency.as_tensor().detach()
    if isinstance(adjacency, SparseTensor):
        row, (pointer, col, _) = adjacency.storage._row, adjacency.csr()
        return torch.stack([col, _rows_of(adjacency, pointer, col) if row is None else row])
    if adjacency.layout is torch.sparse_csr:
        pointer, col = adjacency.crow_indices(), adjacency.col_indices()
        return torch.stack([col, _rows_of(adjacency, pointer, col)]).long()
    targets, sources = read(adjacency).targets_and_sources()
    return torch.stack([sources, targets])


def _rows_of(adjacency: Any, pointer: Tensor, col: Tensor) -> Tensor:
    """The row of each edge of a compressed matrix.

    Raises:
        ValueError: If the row pointer is none.
    """
    try:
        return ptr2index(pointer, output_size=col.numel())
    except RuntimeError:
        # it says what is wrong
        read(adjacency).compressed_rows()
        raise


def _simple(edge_index: Tensor) -> tuple[()] | tuple[bool]:
    """Whether no edge is a self-loop or, where they are sorted, there twice: something true or false that is kept."""
    is_loop = edge_index[0] == edge_index[1]
    is_repeated = (edge_index[:, 1:] == edge_index[:, :-1]).all(dim=0)
    return () if bool(is_loop.any()) or bool(is_repeated.any()) else (True,)


def over_lists(plain: type, forward: Callable) -> Callable:
    """A compiled class's ``forward``, which is given the list of a matrix where it gives the same."""
    names = list(inspect.signature(plain.forward).parameters)[1:]
    if plain not in _SAME_OVER_LISTS:
        return forward
    place = names.index('edge_index')

    @functools.wraps(forward)
    def over(self: Any, *args: Any, **kwargs: Any) -> Any:
        adjacency = args[place] if len(args) > place else kwargs.get('edge_index')
        stays = type(adjacency) is Tensor and adjacency.layout is torch.strided
        stays = stays or (plain in _PRODUCTS and is_short_product(adjacency))
        if stays or torch.compiler.is_compiling() or not _METHODS.isdisjoint(self.__dict__):
            return forward(self, *args, **kwargs)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        others = {name: value for name, value in given.items() if name not in ('x', 'x_0', 'edge_index')}
        keeps_loops = plain is SimpleConv and self.combine_root == 'self_loop'
        given['edge_index'] = as_list(self, given.get('x'), adjacency, others, adds_loops=True, keeps_loops=keeps_loops)
        return forward(self, **given)

    return over
