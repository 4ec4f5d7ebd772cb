"""Which edges are walked."""

from pygfuse.graph.graph import Graph

__all__ = ['Graph']
