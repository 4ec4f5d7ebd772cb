"""``python benchmarks/scaling.py``: the benchmark of that name, see `suite/cases/scaling.py`."""

from run import main

main('scaling')
