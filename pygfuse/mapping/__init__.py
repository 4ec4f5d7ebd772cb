"""Which threads walk which edges."""

from pygfuse.mapping.mapping import Mapping

__all__ = ['Mapping']
