"""What happens on an edge, as plain functions; their adjoint is derived from a trace."""

from pygfuse.program.products import Product
from pygfuse.program.program import EdgeProgram, Operand

__all__ = ['EdgeProgram', 'Operand', 'Product']
