"""Hierarchically aggregated computation graphs: what neighbours share is aggregated once."""

from pygfuse.hag.hag import BeforeAfter, Hag
from pygfuse.hag.rows import Rows

__all__ = ['BeforeAfter', 'Hag', 'Rows']
