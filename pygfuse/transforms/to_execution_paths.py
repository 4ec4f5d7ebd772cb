"""The transform that prepares a graph's execution paths for the layers of a model."""

from __future__ import annotations

from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from pygfuse._lib.backends import row_search_of
from pygfuse.graph.graph import Graph
from pygfuse.partial.paths.path import UNREACHED
from pygfuse.transforms.hag_data import as_kind
from pygfuse.transforms.path_data import KEY, PathData, distances_as_tensors


class ToExecutionPaths(BaseTransform):
    r"""Prepares the parts of a graph that backward needs when a loss reads the outputs of few nodes.

    "Accelerating Backward Aggregation in GCN Training with Execution Path Preparing on GPUs" (Xu et al., Algorithm 2):
    :math:`k` layers before the last one, only nodes from which a path of at most :math:`k` edges leads to a training
    node have a gradient. Fused layers that are then given ``data.edge_index`` walk, in backward, only the edges into
    these. Models stay as they are: which layer a call is shows in its gradient, whose rows that are not zero must lie
    in the path that is walked. A gradient that fits no path (another loss, another mask) walks the whole graph or a
    path made on the fly; it is never wrong.

    The transform walks the edges from targets to sources, so that graphs may be directed, and stores one byte a node.
    The paths themselves are made, in parallel, when a gradient first fits them, from the graph as the layer sees it:
    with its self-loops, weights and order of edges. The distances count "at most", which holds with self-loops, root
    weights and jumping connections and without.

    All this is a head start: without the transform, paths are found on the fly (`pygfuse.execution_paths`). It goes
    along when graphs are batched, moved, pickled or saved, and is dropped once the edges or the mask are others.
    Layers that aggregate over a HAG walk no path; those given a sparse tensor find theirs on the fly.

    Args:
        num_layers: How many convolutions the model has one after another, 1 to 255.
        mask: Name of the mask of training nodes in the data, bool ``[nodes]``.
        flow: As in PyG.

    Raises:
        ValueError: If an option is out of range, the data have no such mask or no ``edge_index``, or are of a class of
            one's own that is not derived from `pygfuse.transforms.PathData`.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> train_mask = torch.tensor([False, False, False, True])
        >>> data = ToExecutionPaths(2)(Data(edge_index=edge_index, train_mask=train_mask, num_nodes=4))
        >>> data.path_distances
        tensor([255, 255,   1,   0], dtype=torch.uint8)
    """

    def __init__(self, num_layers: int, mask: str = 'train_mask', flow: str = 'source_to_target') -> None:
        if not isinstance(num_layers, int) or not 1 <= num_layers <= UNREACHED:
            raise ValueError(f"Expected 'num_layers' to be an integer from 1 to {UNREACHED} (got {num_layers!r})")
        self.num_layers = num_layers
        self.mask = mask
        self.flow = flow

    def forward(self, data: Data) -> PathData:
        """The data with the distances of nodes to the training nodes."""
        kind = type(data)
        if not issubclass(kind, PathData) and not {Data, *PathData.__mro__[:2]} & {kind, *kind.__bases__}:
            raise ValueError(
                f"Expected 'data' to be a Data, a Batch of them or a PathData (got {kind.__name__}; a class of one's "
                'own can be derived from pygfuse.transforms.PathData)'
            )
        if 'edge_index' not in data:
            raise ValueError(f"Expected 'data' to have an 'edge_index' (got {list(data.keys())})")
        mask, edge_index, num_nodes = data.get(self.mask), data['edge_index'], data.num_nodes
        if mask is None or tuple(mask.shape) != (num_nodes,):
            got = 'nothing' if mask is None else f'shape {list(mask.shape)}'
            raise ValueError(f"Expected '{self.mask}' to hold one value for each of {num_nodes} nodes (got {got})")
        edge_index, mask = edge_index.cpu(), mask.cpu()
        graph = Graph.of(edge_index, num_sources=num_nodes, num_targets=num_nodes, flow=self.flow)
        found = row_search_of(graph.device).distances(graph.csr, mask, self.num_layers - 1)
        data = as_kind(data, PathData)
        data[KEY] = distances_as_tensors(found, edge_index, self.mask)
        return data

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}(num_layers={self.num_layers}, mask={self.mask!r})'
