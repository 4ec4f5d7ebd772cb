"""What is public: each package's ``__all__``, and nothing else. A name that goes or comes is a decision."""

import importlib

import pytest

PUBLIC = {
    'pygfuse': [
        'Mapping',
        'ablation',
        'active',
        'autotune',
        'compile',
        'conv',
        'execution_paths',
        'explain',
        'force_mapping',
        'fuse',
        'group_sizes',
        'knn',
        'knn_graph',
        'radius',
        'radius_graph',
        'report',
        'supported',
        'transforms',
        'unfuse',
        'used_once',
        'warm',
    ],
    'pygfuse.conv': [
        'AGNNConv',
        'CFConv',
        'CGConv',
        'DynamicEdgeConv',
        'EdgeConv',
        'EdgeFeatures',
        'EdgeWeight',
        'FAConv',
        'FastRGCNConv',
        'FiLMConv',
        'FusedConv',
        'GATConv',
        'GATEConv',
        'GATv2Conv',
        'GCNConv',
        'GINConv',
        'GINEConv',
        'GMMConv',
        'GraphConv',
        'GravNetConv',
        'HANConv',
        'HEATConv',
        'HGTConv',
        'MetaLayer',
        'NNConv',
        'RGATConv',
        'RGCNConv',
        'ResGatedGraphConv',
        'SAGEConv',
        'Spec',
        'SplineConv',
        'TransformerConv',
    ],
    'pygfuse.distributed': ['Partition'],
    'pygfuse.memory': ['keep_pages', 'peak_bytes', 'release_pages', 'saved_bytes'],
    'pygfuse.ops': ['Edges', 'aggregate', 'aggregate_with_weights', 'dropout_factors', 'new_seed'],
    'pygfuse.program': ['EdgeProgram', 'Operand', 'Product'],
    'pygfuse.transforms': [
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
    ],
}


@pytest.mark.parametrize('package', PUBLIC)
def test_public_names_are_these(package):
    module = importlib.import_module(package)
    assert sorted(module.__all__) == PUBLIC[package]
    assert all(hasattr(module, name) for name in module.__all__)
