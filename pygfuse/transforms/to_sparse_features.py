"""The transform that keeps of features only those that are not zero."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import BaseTransform

from pygfuse.ops.sparse_features import SparseFeatures


class ToSparseFeatures(BaseTransform):
    r"""Keeps of the nodes' features those that are not zero, where these are few: bags of words, one-hot labels.

    A model then takes ``data.x`` as before. `torch.nn.functional.dropout` draws numbers for what is kept alone, and the
    first layer's linear map is a sparse product, forward and backward: with the 1,433 features of Cora, of which
    1.3 % are not zero, most of an epoch. What reads features otherwise gets the dense tensor, see
    `pygfuse.transforms.SparseFeatures`; layers that would aggregate the features before they map them (`SAGEConv`,
    `GraphConv`, `GINConv`) map them first if they sum or average. Numbers are those of dense features but for rounding;
    dropout draws others from the same distribution.

    Put it last: transforms that change features give dense ones.

    Args:
        attrs: Names of features ``[nodes, features]``; those that the data lack are passed over.
        max_density: The largest share of values that are not zero for which features are changed.

    Raises:
        ValueError: If `max_density` is not between 0 and 1.

    Example:
        >>> ToSparseFeatures()(Data(x=torch.eye(10))).x
        SparseFeatures(shape=[10, 10], dtype=torch.float32, values=10)
        >>> ToSparseFeatures()(Data(x=torch.ones(2, 1))).x
        tensor([[1.],
                [1.]])
    """

    def __init__(self, attrs: Sequence[str] = ('x',), max_density: float = 0.2) -> None:
        if not 0.0 <= max_density <= 1.0:
            raise ValueError(f"Expected 'max_density' to be between 0 and 1 (got {max_density!r})")
        self.attrs = [attrs] if isinstance(attrs, str) else list(attrs)
        self.max_density = max_density

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        """The data with sparse features."""
        for store in data.node_stores:
            for name in self.attrs:
                if self._is_sparse(store.get(name)):
                    store[name] = SparseFeatures.of(store[name])
        return data

    def _is_sparse(self, x: Tensor | None) -> bool:
        is_dense = type(x) is Tensor and x.layout is torch.strided and x.dim() == 2 and x.is_floating_point()
        return is_dense and not x.requires_grad and int(x.count_nonzero()) <= self.max_density * x.numel()

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}(attrs={self.attrs}, max_density={self.max_density})'
