"""The transform that finds a HAG for a graph and lets it go with the graph's data."""

from __future__ import annotations

import logging

from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from pygfuse.hag.search.find import check_options, find_hag, why_not_worth
from pygfuse.transforms.hag_data import KEY, HagData, as_kind, hag_as_tensors

_log = logging.getLogger(__name__)


class ToHAG(BaseTransform):
    r"""Finds a HAG, "Redundancy-Free Computation Graphs for Graph Neural Networks" (Jia et al.), for ``edge_index``.

    Fused layers that are then given ``data.edge_index`` and aggregate plain neighbours (`SAGEConv`, `GINConv`,
    `GraphConv` without weights, `GCNConv` without weights; sums, means, maxima, minima) aggregate what neighbours share
    only once; other layers ignore it. `pygfuse.report` says which. The numbers stay the same but for rounding.

    The HAG goes along when graphs are batched, moved, pickled or saved. Once the edges are others it is dropped.
    Where a HAG is not expected to save time, the graph is left as it was and the log says so: of the first graph at
    level WARNING, of further ones at DEBUG, as a dataset may have thousands.

    Args:
        capacity, min_redundancy, max_depth, budget_s, block_size, progress: As in `pygfuse.transforms.find_hag`.
        min_saving: How many binary aggregations a node must save to be kept: what a node costs.
        for_batches: Whether each graph gets a HAG whatever it saves, so that all graphs of a dataset can be batched;
            then it is decided for each batch whether it pays.

    Raises:
        ValueError: If an option is out of range, or the data are of a class of one's own that is not derived from
            `pygfuse.transforms.HagData`.

    Example:
        >>> from torch_geometric.data import Data
        >>> clique = torch.cartesian_prod(torch.arange(6), torch.arange(6)).t()
        >>> data = ToHAG(for_batches=True, min_saving=1)(Data(edge_index=clique, num_nodes=6))
        >>> data.hag
        Hag(num_aggregation_nodes=1, depth=1, num_aggregations=30 -> 5, data_transfers=36 -> 12)
    """

    def __init__(
        self,
        capacity: int | float | None = 0.25,
        min_redundancy: int = 2,
        min_saving: int = 32,
        max_depth: int | None = None,
        budget_s: float | None = None,
        block_size: int = 2048,
        for_batches: bool = False,
        progress: bool = True,
    ) -> None:
        check_options(capacity, min_redundancy, min_saving, max_depth, budget_s, block_size)
        self.options = {
            'capacity': capacity,
            'min_redundancy': min_redundancy,
            'min_saving': min_saving,
            'max_depth': max_depth,
            'budget_s': budget_s,
            'block_size': block_size,
            'progress': progress,
        }
        self.for_batches = for_batches
        self._log_level = logging.WARNING

    def forward(self, data: Data) -> Data:
        """The data with a HAG, or as they were."""
        kind = type(data)
        is_batch = isinstance(data, Batch) and not isinstance(data, HagData)
        if kind is not Data and not isinstance(data, HagData) and not (is_batch and Data in kind.__bases__):
            raise ValueError(
                f"Expected 'data' to be a Data, a Batch of them or a HagData (got {kind.__name__}; a class of one's "
                'own can be derived from pygfuse.transforms.HagData)'
            )
        if data.edge_index is None:
            raise ValueError(f"Expected 'data' to have an 'edge_index' (got {list(data.keys())})")
        hag = find_hag(data.edge_index, data.num_nodes, **self.options)
        reason = why_not_worth(hag)
        if reason is not None and not self.for_batches:
            _log.log(self._log_level, 'left as it was, a HAG was not attached: %s', reason)
            self._log_level = logging.DEBUG
            return data
        data = as_kind(data, HagData)
        data[KEY] = hag_as_tensors(hag, data['edge_index'])
        return data

    def __repr__(self) -> str:
        given = ', '.join(f'{name}={value}' for name, value in self.options.items() if name != 'progress')
        return f'{self.__class__.__name__}({given})'
