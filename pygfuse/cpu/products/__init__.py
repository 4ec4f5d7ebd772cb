"""Products of matrices, dense and sparse."""
