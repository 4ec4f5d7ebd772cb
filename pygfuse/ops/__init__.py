"""Where edge programs meet tensors: PyTorch operators and autograd over the backends' kernels."""

from pygfuse.ops.aggregation import aggregate, aggregate_with_weights
from pygfuse.ops.dropout import dropout_factors, new_seed
from pygfuse.ops.edges import Edges

__all__ = ['Edges', 'aggregate', 'aggregate_with_weights', 'dropout_factors', 'new_seed']
