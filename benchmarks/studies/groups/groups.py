"""Choosers of group sizes beside the best size found by search, on graphs that none was fitted on.

The question of "Accelerating Backward Aggregation in GCN Training with Execution Path Preparing on GPUs" (Xu et al.,
section 5), on a CPU: how much longer a walk takes under a chooser's group size than under the best. The walk sums
float32 rows over the edges of a graph, or of an execution path: the edges into a tenth of the targets, by source. All
sizes take turns. The best is searched among powers of two in every other round, and the other rounds judge it and the
choices; so a loss may come out a little below zero.

*none* is what runs without a chooser: parts of 4,096 edges and rows (or what the cost model says); a path is cut where
the whole graph is. *published* has the paper's coefficients, *refitted* those that
``benchmarks/refit_group_regression.py`` finds, *learned* is the classifier, *measured* a search of a few walks.

    python benchmarks/run.py groups --data DATA --times benchmarks/results/group-sizes-cpu-2026-11-21.json \\
        --out benchmarks/results/group-choosers-cpu-2026-11-21.json

What ``--out`` holds already is not measured again; with ``--seconds 80`` it is measured in pieces, and printed with the
last one. With ``--backward``, backward passes over paths are timed in place: one aggregation, the look for zero rows
included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from pygfuse.bench.machine import described, machine
from pygfuse.call.call import Call
from pygfuse.call.gradient import Gradient
from pygfuse.cpu import backend as target
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping.cost_model import modelled
from pygfuse.mapping.group_sizes import group_sizes, learned
from pygfuse.mapping.group_sizes.regression import PUBLISHED, Regression
from pygfuse.mapping.mapping import cut
from pygfuse.mapping.records import Shape
from pygfuse.partial.paths.policy import execution_paths
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.tune import group_sizes as search
from studies.groups.group_graphs import PATH_SHARE, TO_JUDGE, graphs
from studies.groups.measure_group_sizes import ELEMENT_BYTES, WIDTHS, rounded, write
from studies.groups.refit_group_regression import fitted

# each graph and width is measured for about so many seconds, at least and at most so many rounds
SECONDS, ROUNDS = 0.5, (14, 100)
# the graphs on whose paths a backward pass is measured, and how often
BACKWARD_GRAPHS, BACKWARD_ROUNDS = ('GitHub', 'Tolokers', 'ego-Twitter', 'web-NotreDame'), 60
CHOOSERS = ('none', 'published', 'refitted', 'learned', 'measured')


def choices(
    csr: Csr, row_bytes: int, parts: int | None, refitted: Regression
) -> tuple[dict[str, int], dict[str, float]]:
    """The size that each chooser says, and the seconds it takes to say so.

    Args:
        csr: The edges by row.
        row_bytes: Bytes of a row.
        parts: For a path, how many parts the whole graph has.
        refitted: The regression as fitted here.
    """
    shape = Shape.of(csr)
    work = max(1, shape.num_rows + shape.num_edges)
    functions: dict[str, Callable[[], int]] = {
        'none': lambda: modelled(shape, row_bytes).part_work if parts is None else max(1, work // parts),
        'published': lambda: PUBLISHED.size(shape),
        'refitted': lambda: refitted.size(shape),
        'learned': lambda: learned.group_size(csr, row_bytes),
        'measured': lambda: search.searched(csr, row_bytes),
    }
    sizes, seconds = {}, {}
    for name in CHOOSERS:
        start = time.perf_counter()
        sizes[name] = functions[name]()
        seconds[name] = time.perf_counter() - start
    return sizes, seconds


def judged(name: str, csr: Csr, width: int, parts: int | None, refitted: Regression) -> dict:
    """What is lost with each chooser, on one graph and width."""
    shape, row_bytes = Shape.of(csr), width * ELEMENT_BYTES
    grid = search.candidates(shape)
    search.walk_times(csr, row_bytes, grid[:1], 1)  # compiles
    chosen, choosing = choices(csr, row_bytes, parts, refitted)
    sizes = sorted({*grid, *chosen.values()})
    once = sum(found[0] for found in search.walk_times(csr, row_bytes, sizes, 1).values())
    rounds = min(max(round(SECONDS / once), ROUNDS[0]), ROUNDS[1])
    times = search.walk_times(csr, row_bytes, sizes, rounds)
    searched, judging = ({size: statistics.median(found[i::2]) for size, found in times.items()} for i in (0, 1))
    best = min(grid, key=searched.__getitem__)
    return {
        **{'graph': name, 'width': width, 'rows': shape.num_rows, 'edges': shape.num_edges, 'best': best},
        'chosen': chosen,
        'choosing': {chooser: rounded(seconds) for chooser, seconds in choosing.items()},
        'seconds': rounded(judging[best]),
        'lost': {chooser: rounded(judging[size] / judging[best] - 1) for chooser, size in chosen.items()},
        'grid_lost': {str(size): rounded(judging[size] / judging[best] - 1) for size in grid},
    }


def table(records: list[dict]) -> str:
    """Time lost by graph, mean over widths, and over all."""
    by_graph: dict[str, list[dict]] = defaultdict(list)
    for record in records:
        by_graph[record['graph']].append(record)
    lines = ['| graph | rows | edges | best size, by width | ' + ' | '.join(CHOOSERS) + ' |']
    lines.append('| --- | ---: | ---: | --- |' + ' ---: |' * len(CHOOSERS))
    for name, found in by_graph.items():
        lost = (statistics.mean(record['lost'][chooser] for record in found) for chooser in CHOOSERS)
        best = ', '.join(f'{record["best"]:,}' for record in found)
        lines.append(
            f'| {name} | {found[0]["rows"]:,} | {found[0]["edges"]:,} | {best} | '
            + ' | '.join(f'{share:.1%}' for share in lost)
            + ' |'
        )
    whole = [record for record in records if not record['graph'].endswith(', path')]
    paths = [record for record in records if record['graph'].endswith(', path')]
    for label, found in (('all', records), ('whole graphs', whole), ('paths', paths)):
        for kind, summary in (('mean', statistics.mean), ('median', statistics.median), ('most', max)):
            lost = (summary([record['lost'][chooser] for record in found]) for chooser in CHOOSERS)
            lines.append(f'| **{label}, {kind}** | | | | ' + ' | '.join(f'**{share:.1%}**' for share in lost) + ' |')
    spent = (statistics.median(record['choosing'][chooser] for record in records) for chooser in CHOOSERS)
    lines.append('| choosing, ms (median) | | | | ' + ' | '.join(f'{seconds * 1e3:.2f}' for seconds in spent) + ' |')
    return '\n'.join(lines)


def curve(records: list[dict]) -> str:
    """Time lost by the number of groups."""
    lost: dict[int, list[float]] = defaultdict(list)
    for record in records:
        for size, share in record['grid_lost'].items():
            lost[round(math.log2((record['rows'] + record['edges']) / int(size)))].append(share)
    counts = sorted(count for count in lost if count >= 0)
    cells = (f'{statistics.mean(lost[count]):.0%}' for count in counts)
    return (
        '| groups, about | ' + ' | '.join(str(2**count) for count in counts) + ' |\n'
        '| --- |' + ' ---: |' * len(counts) + '\n| time lost, mean | ' + ' | '.join(cells) + ' |'
    )


def backward_times(edge_index: Tensor, width: int, refitted: Regression) -> dict[str, list[float]]:
    """Seconds of an aggregation's backward with a gradient at a tenth of the targets, under choosers in turn."""
    num_nodes = int(edge_index.max()) + 1
    graph = Graph.of(edge_index, num_sources=num_nodes, num_targets=num_nodes)
    call = Call(NEIGHBOURS.bind(('x',)), graph, {'x': torch.ones(num_nodes, width)}, {}, 1, width)
    grad = torch.ones(num_nodes, width)
    grad[torch.rand(num_nodes, generator=torch.Generator().manual_seed(0)) >= PATH_SHARE] = 0
    contexts: dict[str, Callable[[], AbstractContextManager]] = {
        'none': contextlib.nullcontext,
        'published': lambda: group_sizes(published_size),
        'refitted': lambda: group_sizes(refitted_size),
        'learned': lambda: group_sizes('learned'),
        'measured': lambda: group_sizes(searched_size),
    }

    def published_size(csr: Csr, row_bytes: int) -> int:
        return PUBLISHED.size(Shape.of(csr))

    def refitted_size(csr: Csr, row_bytes: int) -> int:
        return refitted.size(Shape.of(csr))

    def searched_size(csr: Csr, row_bytes: int) -> int:
        with execution_paths(False):
            return search.searched(csr, row_bytes)

    times: dict[str, list[float]] = {name: [] for name in CHOOSERS}
    for i in range(BACKWARD_ROUNDS + 2):
        for name, found in times.items():
            with contexts[name](), execution_paths(True):
                start = time.perf_counter()
                target.backward(Gradient(call, grad, None, grad, ['x']))
                if i > 1:  # the first ones compile, make the path and choose
                    found.append(time.perf_counter() - start)
    return times


def microseconds(seconds: list[float]) -> str:
    """The median and, in brackets, the quartiles."""
    first, middle, last = (1e6 * value for value in statistics.quantiles(seconds, n=4))
    return f'{middle:,.0f} [{first:,.0f}, {last:,.0f}]'


def backward_table(data: Path, refitted: Regression) -> str:
    """Medians with quartiles in microseconds."""
    lines = ['| graph, width | ' + ' | '.join(CHOOSERS) + ' |', '| --- |' + ' --- |' * len(CHOOSERS)]
    for name in tqdm(BACKWARD_GRAPHS, desc='backward', unit='graph'):
        edge_index = TO_JUDGE[name](data)
        for width in WIDTHS[:2]:
            times = backward_times(edge_index, width, refitted)
            lines.append(f'| {name}, {width} | ' + ' | '.join(microseconds(found) for found in times.values()) + ' |')
    return '\n'.join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--data', type=Path, help='the data sets; without, generated graphs only')
    parser.add_argument('--times', type=Path, required=True, help='what the regression is refitted to')
    parser.add_argument('--out', type=Path, required=True, help='what is measured')
    parser.add_argument('--seconds', type=float, default=float('inf'), help='stop after so long')
    parser.add_argument('--backward', action='store_true', help='backward passes over paths instead')
    options = parser.parse_args(arguments)
    refitted = fitted(json.loads(options.times.read_text())['records'])
    if options.backward:
        print(backward_table(options.data, refitted))
        return
    records = json.loads(options.out.read_text())['records'] if options.out.exists() else []
    known = {(record['graph'], record['width']) for record in records}
    start, parts = time.perf_counter(), {}
    for name, csr in tqdm(graphs(TO_JUDGE, options.data), desc='judging', unit='graph'):
        is_path = name.endswith(', path')
        for width in WIDTHS:
            if not is_path:
                parts[width] = cut(csr, modelled(Shape.of(csr), width * ELEMENT_BYTES)).count
            if (name, width) not in known:
                records.append(judged(name, csr, width, parts[width] if is_path else None, refitted))
        write(options.out, records)
        if time.perf_counter() - start > options.seconds:
            print(f'{len(records)} measured; not done yet')
            return
    print(f'{described(machine())}; {time.strftime("%Y-%m-%d")}\n')
    print(f'{refitted}\n\n{table(records)}\n\n{curve(records)}')
