"""What networks do with the rows of a chunk of edges."""
