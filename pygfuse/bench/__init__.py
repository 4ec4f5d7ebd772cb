"""``python -m pygfuse.bench``: what a step takes on this machine, in time and memory, beside PyG and other libraries.

A benchmark is a function in `cases` that says what its sides run; `runner` runs them in turn, `schema` keeps what was
found, `tables` and `plots` show it. `providers` are the libraries that are compared, `suites` what papers evaluate.
"""
