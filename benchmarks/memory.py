"""``python benchmarks/memory.py``: the benchmark of that name, see `suite/cases/memory.py`."""

from run import main

main('memory')
