"""Measures how long a walk takes under each group size: what choosers of group sizes are fitted to.

For each graph and width the time of a sum of rows over the edges under each power of two (medians in seconds), as JSON.
What the file holds already is not measured again, so that a long measurement can be taken in pieces.

    python benchmarks/run.py measure_group_sizes --out times.json
    python benchmarks/run.py measure_group_sizes --out times.json --data DATA --seconds 80    # again until it says so
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from pygfuse._lib.device_table import device_name
from pygfuse.graph.csr import Csr
from pygfuse.mapping.records import Shape
from pygfuse.tune.group_sizes import candidates, walk_times
from studies.groups.group_graphs import TO_FIT, graphs

WIDTHS, ELEMENT_BYTES = (16, 64, 128), 4
# each graph and width is measured for about so many seconds, at least and at most so many rounds
SECONDS, ROUNDS = 0.25, (7, 60)


def rounded(number: float) -> float:
    """Four digits of it."""
    return float(f'{number:.4g}')


def measured(name: str, csr: Csr, width: int) -> dict:
    """The times of one graph and width."""
    shape, row_bytes = Shape.of(csr), width * ELEMENT_BYTES
    sizes = candidates(shape)
    once = sum(found[0] for found in walk_times(csr, row_bytes, sizes, 1).values())
    rounds = min(max(round(SECONDS / once), ROUNDS[0]), ROUNDS[1])
    times = walk_times(csr, row_bytes, sizes, rounds)
    numbers = {'rows': shape.num_rows, 'edges': shape.num_edges, 'max_degree': shape.max_degree}
    seconds = {str(size): rounded(statistics.median(found)) for size, found in times.items()}
    return {'graph': name, 'width': width, **numbers, 'seconds': seconds}


def write(path: Path, records: list[dict]) -> None:
    """One line a record, whole or not at all."""
    lines = ',\n'.join(json.dumps(record) for record in records)
    temporary = path.with_suffix('.partial')
    temporary.write_text(f'{{"device": "{device_name()}", "records": [\n{lines}\n]}}\n')
    os.replace(temporary, path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--data', type=Path, help='the data sets; without, generated graphs only')
    parser.add_argument('--seconds', type=float, default=float('inf'), help='stop after so long')
    options = parser.parse_args(arguments)
    records = json.loads(options.out.read_text())['records'] if options.out.exists() else []
    known = {(record['graph'], record['width']) for record in records}
    start = time.perf_counter()
    for name, csr in tqdm(graphs(TO_FIT, options.data), desc='measuring', unit='graph'):
        for width in WIDTHS:
            if (name, width) not in known:
                records.append(measured(name, csr, width))
        write(options.out, records)
        if time.perf_counter() - start > options.seconds:
            print(f'{len(records)} measured; not done yet')
            return
    print(f'{len(records)} measured; done')
