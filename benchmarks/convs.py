"""``python benchmarks/convs.py``: the benchmark of that name, see `suite/cases/convs.py`."""

from run import main

main('convs')
