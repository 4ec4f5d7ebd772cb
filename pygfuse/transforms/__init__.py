"""What can be prepared once for a dataset."""

from pygfuse.hag.search.find import find_hag
from pygfuse.ops.sparse_features import SparseFeatures
from pygfuse.transforms.hag_data import HagData
from pygfuse.transforms.path_data import PathData
from pygfuse.transforms.renumbering import in_local_order, in_original_order, local_nodes
from pygfuse.transforms.to_csr import ToCSR
from pygfuse.transforms.to_execution_paths import ToExecutionPaths
from pygfuse.transforms.to_hag import ToHAG
from pygfuse.transforms.to_local_order import ToLocalOrder
from pygfuse.transforms.to_sparse_features import ToSparseFeatures

__all__ = [
    'HagData',
    'PathData',
    'SparseFeatures',
    'ToCSR',
    'ToExecutionPaths',
    'ToHAG',
    'ToLocalOrder',
    'ToSparseFeatures',
    'find_hag',
    'in_local_order',
    'in_original_order',
    'local_nodes',
]
