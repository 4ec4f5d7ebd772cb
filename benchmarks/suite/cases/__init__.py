"""Benchmarks of layers and of the search for neighbours, one a file."""
