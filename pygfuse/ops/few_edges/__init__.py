"""Operators along few edges as they come, each one node of autograd."""
