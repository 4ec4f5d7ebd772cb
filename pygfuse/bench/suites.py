"""What the papers behind this library evaluate, as runs of benchmarks.

Figures of papers are of their GPUs, frameworks and data; a suite asks the same questions of this machine: the same
layers and comparisons, on graphs that are generated, or on data sets with ``--root``.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from pygfuse.bench.cases import modules
from pygfuse.bench.plots import path as plot_path
from pygfuse.bench.runner import positive, run
from pygfuse.bench.tables import aligned


@dataclasses.dataclass(frozen=True)
class Part:
    """One run of a benchmark.

    Attributes:
        benchmark: Its name.
        asks: What it answers.
        generated: Its options on generated graphs.
        on_data: Its options on data sets under a root, if it has any.
    """

    benchmark: str
    asks: str
    generated: Sequence[str] = ()
    on_data: Callable[[str], Sequence[str]] | None = None

    def arguments(self, root: str | None) -> list[str]:
        """The options of this run."""
        return [*(self.generated if root is None or self.on_data is None else self.on_data(root))]


@dataclasses.dataclass(frozen=True)
class Suite:
    """What a paper evaluates."""

    paper: str
    parts: Sequence[Part]


GRAPH = ['--power-law', '10000', '200000']

SUITES: dict[str, Suite] = {
    'understanding': Suite(
        'Understanding GNN Computational Graph (Zhang et al., MLSys 2022)',
        [
            Part(
                'ablation',
                'what reorganisation, fusion and recomputation bring, of time and memory',
                [*GRAPH, '--convs', 'GATConv', 'EdgeConv', 'GMMConv'],
                lambda root: ['--root', f'{root}/heterophilous', '--convs', 'GATConv', 'EdgeConv', 'GMMConv'],
            ),
            Part(
                'dgcnn',
                'EdgeConv on point clouds, by neighbours',
                ['--networks', 'linear', '--clouds', '8', '--points', '512', '--k', '20', '40'],
            ),
            Part('layers', 'whole models beside PyG', ['--layers', 'GAT', 'GCN']),
        ],
    ),
    'fusegnn': Suite(
        'fuseGNN (Chen et al., ICCAD 2020)',
        [
            Part(
                'bags_of_words',
                'epochs of GCN and GAT on citation graphs',
                ['--fake', '3000'],
                lambda root: ['--root', f'{root}/planetoid'],
            ),
            Part('aggregations', 'edges sorted by target, or added up as they came'),
            Part(
                'layers',
                'time and memory of a layer',
                ['--layers', 'GCNConv', 'GATConv'],
                lambda root: ['--layers', 'GCNConv', 'GATConv', '--root', root, '--data', 'Cora', 'CiteSeer', 'PubMed'],
            ),
        ],
    ),
    'hag': Suite(
        'Redundancy-Free Computation Graphs (Jia et al., KDD 2020)',
        [
            Part(
                'hag',
                'aggregations and transfers that are saved, and the time of a sum',
                ['--graphs', 'cliques', 'small hub'],
                lambda root: ['--data', root, '--graphs', 'IMDB-BINARY', 'Computers', 'Tolokers'],
            ),
            Part(
                'hag_search',
                'time and memory of the search, and what it finds',
                ['--graphs', 'cliques'],
                lambda root: ['--data', root, '--graphs', 'IMDB-BINARY'],
            ),
        ],
    ),
    'epp': Suite(
        'Execution Path Preparing (Xu et al.)',
        [
            Part(
                'execution_paths',
                'backward aggregation and whole steps, by depth and by the share of nodes to train on',
                ['--graphs', 'large power law', '--layers', '2', '3', '--ratios', '0.1', '0.4'],
                lambda root: ['--data', root, '--graphs', 'PubMed', '--layers', '2', '3', '--ratios', '0.1', '0.4'],
            ),
            Part(
                'partial_forward',
                'the same of forward passes',
                ['--graphs', 'large power law', '--ratios', '0.01', '0.1'],
                lambda root: ['--data', root, '--graphs', 'PubMed', '--ratios', '0.01', '0.1'],
            ),
        ],
    ),
    'graphiler': Suite(
        'Graphiler (Xie et al., MLSys 2022)',
        [
            Part(
                'compiled',
                'messages as users write them, compiled',
                ['--edges', '50000', '--convs', 'GAT, own message', 'FeaStConv', 'LEConv'],
                lambda root: [
                    *('--tolokers', f'{root}/heterophilous', '--photo', f'{root}/amazon'),
                    *('--convs', 'GAT, own message', 'FeaStConv', 'LEConv'),
                ],
            ),
            Part(
                'typed',
                'RGCN and HGT on typed edges',
                ['--edges', '20000', '--models', 'RGCNConv', 'HGTConv'],
                lambda root: [
                    *('--mutag', f'{root}/entities', '--imdb', f'{root}/imdb', '--models', 'RGCNConv', 'HGTConv')
                ],
            ),
            Part('layers', 'inference, which is what it measures', ['--layers', 'GATConv', 'GCNConv', '--inference']),
        ],
    ),
}


def of_part(file: Path, benchmark: str) -> Path:
    """Where one part of a suite goes."""
    return file.with_stem(f'{file.stem}-{benchmark}')


def run_suite(name: str, arguments: Sequence[str], prog: str) -> int:
    """Runs all parts of a suite, each with a table, a file and a plot of its own.

    Returns:
        How many parts failed, for want of data or of a package, say.
    """
    suite = SUITES[name]
    lines = [f'  {part.benchmark}: {part.asks}' for part in suite.parts]
    text = '\n'.join([suite.paper, '', *lines])
    parser = argparse.ArgumentParser(prog, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--repeats', type=positive, help='how often each side runs (default: that of each benchmark)')
    parser.add_argument('--root', help='data sets lie here or are downloaded to it; without, graphs are generated')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write results, one a part: FILE-ablation.json ...')
    parser.add_argument('--plot', type=plot_path, metavar='FILE', help='draw them, one a part: FILE-ablation.png ...')
    parser.add_argument('--quick', action='store_true', help='a tiny setting, to see that it runs')
    options = parser.parse_args(arguments)
    print(suite.paper)
    failed = 0
    for part in suite.parts:
        print(f'\n{part.benchmark}: {part.asks}')
        given = part.arguments(options.root) + ['--quick'] * options.quick
        given += [] if options.repeats is None else ['--repeats', str(options.repeats)]
        for option, file in (('--json', options.json), ('--plot', options.plot)):
            given += [] if file is None else [option, str(of_part(file, part.benchmark))]
        module = import_module(modules()[part.benchmark])
        try:
            run(part.benchmark, given, module.__doc__, shown=aligned)
        except Exception as error:
            failed += 1
            print(f'{part.benchmark} fails: {type(error).__name__}: {error}', file=sys.stderr)
    return failed
