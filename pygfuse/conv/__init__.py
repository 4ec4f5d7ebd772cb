"""Drop-in classes for those of ``torch_geometric.nn.conv``, under the same names."""

from pygfuse.conv.gat_conv import GATConv

__all__ = ['GATConv']
