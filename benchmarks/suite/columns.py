"""The tables of this folder's benchmarks, beside those of `pygfuse.bench`, and the shorter ones that texts show."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from pygfuse.bench.columns import COLUMNS, MEGABYTES, columns_of
from pygfuse.bench.schema import Result, Row
from pygfuse.bench.tables import Column, grouped, number, spread, table
from pygfuse.bench.timing import Spread


def milliseconds(value: Spread) -> str:
    """Three digits or more."""
    return f'{value.median:.0f} ms' if value.median >= 100 else f'{value.median:.1f} ms'


def yes_or_no(value: bool) -> str:
    return 'yes' if value else 'no'


def accuracy(mean: float, deviation: float) -> str:
    """Per cent, with the standard deviation."""
    return f'{mean:.2f} ± {deviation:.2f} %'


ARCHITECTURES = ('sm_80', 'sm_90', 'sm_100')


def of_each_architecture(header: str, name: str, form: str = '{}') -> Column:
    """A figure for three architectures beside each other."""
    return Column(header, tuple(f'{one} {name}' for one in ARCHITECTURES), ' / '.join([form] * 3).format)


COMPILED = [
    Column('PyG compiled step', 'PyG compiled', spread(), optional=True),
    Column('ratio to compiled', 'PyG compiled / pygfuse', number(1, 'x'), optional=True),
]

COLUMNS |= {
    'convs': [
        Column('layer', 'layer'),
        Column('width', 'width'),
        Column('PyG step', 'PyG', spread()),
        Column('pygfuse step', 'pygfuse', spread()),
        Column('ratio', 'PyG / pygfuse', number(0, 'x')),
        *COMPILED,
        Column('fused forward', 'forward', spread()),
        Column('one product', 'product', spread()),
        Column('forward / product', 'forward / product', number(2)),
    ],
    'memory': [Column('layer', 'layer'), Column('', 'side'), *MEGABYTES],
    'scaling': [
        Column('graph', 'graph'),
        Column('step', 'pygfuse', spread()),
        Column('ns an edge', 'ns an edge', number(0)),
        Column('one product', 'product', spread()),
        Column('step / product', 'pygfuse / product', number(1)),
    ],
    'reddit_scale': [
        Column('layer', 'layer'),
        Column('pygfuse step', 'pygfuse', milliseconds),
        Column('ns an edge', 'ns an edge', number()),
        Column('first step, s', 'first step s', number()),
        Column('peak, GB', 'peak GB', number(2)),
        Column('PyG would need, GB', 'PyG GB', number(1)),
        Column('PyG holds edges', 'PyG edges', grouped),
        Column('PyG step there, s', 'PyG s', number()),
        Column('ns an edge', 'PyG ns an edge', number()),
        Column('ratio an edge', 'PyG / pygfuse an edge', number(1, 'x')),
    ],
    'break_even': [
        Column('layer', 'layer'),
        Column('adjacency', 'adjacency', optional=True),
        Column('channels', 'channels', optional=True),
        Column('edges', 'edges', grouped),
        Column('edge_index', 'edge_index'),
        Column('edge_dim', 'edge_dim', optional=True),
        Column('PyG step', 'PyG', spread(2)),
        Column('pygfuse step', 'pygfuse', spread(2)),
        Column('ratio', 'PyG / pygfuse', number(1, 'x')),
        *COMPILED,
        Column('pygfuse compiled step', 'pygfuse compiled', spread(2), optional=True),
        Column('both compiled', 'PyG compiled / pygfuse compiled', number(1, 'x'), optional=True),
    ],
    'busy_cores': [
        Column('layer', 'layer'),
        Column('edges', 'edges', grouped),
        *(
            column
            for side in ('PyG', 'pygfuse')
            for column in (
                Column(f'{side} alone', f'{side}, alone', spread(2)),
                Column(f'{side} beside another', f'{side}, beside another', spread(2)),
                Column('ratio', f'{side}, beside another / {side}, alone', number(1, 'x')),
            )
        ),
    ],
    'pyg_examples': [
        Column('example', 'example'),
        Column('PyG, ms', 'PyG', spread()),
        Column('pygfuse, ms', 'pygfuse', spread()),
        Column('ratio', 'PyG / pygfuse', number(1, 'x')),
        Column('lines alike', 'alike'),
    ],
    'mini_batches': [
        Column('batches', 'batches'),
        Column('layers', 'layer'),
        Column('mean edges', 'mean_edges', grouped),
        Column('PyG step', 'PyG', spread(2)),
        Column('pygfuse step', 'pygfuse', spread(2)),
        Column('ratio', 'PyG / pygfuse', number(2, 'x')),
        Column('linear maps alone', 'linear maps', spread(2)),
    ],
    'map_order': [
        Column('graph', 'graph'),
        Column('features', 'features', grouped),
        Column('layer', 'layer'),
        Column('x has', 'x'),
        Column('PyG step', 'PyG', spread()),
        Column('aggregate first', 'aggregate first', spread()),
        Column('map first', 'map first', spread()),
        Column('chosen', 'chosen', spread()),
        Column('aggregate first / chosen', 'aggregate first / chosen', number(2)),
        Column('chosen / better', 'chosen / better', number(2)),
        Column('PyG / chosen', 'PyG / chosen', number(1, 'x')),
    ],
    'local_order': [
        Column('layer', 'layer'),
        Column('step as it is', 'as it is', spread()),
        Column('after the transform', 'local order', spread()),
        Column('numbered anew', 'reordered', yes_or_no),
        Column('ratio', 'as it is / local order', number(2, 'x')),
        Column('search, s', 'search s', number(2)),
        Column('search / step', 'search / step', number(1)),
    ],
    'edge_networks': [
        Column('layer', 'layer'),
        Column('PyG step', 'PyG', spread()),
        Column('with checkpoints', 'PyG, checkpoints', spread()),
        Column('pygfuse step', 'pygfuse', spread()),
        Column('ratio', 'PyG / pygfuse', number(1, 'x')),
        *COMPILED,
        Column("PyG's products alone", 'products', spread()),
        Column('pygfuse / products', 'pygfuse / products', number(2)),
        *(
            Column(f'{side} {what}, MB', f'{side} {what} MB', number())
            for what in ('saved', 'peak')
            for side in ('PyG', 'PyG, checkpoints', 'pygfuse')
        ),
    ],
    'network_widths': [
        Column('layer', 'layer'),
        Column('channels', 'channels'),
        Column('edges', 'edges', grouped),
        Column('own code', 'own code', spread()),
        Column('pygfuse', 'pygfuse', spread()),
        Column('ratio', 'own code / pygfuse', number(1, 'x')),
        Column('runs its own code', 'reason'),
    ],
    'force_training': [
        Column('model', 'model'),
        Column('hidden', 'hidden'),
        Column('PyG step', 'PyG', spread()),
        Column('pygfuse step', 'pygfuse', spread()),
        Column('ratio', 'PyG / pygfuse', number(1, 'x')),
        *(
            column
            for what in ('saved', 'peak')
            for column in (
                *(Column(f'{side} {what}, MB', f'{side} {what} MB', number()) for side in ('PyG', 'pygfuse')),
                Column('ratio', f'{what} PyG / pygfuse', number(1, 'x')),
            )
        ),
    ],
    'knn': [
        Column('clouds x points', 'points'),
        Column('dims', 'dims'),
        Column('k', 'k'),
        Column('pygfuse', 'pygfuse', spread()),
        Column('brute force', 'brute force', spread(), optional=True),
        Column('ratio', 'brute force / pygfuse', number(1, 'x'), optional=True),
        Column('k-d tree', 'k-d tree', spread(), optional=True),
        Column('ratio', 'k-d tree / pygfuse', number(1, 'x'), optional=True),
        Column("pygfuse's brute force", 'pygfuse, brute force', spread(), optional=True),
        Column('ratio', 'pygfuse, brute force / pygfuse', number(1, 'x'), optional=True),
        Column('cKDTree', 'cKDTree', spread(), optional=True),
        Column('ratio', 'cKDTree / pygfuse', number(1, 'x'), optional=True),
    ],
    'radius': [
        Column('points', 'points'),
        Column('dims', 'dims'),
        Column('r', 'r'),
        Column('neighbours', 'neighbours', number()),
        Column('pygfuse', 'pygfuse', spread(2)),
        Column('cKDTree', 'cKDTree', spread(2)),
        Column('ratio', 'cKDTree / pygfuse', number(1, 'x')),
    ],
    'gpu_estimate': [
        Column('kernel', 'kernel'),
        of_each_architecture('registers', 'registers'),
        of_each_architecture('spilled', 'spills'),
        of_each_architecture('warps', 'warps'),
        of_each_architecture('instructions an edge', 'instructions', '{:.0f}'),
        of_each_architecture('bytes an edge', 'bytes'),
        of_each_architecture('loads in flight', 'loads in flight'),
        of_each_architecture('KB in flight', 'KB in flight', '{:.0f}'),
        of_each_architecture('estimate / product', 'estimate', '{:.2f}'),
        of_each_architecture('held up by', 'slowest'),
    ],
    'with_dgl': [
        Column('layer', 'layer'),
        Column('DGL step', 'DGL', spread()),
        Column('pygfuse step', 'pygfuse', spread()),
        Column('ratio', 'DGL / pygfuse', number(1, 'x')),
    ],
    'gat_planetoid': [
        Column('', 'dataset'),
        Column('PyG', ('PyG accuracy', 'PyG deviation'), accuracy),
        Column('pygfuse', ('pygfuse accuracy', 'pygfuse deviation'), accuracy),
    ],
}


@dataclasses.dataclass(frozen=True)
class View:
    """A table of some rows or columns of a result."""

    columns: Sequence[Column] | None = None
    rows: Callable[[Row], bool] = lambda row: True


# how the README calls layers
SHORT: Mapping[str, str] = {
    'SAGEConv': 'SAGEConv (mean)',
    'SAGEConv max': 'SAGEConv (max)',
    'EdgeConv': 'EdgeConv (one linear map)',
    'GMMConv': 'GMMConv (3 Gaussians)',
}
LEFT_OUT = ('GraphConv', 'GINConv identity', 'GINEConv', 'AGNNConv', 'FAConv')

VIEWS: dict[str, View] = {
    'short': View(
        [
            Column('layer', 'layer', lambda name: SHORT.get(name, name)),
            Column('PyG, training step', 'PyG', milliseconds),
            Column('pygfuse', 'pygfuse', milliseconds),
            Column('ratio', 'PyG / pygfuse', number(0, 'x')),
            Column('fused forward / product', 'forward / product', number(1)),
        ],
        lambda row: row.get('layer') not in LEFT_OUT,
    ),
    'by edges': View(
        [column for column in COLUMNS['break_even'] if column.name != 'edge_dim'],
        lambda row: row.get('edge_dim') is None,
    ),
    'by widths': View(
        [column for column in COLUMNS['break_even'] if column.name not in ('edge_index', 'edge_dim')],
        lambda row: row.get('channels') is not None,
    ),
    'by features of edges': View(
        [
            column
            for column in COLUMNS['break_even']
            if column.name not in ('adjacency', 'channels', 'edges', 'edge_index')
        ],
        lambda row: row.get('edge_dim') is not None,
    ),
}


def rendered(result: Result, view: str | None = None) -> str:
    """A result as a Markdown table, whole or as a view shows it.

    Raises:
        KeyError: If there is no such view.
    """
    chosen = View() if view is None else VIEWS[view]
    return table(chosen.columns or columns_of(result), [row for row in result.rows if chosen.rows(row)])
