"""Cases drawn over everything that may differ between two calls of a layer, each compared with PyG.

A case is one value of each dimension (`space.py`), and is known by one number. `possible.py` says which combinations
have a meaning, `case.py` runs one, `coverage.py` counts the pairs of values that were met, `known.py` lists the errors
that only one side raises.
"""
