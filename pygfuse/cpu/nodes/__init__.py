"""Kernels on rows of nodes, no edges involved."""
