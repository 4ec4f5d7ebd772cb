"""Fits the regression of group sizes to a machine: prints its coefficients, and with ``--remember`` has them used.

Generated graphs are measured first (about two minutes), or the times are those of a file that
``benchmarks/run.py measure_group_sizes`` wrote. What is remembered lies beside the compiled kernels and holds for this
processor with as many threads; ``pygfuse.mapping.group_sizes.chooser.TABLE.forget()`` brings the published coefficients
back.

    python benchmarks/refit_group_regression.py --remember
    python benchmarks/refit_group_regression.py --times benchmarks/results/group-sizes-cpu-2026-11-21.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from pygfuse.mapping.group_sizes import regression
from pygfuse.mapping.records import Shape
from pygfuse.tune.group_sizes import best_size
from studies.groups.group_graphs import TO_FIT, graphs
from studies.groups.measure_group_sizes import WIDTHS, measured


def shape_of(record: dict) -> Shape:
    """The shape of a measured graph."""
    return Shape(record['rows'], record['edges'], record['max_degree'])


def seconds_of(record: dict) -> dict[int, float]:
    """The time of a measured graph under each group size."""
    return {int(size): seconds for size, seconds in record['seconds'].items()}


def fitted(records: list[dict]) -> regression.Regression:
    """The coefficients for measured graphs."""
    return regression.Regression.fit(
        [shape_of(record) for record in records], [best_size(seconds_of(record)) for record in records]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--times', type=Path, help='a file of times; without, generated graphs are measured')
    parser.add_argument('--remember', action='store_true')
    options = parser.parse_args(arguments)
    if options.times is not None:
        records = json.loads(options.times.read_text())['records']
    else:
        named = tqdm(list(graphs(TO_FIT, None)), desc='measuring', unit='graph')
        records = [measured(name, csr, width) for name, csr in named for width in WIDTHS]
    found = fitted(records)
    print(f'{len(records)} times: {found}')
    if options.remember:
        regression.remember(found)
