"""The transform that puts edges into the order in which layers walk them."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import EdgeStorage
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import select

from pygfuse.graph.adjacency import FLOWS
from pygfuse.graph.graph import Graph


class ToCSR(BaseTransform):
    r"""Puts edges by target: compressed sparse rows, as a plain ``edge_index``.

    Fused layers walk the edges of each target side by side, and sort a new ``edge_index`` by target first. Edges that
    come in this order are recognised in one pass and taken as they are: nothing is sorted, and features of edges are
    read one after another. So a dataset's ``pre_transform``, or a transform that a loader's workers run, spares each
    step the sort.

    What a step needs is the order alone, not tensors beside it: they would take longer to be sent by a worker and to be
    compared with the edges than they take to be made (``docs/performance-notes.md``). So nothing can become stale. The
    order stays when graphs are batched, moved, pickled or saved, and when a prefix of the edges is taken
    (``trim_to_layer``); whatever else changes it (a permutation, added edges) has the edges sorted again where they are
    first walked. What PyG's ``NeighborLoader`` samples is in this order as it comes.

    Edges of one target keep their order, so that sums stay the same to the bit. Whatever the data hold for each edge is
    put into the same order; of data with several types of edges, each type. Edges whose order says in which step they
    were sampled (``num_sampled_edges``) are left as they are.

    Args:
        flow: As in PyG: with ``'target_to_source'`` the targets are row 0 of ``edge_index``.

    Raises:
        ValueError: If `flow` is none of PyG's, an ``edge_index`` has another shape or type than expected, or the data
            have none.

    Example:
        >>> import torch
        >>> data = ToCSR()(Data(edge_index=torch.tensor([[0, 1, 2], [2, 0, 0]]), edge_weight=torch.tensor([5, 6, 7])))
        >>> data.edge_index, data.edge_weight
        (tensor([[1, 2, 0],
                [0, 0, 2]]), tensor([6, 7, 5]))
    """

    def __init__(self, flow: str = FLOWS[0]) -> None:
        if flow not in FLOWS:
            raise ValueError(f"Expected 'flow' to be one of {FLOWS} (got {flow!r})")
        self.flow = flow

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        """The data with edges by target."""
        stores = [store for store in data.edge_stores if 'edge_index' in store]
        if not stores:
            raise ValueError(f"Expected 'data' to have an 'edge_index' (got {list(data.keys())})")
        for store in stores:
            order = _order_by_target(store['edge_index'], self.flow)
            if order is not None and 'num_sampled_edges' not in data:
                _put_in_order(store, order)
        return data

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}(flow={self.flow!r})'


def _order_by_target(edge_index: Tensor, flow: str) -> Tensor | None:
    """Which edge comes at each place, None if they are by target already."""
    # of an alias, which takes the graph with it
    edge_id = Graph.of(edge_index.detach(), flow=flow).csr.edge_id
    return None if edge_id is None else edge_id.long()


def _put_in_order(store: EdgeStorage, order: Tensor) -> None:
    """Puts everything that a store holds for each edge into an order."""
    dim_of = store._parent().__cat_dim__
    changed = {
        key: select(value, order, dim_of(key, value, store)) for key, value in store.items() if store.is_edge_attr(key)
    }
    store.update(changed)
