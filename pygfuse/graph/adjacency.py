"""The adjacencies that PyG accepts, read in one way: for each edge its target and its source.

A plain ``edge_index`` and PyG's ``EdgeIndex`` name sources and targets by row, as ``flow`` says. Sparse
matrices (``torch.sparse`` COO, CSR and CSC, ``torch_sparse.SparseTensor``) are transposed adjacencies by
PyG's convention: rows are targets, columns are sources. Edges are numbered in the order in which PyG sees
them (``torch_geometric.utils.to_edge_index``), so that tensors of one value an edge line up with PyG's.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.index import ptr2index
from torch_geometric.typing import SparseTensor

from pygfuse._lib.backends import DTYPES

FLOWS = ('source_to_target', 'target_to_source')
EDGE_INDEX, SPARSE_TENSOR = 'edge_index', 'SparseTensor'
SPARSE_LAYOUTS = {torch.sparse_coo: 'coo', torch.sparse_csr: 'csr', torch.sparse_csc: 'csc'}
# PyG's
INDEX_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclasses.dataclass(slots=True)
class Adjacency:
    """An adjacency as it was handed over, not yet checked edge by edge.

    Attributes:
        layout: ``'edge_index'``, ``'coo'``, ``'csr'``, ``'csc'`` or ``'SparseTensor'``.
        flow: The direction that was asked for.
        num_sources: Number of sources, or None where the adjacency does not say.
        num_targets: Number of targets, or None.
        num_user_edges: Number of edges.
        user_dtype: Integer type of the user's indices.
        indices: ``(edge_index,)``, or ``(pointer, index)`` for compressed layouts. They share memory with the
            user's tensors but do not keep these alive.
        watched: Pairs of a tensor (or a weak reference to one) and its version when the adjacency was read.
    """

    layout: str
    flow: str
    num_sources: int | None
    num_targets: int | None
    num_user_edges: int
    user_dtype: torch.dtype
    indices: tuple[Tensor, ...]
    watched: tuple[tuple[Any, int | None], ...]

    @property
    def target_row(self) -> int:
        """Which of the two rows of an edge_index, in PyG's order, holds the targets."""
        return target_row_of(self.flow) if self.layout == EDGE_INDEX else 0

    def targets_and_sources(self) -> tuple[Tensor, Tensor]:
        """The target and the source of each edge: two contiguous int64 tensors [edges]."""
        self.check_unwritten()
        if self.layout in (EDGE_INDEX, 'coo'):
            pair = self.indices[0]
            rows = pair.unbind() if self.target_row == 0 else pair.unbind()[::-1]
            if pair.dtype is torch.int64 and pair.is_contiguous():
                return rows
        else:
            pointer, index = self.indices
            self._check_pointer()
            expanded = ptr2index(pointer, output_size=index.numel())
            rows = (index, expanded) if self.layout == 'csc' else (expanded, index)
        return tuple(row.to(torch.int64).contiguous() for row in rows)

    def compressed_rows(self) -> tuple[Tensor, Tensor] | None:
        """Row pointer and column indices by target where the layout has them already, else None."""
        if self.layout not in ('csr', SPARSE_TENSOR):
            return None
        self.check_unwritten()
        self._check_pointer()
        return self.indices

    def check_unwritten(self) -> None:
        """Raises a RuntimeError if the adjacency was written to since it was read."""
        for tensor, version in self.watched:
            tensor = tensor() if isinstance(tensor, weakref.ref) else tensor
            if tensor is not None and version_of(tensor) != version:
                raise RuntimeError(
                    'The adjacency was written to after this Graph was made from it and before the Graph was '
                    'used: make a new one with Graph.of(adjacency), or hand over a clone'
                )

    def _check_pointer(self) -> None:
        pointer, index = self.indices
        rows = self.num_sources if self.layout == 'csc' else self.num_targets
        if pointer.dim() != 1 or index.dim() != 1:
            raise ValueError(
                f"Expected the sparse adjacency 'edge_index' to be one matrix, not a batch (its row pointer "
                f'has shape {list(pointer.shape)})'
            )
        if pointer.numel() != rows + 1:
            raise ValueError(
                f"Expected the row pointer of the sparse adjacency 'edge_index' to have {rows + 1} elements "
                f'(got {pointer.numel()})'
            )
        if pointer[0] != 0 or pointer[-1] != index.numel() or bool((pointer.diff() < 0).any()):
            raise ValueError(
                f"Expected the row pointer of the sparse adjacency 'edge_index' to rise from 0 to its number "
                f'of edges, {index.numel()} (got one from {int(pointer[0])} to {int(pointer[-1])})'
            )


def target_row_of(flow: str) -> int:
    """Which of the two rows of an ``edge_index`` holds the targets."""
    return 1 if flow == FLOWS[0] else 0


def version_of(tensor: Tensor) -> int | None:
    """How often the tensor was written to in place, or None for inference tensors, which do not count."""
    return None if tensor.is_inference() else tensor._version


def state_of(adjacency: Any) -> Hashable | None:
    """What tells whether an adjacency is still what it was; None where changes cannot be noticed."""
    kind = type(adjacency)
    if kind is Tensor and adjacency.layout is torch.strided:
        return _tensor_state(adjacency)
    if isinstance(adjacency, SparseTensor):
        storage = adjacency.storage
        return _joined(storage.rowptr(), storage.col(), storage.sparse_sizes())
    if isinstance(adjacency, EdgeIndex):
        return _joined(adjacency.as_tensor(), None, (version_of(adjacency), adjacency.sparse_size()))
    if isinstance(adjacency, Tensor):
        if adjacency.layout is torch.strided:
            return _tensor_state(adjacency)
        if adjacency.layout in SPARSE_LAYOUTS:
            parts = _index_tensors(adjacency)
            return _joined(parts[0], parts[-1], (version_of(adjacency), tuple(adjacency.shape)))
    return None


def _tensor_state(tensor: Tensor) -> Hashable | None:
    if tensor.is_inference():
        return None
    return tensor._version, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _joined(first: Tensor, second: Tensor | None, rest: Hashable) -> Hashable | None:
    states = _tensor_state(first), rest if second is None else _tensor_state(second)
    return None if None in states else (*states, rest)


def _index_tensors(adjacency: Tensor) -> tuple[Tensor, ...]:
    """The index tensors of a torch.sparse tensor."""
    if adjacency.layout == torch.sparse_coo:
        return (adjacency._indices(),)
    if adjacency.layout == torch.sparse_csr:
        return adjacency.crow_indices(), adjacency.col_indices()
    return adjacency.ccol_indices(), adjacency.row_indices()


def read(adjacency: Any, flow: str = 'source_to_target') -> Adjacency:
    """Reads any adjacency that PyG accepts; looks at its shape and type, not at its edges.

    Args:
        adjacency: ``edge_index`` [2, edges] of integers, ``EdgeIndex``, a ``torch.sparse`` tensor in
            COO, CSR or CSC layout [targets, sources] or a ``torch_sparse.SparseTensor`` of that shape.
        flow: ``'source_to_target'`` or ``'target_to_source'``.

    Raises:
        ValueError: If it is none of these, has a wrong shape, type or device, or is sparse and flow is
            ``'target_to_source'``.
    """
    if flow not in FLOWS:
        raise ValueError(f"Expected 'flow' to be one of {FLOWS} (got {flow!r})")
    if isinstance(adjacency, EdgeIndex):
        return _read_edge_index(adjacency.as_tensor(), flow, adjacency.sparse_size(), adjacency)
    if isinstance(adjacency, SparseTensor):
        _check_sparse_flow(flow)
        pointer, index, _ = adjacency.csr()
        return _read_sparse(SPARSE_TENSOR, (pointer, index), adjacency.sparse_sizes())
    if isinstance(adjacency, Tensor) and adjacency.layout in SPARSE_LAYOUTS:
        _check_sparse_flow(flow)
        return _read_sparse(SPARSE_LAYOUTS[adjacency.layout], _index_tensors(adjacency), tuple(adjacency.shape[:2]))
    if isinstance(adjacency, Tensor) and adjacency.layout is torch.strided:
        return _read_edge_index(adjacency, flow, (None, None))
    kind = f'a tensor of layout {adjacency.layout}' if isinstance(adjacency, Tensor) else type(adjacency).__name__
    raise ValueError(
        "Expected 'edge_index' to be an integer tensor of shape [2, num_edges], an EdgeIndex, a torch.sparse "
        f'tensor in COO, CSR or CSC layout, or a torch_sparse.SparseTensor (got {kind})'
    )


def _read_edge_index(
    tensor: Tensor, flow: str, size: tuple[int | None, int | None], wrapper: EdgeIndex | None = None
) -> Adjacency:
    if tensor.dtype not in INDEX_DTYPES:
        raise ValueError(f"Expected 'edge_index' to be of type int64, int32, int16, int8 or uint8 (got {tensor.dtype})")
    if tensor.dim() != 2 or tensor.size(0) != 2:
        raise ValueError(f"Expected 'edge_index' to have shape [2, num_edges] (got {list(tensor.shape)})")
    _check_device(tensor)
    alias = tensor.detach()
    watched = [(alias, version_of(alias))]
    if wrapper is not None:
        # writes through an EdgeIndex are counted on it, not on the tensor inside
        watched.append((weakref.ref(wrapper), version_of(wrapper)))
    targets_first = flow == FLOWS[1]
    return Adjacency(
        layout=EDGE_INDEX,
        flow=flow,
        num_sources=size[1 if targets_first else 0],
        num_targets=size[0 if targets_first else 1],
        num_user_edges=tensor.size(1),
        user_dtype=tensor.dtype,
        indices=(alias,),
        watched=tuple(watched),
    )


def _read_sparse(layout: str, indices: tuple[Tensor, ...], size: tuple[int, int]) -> Adjacency:
    aliases = tuple(tensor.detach() for tensor in indices)
    _check_device(aliases[0])
    if len(size) != 2 or (layout == 'coo' and aliases[0].size(0) != 2):
        raise ValueError(
            f"Expected the sparse adjacency 'edge_index' to have two sparse dimensions, [targets, sources] "
            f'(got size {list(size)})'
        )
    return Adjacency(
        layout=layout,
        flow=FLOWS[0],
        num_sources=size[1],
        num_targets=size[0],
        num_user_edges=aliases[-1].size(-1),
        user_dtype=aliases[-1].dtype,
        indices=aliases,
        watched=tuple((alias, version_of(alias)) for alias in aliases),
    )


def _check_sparse_flow(flow: str) -> None:
    if flow != FLOWS[0]:
        raise ValueError(
            'Flow direction "target_to_source" is invalid for message propagation via '
            '`torch_sparse.SparseTensor` or `torch.sparse.Tensor`. If you really want to make use of a reverse '
            'message passing flow, pass in the transposed sparse tensor to the message passing module, e.g., '
            '`adj_t.t()`.'
        )


def _check_device(tensor: Tensor) -> None:
    if tensor.device.type not in DTYPES:
        raise ValueError(
            f"Expected 'edge_index' to be on the CPU or an NVIDIA GPU: no kernels for device '{tensor.device}' "
            "(move it with edge_index.to('cpu'))"
        )


def values_of(adjacency: Any) -> Tensor | None:
    """The values of a sparse adjacency, one (scalar or row) an edge in the edges' order; None where there are
    none.

    Args:
        adjacency: Any adjacency that `read` accepts.

    Returns:
        ``[num_edges, *]``; None for an ``edge_index`` and for a ``SparseTensor``
        without values.
    """
    if isinstance(adjacency, EdgeIndex):
        return None
    if isinstance(adjacency, SparseTensor):
        return adjacency.storage.value()
    if not isinstance(adjacency, Tensor) or adjacency.layout is torch.strided:
        return None
    if adjacency.layout == torch.sparse_coo and not adjacency.is_coalesced():
        # repeats stay apart; where gradients are wanted PyG marks the tensor the same way, and backward raises
        return adjacency._coalesced_(True).values() if adjacency.requires_grad else adjacency._values()
    if adjacency.layout == torch.sparse_coo and not adjacency.requires_grad:
        return adjacency._values()  # in inference mode the others are a view of the matrix: torch.compile takes none
    return adjacency.values()
