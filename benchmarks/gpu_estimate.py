"""Estimates how fast the CUDA backend's kernels can be, without a GPU, and compares with the record.

Kernels are compiled, assembled and disassembled for each architecture: registers and spills, warps that a
multiprocessor holds, instructions and bytes an edge, loads in flight, and from these an estimate beside one product
(`static_speed/estimate.py` says of what). By default the walks of the most used programs, with rows of 64 values.

    python benchmarks/gpu_estimate.py --out benchmarks/results/gpu-estimate.json
    python benchmarks/gpu_estimate.py --names '^gat ' --check       # fails where a kernel is worse than recorded
    python benchmarks/gpu_estimate.py --names .                     # every kernel of every program

Needs what ``pip install 'pygfuse[ptx]'`` installs, but no driver. A kernel takes about 1.5 s of one core for each
architecture.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import suite.columns  # noqa: F401  (the table's columns)
from static_speed.assembler import named
from static_speed.figures import figures_of, label
from static_speed.launched import calls_of_64, launched
from static_speed.record import values_of, worse, worst_of

from pygfuse.bench.columns import columns_of
from pygfuse.bench.machine import machine
from pygfuse.bench.runner import typed
from pygfuse.bench.schema import Result, Row
from pygfuse.bench.tables import table
from pygfuse.cuda.kernel import Kernel

RECORD = Path(__file__).parent / 'results/gpu-estimate.json'
ARCHITECTURES = ((8, 0), (9, 0), (10, 0))
COMPILERS = ('numba-cuda', 'nvidia-nvvm', 'nvidia-cuda-nvcc', 'nvidia-cuda-nvdisasm')
# forward and backward of GAT, GATv2, the transformer, GCN and plain sums, without values of edges
MOST_USED = (
    r'^(neighbours|normalised_neighbours|transformer|gatv2|gat) (forward|backward by \w+), '
    r'\d x \d+, (float32|bfloat16, dropout)$'
)


def chosen(names: str = MOST_USED) -> Iterator[tuple[str, Kernel, tuple]]:
    """The kernels whose labels match a pattern, with the types of their arguments."""
    for kernel, description in launched(calls_of_64):
        name = label(kernel, description)
        if re.search(names, name):
            yield name, kernel, description


def measured(kernel: Kernel, description: tuple, architectures: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """The figures of a kernel for each architecture."""
    found: dict[str, Any] = {}
    for architecture in architectures:
        found |= values_of(figures_of(kernel, description, architecture), named(architecture), kernel.layout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--names', default=MOST_USED, help='only kernels whose names match this pattern')
    parser.add_argument('--architectures', nargs='+', default=['{}.{}'.format(*pair) for pair in ARCHITECTURES])
    parser.add_argument('--out', type=Path, metavar='FILE', help='write the result as JSON')
    parser.add_argument('--check', action='store_true', help='fail where a figure is worse than the record')
    options = parser.parse_args()
    architectures = [tuple(map(int, name.split('.'))) for name in options.architectures]
    values: dict[str, dict[str, Any]] = {}
    result = Result('gpu_estimate', typed(), time.strftime('%Y-%m-%d'), machine(*COMPILERS), {}, [])
    for name, kernel, description in chosen(options.names):
        values[name] = worst_of(measured(kernel, description, architectures), values.get(name, {}))
        result.rows[:] = [Row({'kernel': name}, values=found) for name, found in values.items()]
        print(name, file=sys.stderr, flush=True)
        if options.out is not None:
            result.write(options.out)
    print(table(columns_of(result), result.rows))
    failures = []
    if options.check:
        recorded = {row.key: row for row in Result.read(RECORD).rows}
        print(*(f'{row.key} is not recorded' for row in result.rows if row.key not in recorded), sep='\n')
        found = [(recorded[row.key], row.values) for row in result.rows if row.key in recorded]
        failures = [line for before, values in found for line in worse(before, values)]
        print(*failures, sep='\n', file=sys.stderr)
    return 1 if failures or not values else 0


if __name__ == '__main__':
    sys.exit(main())
