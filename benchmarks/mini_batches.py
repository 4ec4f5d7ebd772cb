"""``python benchmarks/mini_batches.py``: the benchmark of that name, see `suite/cases/mini_batches.py`."""

from run import main

main('mini_batches')
