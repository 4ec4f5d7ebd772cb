"""Rows that edges have of their own, as they are: their sums, means and extremes."""

from pygfuse.program.program import EdgeProgram, operands

EDGE_ROWS = EdgeProgram('edge_rows', operands(edge='x'), message=lambda x: x)
