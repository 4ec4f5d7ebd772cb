"""How fast a kernel for a GPU can be, from its machine code alone: no GPU runs it."""
