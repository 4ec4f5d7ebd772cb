"""Functions of torch and PyG, and how each is recorded when it meets a symbol."""
