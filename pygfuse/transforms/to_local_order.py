"""The transform that numbers nodes so that neighbours lie together."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from pygfuse.graph.graph import Graph
from pygfuse.mapping.blocks import count_of_blocks
from pygfuse.transforms.locality import gather_cost
from pygfuse.transforms.node_orders import ORDERS, candidates
from pygfuse.transforms.renumbering import renumbered

_log = logging.getLogger(__name__)

# why a graph was left as it was
IN_BLOCKS = (
    "a CPU's layers walk its edges in blocks of nodes that a cache holds, beside which an order saves little ("
    "order='communities' numbers its nodes all the same)"
)
NO_ORDER = 'no order of its nodes is expected to save time'


class ToLocalOrder(BaseTransform):
    r"""Numbers nodes anew so that neighbours lie together, and layers gather rows of features that a cache still holds.

    A layer gathers a row for each edge. Where the features are larger than the caches, most of its time is waiting for
    rows, and how long depends on the numbers of nodes: targets that follow one another share their sources, or they do
    not. The orders are:

    - ``'communities'``: nodes by community, found by propagation of labels in a few rounds over some of the edges;
    - ``'reverse_cuthill_mckee'``: SciPy's order of small bandwidth;
    - ``'degree'``: nodes of most edges first, so that what is gathered most often lies together.

    How many gathers find their row is counted in samples, with the numbers as they are and in each order; the order of
    the least estimated cost is taken. Where none is expected to save `least_saving` of the time of gathers, as of
    edges that know no communities, **the data are left as they were and the log says so**: of the first graph at level
    WARNING, of further ones at DEBUG. So are those on a CPU whose nodes have so many edges (some eighty where features
    take 60 MB) that layers walk them in blocks of nodes that a cache holds, whatever their numbers: no order is looked
    for there. One that is asked for by its name made steps 0.94 to 1.29 times as fast on three processors.

    All that the data hold for each node (features, labels, masks) moves along, and what holds numbers of nodes
    (``edge_index``; as in PyG whatever has ``index`` in its name, and ``face``) gets the new ones, so that training
    needs no change. Edges, and what belongs to them, keep their order. ``data.original_node`` says which node each
    was: `pygfuse.transforms.in_original_order` puts outputs back, `pygfuse.transforms.in_local_order` brings what
    belongs to the former numbers, `pygfuse.transforms.local_nodes` these numbers.

    Put it before `ToCSR`, `ToHAG`, `ToExecutionPaths` and what makes sparse matrices of edges.

    Args:
        order: One of the names above, taken whatever it saves; by default the best, if it is worth it.
        row_bytes: Bytes of a row that layers gather: 256 for 64 channels of float32.
        least_saving: The share of the time of gathers that an order has to save, by the estimate. Gathers are a part of
            a step: where an eighth of their time was to be saved, on web-NotreDame, no step became shorter.
        node_keys: Further attributes that hold numbers of nodes.

    Raises:
        ValueError: If an option is out of range, the data have no ``edge_index``, are a batch, of several types or hold
            a sparse adjacency, or an attribute names a node that is not there.
        ImportError: If SciPy's order is asked for and SciPy is not installed.

    Example:
        >>> edge_index = torch.tensor([[0, 2, 4, 1, 3, 5], [2, 4, 0, 3, 5, 1]])
        >>> data = Data(x=torch.arange(6.0), edge_index=edge_index, num_nodes=6)
        >>> data = ToLocalOrder('communities')(data)
        >>> data.x
        tensor([0., 2., 4., 1., 3., 5.])
        >>> data.edge_index
        tensor([[0, 1, 2, 3, 4, 5],
                [1, 2, 0, 4, 5, 3]])
    """

    def __init__(
        self,
        order: str | None = None,
        row_bytes: int = 256,
        least_saving: float = 0.2,
        node_keys: Sequence[str] = (),
    ) -> None:
        if order is not None and order not in ORDERS:
            raise ValueError(f"Expected 'order' to be None or one of {tuple(ORDERS)} (got {order!r})")
        if row_bytes < 1:
            raise ValueError(f"Expected 'row_bytes' to be at least 1 (got {row_bytes})")
        if not 0.0 <= least_saving < 1.0:
            raise ValueError(f"Expected 'least_saving' to be at least 0 and below 1 (got {least_saving!r})")
        self.order = order
        self.row_bytes = row_bytes
        self.least_saving = least_saving
        self.node_keys = (node_keys,) if isinstance(node_keys, str) else tuple(node_keys)
        self._log_level = logging.WARNING

    def forward(self, data: Data) -> Data:
        """The data with other numbers of nodes, or as they were."""
        edge_index, num_nodes = _checked_edge_index(data), data.num_nodes
        # an alias, which takes the graph with it
        graph = Graph.of(edge_index.detach().cpu(), num_sources=num_nodes, num_targets=num_nodes)
        if self.order is not None:
            order = ORDERS[self.order](graph, self.row_bytes)
        elif edge_index.device.type == 'cpu' and count_of_blocks(graph.csr, num_nodes, self.row_bytes) > 1:
            order = self._left_alone(IN_BLOCKS)
        else:
            order = self._best(graph)
        return data if order is None else renumbered(data, order.to(edge_index.device), self.node_keys)

    def _best(self, graph: Graph) -> torch.Tensor | None:
        """The order of least estimated cost; None if it is not worth it."""
        before = gather_cost(graph.csr, torch.arange(graph.num_targets), self.row_bytes)
        found, least = None, before * (1 - self.least_saving)
        for order in candidates(graph, self.row_bytes):
            cost = gather_cost(graph.csr, order, self.row_bytes)
            if cost < least:
                found, least = order, cost
        return self._left_alone(NO_ORDER) if found is None else found

    def _left_alone(self, reason: str) -> None:
        _log.log(self._log_level, 'left as it was: %s', reason)
        self._log_level = logging.DEBUG

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}(order={self.order!r}, row_bytes={self.row_bytes})'


def _checked_edge_index(data: Data) -> torch.Tensor:
    if not isinstance(data, Data) or isinstance(data, Batch):
        raise ValueError(f"Expected 'data' to be a Data of one graph (got {type(data).__name__})")
    for key in ('adj', 'adj_t'):
        if key in data:
            raise ValueError(
                f"Expected 'data' to have an 'edge_index' (got the matrix '{key}'; put this transform first)"
            )
    if 'edge_index' not in data:
        raise ValueError(f"Expected 'data' to have an 'edge_index' (got {list(data.keys())})")
    return data['edge_index']
