"""``python benchmarks/break_even.py``: the benchmark of that name, see `suite/cases/break_even.py`."""

from run import main

main('break_even')
