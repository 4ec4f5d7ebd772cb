"""Tables for documents and for terminals."""

from pygfuse.bench.schema import Row
from pygfuse.bench.tables import Column, aligned, number, table

COLUMNS = [
    Column('graph', 'graph'),
    Column('side', 'side'),
    Column('ms', 'ms', number(1)),
    Column('no', 'no', optional=True),
]
ROWS = [
    Row({'graph': 'Cora', 'side': 'PyG'}, values={'ms': 10.0}),
    Row({'graph': 'Cora', 'side': 'ours'}, values={'ms': 1.26}),
    Row({'graph': 'PubMed', 'side': 'ours'}),
]


def test_in_markdown():
    assert table(COLUMNS, ROWS).splitlines() == [
        '| graph | side | ms |',
        '| --- | --- | --- |',
        '| Cora | PyG | 10.0 |',
        '| Cora | ours | 1.3 |',
        '| PubMed | ours |  |',
    ]


def test_for_a_terminal_what_lines_begin_with_is_said_once():
    assert aligned(COLUMNS, ROWS).splitlines() == [
        'graph   side  ms',
        '------  ----  ----',
        'Cora    PyG   10.0',
        '        ours  1.3',
        'PubMed  ours',
    ]


def test_an_optional_column_is_there_where_a_row_has_it():
    assert '| no |' in table(COLUMNS, [*ROWS, Row({'graph': 'x', 'side': 'y'}, values={'no': 'why'})])
