"""``python benchmarks/refit_group_regression.py``: see `studies/groups/refit_group_regression.py`."""

from run import main

main('refit_group_regression')
