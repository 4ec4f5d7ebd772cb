"""Graphs that carry what decides their execution paths."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pygfuse._lib.backends import why_not
from pygfuse.partial.paths.attach import are_attached, attach_distances
from pygfuse.transforms.fingerprints import fingerprints, fits
from pygfuse.transforms.hag_data import HagData

KEY = 'execution_paths'


class PathData(HagData):
    """`torch_geometric.data.Data` with execution paths: what `pygfuse.transforms.ToExecutionPaths` returns.

    Under ``execution_paths`` lie, in plain tensors that are batched, moved, pickled and saved with the rest, the
    distance of every node to the training nodes and a fingerprint of the edges. Whoever reads ``data.edge_index`` (or
    that of a batch) gets the tensor for whose gradients fused layers then know the paths. Once the edges or the mask
    are others, the distances are not used. It may carry a HAG too.

    Example:
        >>> from torch_geometric.data import Data
        >>> from pygfuse.transforms import ToExecutionPaths
        >>> train_mask = torch.tensor([False, False, True])
        >>> data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), train_mask=train_mask, num_nodes=3)
        >>> data = ToExecutionPaths(num_layers=2)(data)
        >>> data.path_distances
        tensor([255,   1,   0], dtype=torch.uint8)
        >>> data.train_mask = ~train_mask
        >>> data.path_distances is None
        True
    """

    @HagData.edge_index.getter
    def edge_index(self) -> Tensor | None:
        """The edges; backward passes of fused layers that are given this very tensor know the execution paths."""
        found = HagData.edge_index.fget(self)
        if type(found) is Tensor and KEY in self._store and not are_attached(found):
            # an alias: what belongs to the tensor must not keep it alive
            mask = self._store.get(_name_of_mask(self._store[KEY]))
            given = found.detach(), self._store[KEY], mask, self.num_nodes
            attach_distances(found, lambda: _distances_of(*given))
        return found

    @property
    def path_distances(self) -> Tensor | None:
        """How many edges lead at least from each node to a training node, ``[nodes]``, uint8; 255 for more than paths
        have. None if there are none, or the edges or the mask are no longer those that it was computed for."""
        if KEY not in self._store or 'edge_index' not in self._store:
            return None
        tensors = self._store[KEY]
        return _distances_of(self['edge_index'], tensors, self._store.get(_name_of_mask(tensors)), self.num_nodes)


# what `torch.load` may read without being told
torch.serialization.add_safe_globals([PathData])


def distances_as_tensors(distances: Tensor, edge_index: Tensor, mask: str) -> dict[str, Any]:
    """Distances as values that can be batched, with the fingerprint of the edges."""
    fingerprint = fingerprints(edge_index, torch.tensor([distances.numel()]))
    return {'path_distance': distances, 'path_fingerprint': fingerprint, 'path_mask': mask}


def _name_of_mask(tensors: dict[str, Any]) -> str:
    # a batch has one for each graph
    name = tensors['path_mask']
    return name if isinstance(name, str) else name[0]


def _distances_of(edge_index: Tensor, tensors: dict[str, Any], mask: Tensor | None, num_nodes: int) -> Tensor | None:
    """The distances, if they are those of these edges and this mask."""
    device = edge_index.device
    if why_not(device.type) is not None or mask is None or mask.numel() != tensors['path_distance'].numel():
        return None
    # fingerprints are taken on the CPU
    edge_index, mask = edge_index.cpu(), mask.cpu()
    distances = tensors['path_distance'].cpu()
    # the mask's fingerprint is the distance 0
    if not torch.equal(distances == 0, mask.bool()):
        return None
    return distances.to(device) if fits(tensors['path_fingerprint'].cpu(), edge_index, num_nodes) else None
