"""The tables of benchmarks, by the benchmark's name. Nothing here needs torch, as where results are only shown."""

from __future__ import annotations

from collections.abc import Sequence

from pygfuse.bench.schema import Result
from pygfuse.bench.tables import Column, grouped, number, share, spread
from pygfuse.bench.timing import Spread


def fewer(count: int, times: float) -> str:
    """A count, and how many times fewer that is."""
    return f'{count:,} ({times:.2f}x)'


def spread_or_word(value: Spread | str) -> str:
    """A time, or a word where there is none."""
    return value if isinstance(value, str) else value.text(1)


def whole_and_active(what: str) -> list[Column]:
    """Three columns of `partial_forward`: times of whole graphs and of active rows, and their ratio."""
    names = f'{what} whole', f'{what} active'
    return [
        Column(f'{what}: whole', names[0], spread()),
        Column('active', names[1], spread()),
        Column('ratio', f'{names[1]} / {names[0]}', share),
    ]


def on_paths(what: str) -> list[Column]:
    """Five columns of `execution_paths`: times of its three sides, and ratios."""
    sides = 'prepared', 'on the fly'
    return [
        Column(f'{what}: off', f'{what} off', spread()),
        *(Column(side, f'{what} {side}', spread()) for side in sides),
        *(Column(f'ratio, {side}', f'{what} off / {what} {side}', number(2, 'x')) for side in sides),
    ]


MEGABYTES = [Column('saved, MB', 'saved MB', number()), Column('peak, MB', 'peak MB', number())]

COLUMNS: dict[str, Sequence[Column]] = {
    'layers': [
        Column('graph', 'graph'),
        Column('layer', 'layer'),
        Column('', 'side'),
        Column('time, ms', 'time', spread(2)),
        Column('PyG / this', 'PyG / this', number(1, 'x')),
        Column('this / product', 'this / product', number(1)),
        Column('saved, MB', 'saved MB', number(), optional=True),
        Column('peak, MB', 'peak MB', number()),
        Column('first call, s', 'first call s', number(2)),
    ],
    'aggregations': [
        Column('edges', 'edges', grouped),
        Column('channels', 'channels'),
        Column('edge_index', 'edge_index'),
        *(Column(side, side, spread(2)) for side in ('gathered', 'scattered', 'chosen', 'chosen, used once')),
        Column('gathered / scattered', 'gathered / scattered', number(2)),
    ],
    'compiled': [
        Column('layer', 'layer'),
        Column('graph', 'graph'),
        Column('PyG step', 'PyG', spread_or_word),
        Column('PyG compiled step', 'PyG compiled', spread_or_word),
        Column('pygfuse step', 'pygfuse', spread()),
        Column('ratio', 'PyG / pygfuse', number(1, 'x')),
        Column('ratio to compiled', 'PyG compiled / pygfuse', number(1, 'x')),
        Column('pygfuse compiled step', 'pygfuse compiled', spread_or_word, optional=True),
        Column('both compiled', 'PyG compiled / pygfuse compiled', number(1, 'x'), optional=True),
        Column('written step', 'written', spread(), optional=True),
        Column('ratio to written', 'pygfuse / written', number(2), optional=True),
        Column('products', 'product', spread()),
        Column('step / products', 'pygfuse / product', number(1)),
    ],
    'bags_of_words': [
        Column('data', 'data'),
        Column('model', 'model'),
        Column('features', 'features', grouped),
        Column('not zero', 'not_zero', share),
        Column('PyG epoch', 'PyG', spread(2)),
        Column('PyG, sparse', 'PyG, sparse', spread(2), optional=True),
        Column('pygfuse epoch', 'pygfuse', spread(2)),
        Column('pygfuse, sparse', 'pygfuse, sparse', spread(2)),
        Column('best / best', 'best', number(1, 'x')),
    ],
    'typed': [
        Column('two layers of', 'model'),
        Column('graph', 'graph'),
        Column('edges', 'edges', grouped),
        Column('PyG step', 'PyG', spread()),
        Column('PyG compiled step', 'PyG compiled', spread_or_word, optional=True),
        Column('pygfuse step', 'pygfuse', spread()),
        Column('ratio', 'PyG / pygfuse', number(1, 'x')),
        Column('ratio to compiled', 'PyG compiled / pygfuse', number(1, 'x'), optional=True),
        Column('dense maps alone', 'dense maps', spread()),
        Column('pygfuse / dense maps', 'pygfuse / dense maps', number(2)),
        *(Column(f'{side} saved, MB', f'{side} saved MB', number()) for side in ('PyG', 'pygfuse')),
    ],
    'ablation': [
        Column('layer', 'layer'),
        Column('', 'side'),
        Column('step, ms', 'step', spread()),
        Column('PyG / this', 'PyG / this', number(1, 'x')),
        *MEGABYTES,
    ],
    'dgcnn': [
        Column('network', 'network'),
        Column('layer', 'layer', optional=True),
        Column('k', 'k', optional=True),
        Column('PyG step', 'PyG', spread(), optional=True),
        Column('pygfuse step', 'pygfuse', spread(), optional=True),
        Column('ratio', 'PyG / pygfuse', number(1, 'x'), optional=True),
        *(
            Column(f'{side} {what}, MB', f'{side} {what} MB', number(), optional=True)
            for side in ('PyG', 'pygfuse')
            for what in ('saved', 'peak')
        ),
        Column('ratio of peaks', 'PyG peak / pygfuse peak', number(1, 'x'), optional=True),
    ],
    'partial_forward': [
        Column('graph', 'graph'),
        Column('model', 'model'),
        Column('layers', 'layers'),
        Column('train', 'train'),
        Column('rows by layer', 'rows by layer'),
        Column('edges', 'edges', share),
        *whole_and_active('layers'),
        *whole_and_active('forward'),
        *whole_and_active('step'),
        Column('first forward', 'first forward', number(0)),
    ],
    'execution_paths': [
        Column('graph', 'graph'),
        Column('layers', 'layers'),
        Column('train', 'train'),
        Column('edges walked, by layer', 'edges walked'),
        *on_paths('backward aggregation'),
        *on_paths('step'),
        Column('preparation', ('preparation ms', 'preparation steps'), '{:.1f} ({:.1f} steps)'.format),
        Column('paths', ('paths MB', 'paths share'), '{:.1f} MB ({:.0%})'.format),
    ],
    'hag': [
        Column('graph', 'graph'),
        Column('HAG', 'kind'),
        Column('nodes', 'nodes', grouped),
        Column('levels', 'levels'),
        Column('aggregations', ('aggregations', 'aggregations saved'), fewer),
        Column('transfers', ('transfers', 'transfers saved'), fewer),
        Column('search s', 'search s', number()),
        Column('plain ms', 'plain', spread(2)),
        Column('HAG ms', 'HAG', spread(2)),
        Column('HAG / plain', 'HAG / plain', number(2)),
        Column('HAG / levels alone', 'HAG / levels alone', number(2)),
        Column('expected', 'expected', number(2)),
    ],
    'hag_search': [
        Column('graph', 'graph'),
        Column('limit', 'limit'),
        Column('blocks of', 'blocks of', grouped, optional=True),
        Column('whole search s', 'search s', number(2)),
        Column('aggregations', ('aggregations before', 'aggregations'), '{:,} -> {:,}'.format),
        Column('times fewer', 'aggregations saved', number(2, 'x')),
        Column('memory', 'peak GB', number(2, ' GB')),
    ],
}


def columns_of(result: Result) -> Sequence[Column]:
    """The columns of the whole table."""
    return COLUMNS[result.benchmark]
