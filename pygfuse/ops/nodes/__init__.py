"""Operators on rows of nodes: linear maps, large results, rows of length one."""
