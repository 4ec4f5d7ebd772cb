"""Graphs that carry a HAG with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data

from pygfuse._lib.backends import why_not
from pygfuse.cpu.kernel import Kernel
from pygfuse.hag.attach import attach, attached
from pygfuse.hag.hag import Hag, hag_of
from pygfuse.hag.search.find import why_not_worth

KEY = 'hag_tensors'
_AGGREGATION_INDEX = ('hag_aggregation_of_aggregation', 'hag_aggregation_of_target')
_SOURCE_INDEX = ('hag_source_of_aggregation', 'hag_source_of_target')
_EDGES_TOGETHER = 2**16
CHANGED = 'the edges are no longer those that it was found for'


class HagData(Data):
    """`torch_geometric.data.Data` with a HAG: what `pygfuse.transforms.ToHAG` returns.

    The HAG lies in plain tensors under ``hag_tensors``, so it is batched, sliced, moved, pickled and saved with the
    rest; numbers of nodes and of aggregation nodes get their offsets in a batch. Whoever reads ``data.edge_index`` (or
    that of a batch) gets the tensor for which fused layers then find the HAG. It carries a fingerprint of the edges:
    once these are others (a subgraph, added edges), the HAG is not used.

    Example:
        >>> from pygfuse.transforms import ToHAG
        >>> edge_index = torch.tensor([[2, 3, 4, 2, 3, 4], [0, 0, 0, 1, 1, 1]])
        >>> data = ToHAG(for_batches=True, min_saving=1)(Data(edge_index=edge_index, num_nodes=5))
        >>> data.hag.num_aggregation_nodes
        1
        >>> data.edge_index = edge_index[:, :5]
        >>> data.hag is None
        True
    """

    @property
    def edge_index(self) -> Tensor | None:
        """The edges; fused layers that are given this very tensor aggregate over the HAG."""
        found = self['edge_index'] if 'edge_index' in self._store else None
        if type(found) is Tensor and KEY in self._store and attached(found) is None:
            # an alias: what belongs to the tensor must not keep it alive
            given = found.detach(), self._store[KEY], self.num_nodes
            attach(found, lambda: _hag_of_edges(*given, always=False))
        return found

    @edge_index.setter
    def edge_index(self, edge_index: Tensor | None) -> None:
        self._store.edge_index = edge_index

    @property
    def hag(self) -> Hag | None:
        """The HAG; None if there is none, or the edges are no longer those that it was found for."""
        if KEY not in self._store or 'edge_index' not in self._store:
            return None
        made = _hag_of_edges(self['edge_index'], self._store[KEY], self.num_nodes, always=True)
        return made if isinstance(made, Hag) else None

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        if key in _AGGREGATION_INDEX:
            return self._store[KEY]['hag_level'].numel()
        if key in _SOURCE_INDEX:
            return self.num_nodes
        return super().__inc__(key, value, *args, **kwargs)


# what `torch.load` may read without being told
torch.serialization.add_safe_globals([HagData])


def as_kind(data: Data, kind: type[HagData]) -> HagData:
    """The same data, or a batch of them, as an object of a class that carries more."""
    if isinstance(data, kind):
        return data
    made = Batch(_base_cls=kind) if isinstance(data, Batch) else kind()
    made.__dict__.update(data.__dict__)
    made._store._parent = made
    return made


def tensors_of(hag: Hag, edge_index: Tensor) -> dict[str, Tensor]:
    """A HAG as tensors that can be batched, with the fingerprint of its edges."""
    found = {'hag_level': hag.levels, 'hag_fingerprint': fingerprints(edge_index, torch.tensor([hag.num_targets]))}
    for name, rows in (('aggregation', hag.aggregations), ('target', hag.targets)):
        is_aggregation = rows.of_aggregations()
        found[f'hag_inputs_of_{name}'] = torch.stack([rows.middle - rows.indptr[:-1], rows.indptr[1:] - rows.middle], 1)
        found[f'hag_source_of_{name}'] = rows.index[~is_aggregation]
        found[f'hag_aggregation_of_{name}'] = rows.index[is_aggregation]
    return found


def _hag_of_edges(edge_index: Tensor, tensors: dict[str, Tensor], num_nodes: int, always: bool) -> Hag | str:
    """The HAG of these edges, or why there is none to use."""
    reason = why_not(edge_index.device.type)
    if reason is not None:
        return reason
    # a HAG is checked and put together on the CPU; targets keep its levels on their devices
    edge_index, tensors = edge_index.cpu(), {name: tensor.cpu() for name, tensor in tensors.items()}
    expected = tensors['hag_fingerprint']
    if int(expected[:, 0].sum()) != num_nodes or int(expected[:, 1].sum()) != edge_index.shape[1]:
        return CHANGED
    if not torch.equal(fingerprints(edge_index, expected[:, 0]), expected):
        return CHANGED
    parts = []
    for name in ('aggregation', 'target'):
        counts = tensors[f'hag_inputs_of_{name}'].long()
        pointers = torch.cat([counts.new_zeros(1, 2), counts.cumsum(0)]).t().contiguous()
        indices = tensors[f'hag_source_of_{name}'], tensors[f'hag_aggregation_of_{name}']
        parts.append((pointers[0], indices[0], pointers[1], indices[1]))
    hag = hag_of(num_nodes, tensors['hag_level'], *parts)
    return hag if always else why_not_worth(hag) or hag


def fingerprints(edge_index: Tensor, num_nodes: Tensor) -> Tensor:
    """What tells the edges of graphs that stand one after another from others: the order of edges does not matter.

    Args:
        edge_index: The edges of all graphs.
        num_nodes: Number of nodes of each graph, [graphs].

    Returns:
        ``[graphs, 3]``: numbers of nodes and edges, and the sum of a hash over the edges, by nodes within the graph.
    """
    # the rows of an `EdgeIndex` have no memory that a kernel could read
    edge_index = edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index
    ends = num_nodes.cumsum(0)
    graph_of = torch.arange(num_nodes.numel()).repeat_interleave(num_nodes)
    sources, targets = (row.long().contiguous() for row in edge_index)
    parts = max(1, -(-targets.numel() // _EDGES_TOGETHER))
    hashes, first_graphs = targets.new_zeros(targets.numel()), ends - num_nodes
    if targets.numel() and not bool(((targets >= 0) & (targets < graph_of.numel())).all()):
        return targets.new_full((num_nodes.numel(), 3), -1)
    _hash_edges(parts, sources, targets, graph_of, first_graphs, hashes)
    of_edge = graph_of[targets]
    found = torch.stack([num_nodes, torch.bincount(of_edge, minlength=num_nodes.numel())])
    return torch.cat([found, torch.zeros_like(num_nodes).index_add_(0, of_edge, hashes)[None]]).t().contiguous()


def _hash_parts(part, sources, targets, graph_of, first_nodes, hashes):
    """The hash of each edge, by its nodes' numbers within their graph."""
    for edge in range(part * _EDGES_TOGETHER, min(len(targets), (part + 1) * _EDGES_TOGETHER)):
        first = first_nodes[graph_of[targets[edge]]]
        bits = ((targets[edge] - first) << 32) ^ (sources[edge] - first)
        bits = (bits ^ (bits >> 30)) * 0x3F58476D1CE4E5B9
        bits = (bits ^ (bits >> 27)) * 0x14D049BB133111EB
        hashes[edge] = bits ^ (bits >> 31)


_hash_edges = Kernel(_hash_parts, 'the fingerprint of edges')
