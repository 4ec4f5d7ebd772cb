"""Messages as networks on edges, and how they are read."""
