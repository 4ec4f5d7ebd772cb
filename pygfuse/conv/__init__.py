"""Drop-in classes for those of ``torch_geometric.nn.conv``, under the same names, and what makes one of one's own."""

from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.spec import EdgeFeatures, EdgeWeight, Spec
from pygfuse.conv.agnn_conv import AGNNConv
from pygfuse.conv.cf_conv import CFConv
from pygfuse.conv.cg_conv import CGConv
from pygfuse.conv.dynamic_edge_conv import DynamicEdgeConv
from pygfuse.conv.edge_conv import EdgeConv
from pygfuse.conv.fa_conv import FAConv
from pygfuse.conv.film_conv import FiLMConv
from pygfuse.conv.gat_conv import GATConv
from pygfuse.conv.gate_conv import GATEConv
from pygfuse.conv.gatv2_conv import GATv2Conv
from pygfuse.conv.gcn_conv import GCNConv
from pygfuse.conv.gin_conv import GINConv, GINEConv
from pygfuse.conv.gmm_conv import GMMConv
from pygfuse.conv.graph_conv import GraphConv
from pygfuse.conv.grav_net_conv import GravNetConv
from pygfuse.conv.han_conv import HANConv
from pygfuse.conv.heat_conv import HEATConv
from pygfuse.conv.hgt_conv import HGTConv
from pygfuse.conv.meta_layer import MetaLayer
from pygfuse.conv.nn_conv import NNConv
from pygfuse.conv.res_gated_graph_conv import ResGatedGraphConv
from pygfuse.conv.rgat_conv import RGATConv
from pygfuse.conv.rgcn_conv import FastRGCNConv, RGCNConv
from pygfuse.conv.sage_conv import SAGEConv
from pygfuse.conv.spline_conv import SplineConv
from pygfuse.conv.transformer_conv import TransformerConv

__all__ = [
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
]
