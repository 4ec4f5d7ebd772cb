"""The mathematics of each convolution on its edges, one program a file."""
