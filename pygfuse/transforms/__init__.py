"""What can be prepared once for a dataset."""

from pygfuse.hag.search.find import find_hag
from pygfuse.ops.sparse_features import SparseFeatures
from pygfuse.transforms.hag_data import HagData
from pygfuse.transforms.path_data import PathData
from pygfuse.transforms.to_csr import ToCSR
from pygfuse.transforms.to_execution_paths import ToExecutionPaths
from pygfuse.transforms.to_hag import ToHAG
from pygfuse.transforms.to_sparse_features import ToSparseFeatures

__all__ = [
    'HagData',
    'PathData',
    'SparseFeatures',
    'ToCSR',
    'ToExecutionPaths',
    'ToHAG',
    'ToSparseFeatures',
    'find_hag',
]
