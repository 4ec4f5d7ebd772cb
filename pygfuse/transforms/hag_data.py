"""Graphs that carry a HAG with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from pygfuse._lib.backends import why_not
from pygfuse.hag.attach import attach, attached
from pygfuse.hag.hag import Hag, hag_of
from pygfuse.hag.search.find import why_not_worth
from pygfuse.transforms.fingerprints import fingerprints, fits

KEY = 'hag_tensors'
_AGGREGATION_INDEX = ('hag_aggregation_of_aggregation', 'hag_aggregation_of_target')
_SOURCE_INDEX = ('hag_source_of_aggregation', 'hag_source_of_target')
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


def hag_as_tensors(hag: Hag, edge_index: Tensor) -> dict[str, Tensor]:
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
    # a HAG is checked and put together on the CPU; backends keep its levels on their devices
    edge_index, tensors = edge_index.cpu(), {name: tensor.cpu() for name, tensor in tensors.items()}
    if not fits(tensors['hag_fingerprint'], edge_index, num_nodes):
        return CHANGED
    parts = []
    for name in ('aggregation', 'target'):
        counts = tensors[f'hag_inputs_of_{name}'].long()
        pointers = torch.cat([counts.new_zeros(1, 2), counts.cumsum(0)]).t().contiguous()
        indices = tensors[f'hag_source_of_{name}'], tensors[f'hag_aggregation_of_{name}']
        parts.append((pointers[0], indices[0], pointers[1], indices[1]))
    hag = hag_of(num_nodes, tensors['hag_level'], *parts)
    return hag if always else why_not_worth(hag) or hag
