"""Rows of results as tables: in Markdown, and aligned for a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from pygfuse.bench.schema import Row
from pygfuse.bench.timing import Spread

Cell = Callable[..., str]


def plain(value: Any) -> str:
    """As it is."""
    return str(value)


def grouped(value: int) -> str:
    """A count with commas."""
    return f'{value:,}'


def spread(digits: int = 1) -> Cell:
    """A time: median and quartiles."""
    return lambda value: value.text(digits)


def number(digits: int = 1, suffix: str = '') -> Cell:
    """A number, or the median of a time, with so many digits after the point."""

    def cell(value: Any) -> str:
        return f'{value.median if isinstance(value, Spread) else value:.{digits}f}{suffix}'

    return cell


def share(value: float) -> str:
    """Per cent."""
    return f'{value:.0%}'


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        header: What stands above it.
        name: What `Row.get` finds its value by, or several names.
        cell: How the values are written; what a row does not have is left empty.
        optional: Whether it is left out where no row has it.
    """

    header: str
    name: str | tuple[str, ...]
    cell: Cell = plain
    optional: bool = False

    def text(self, row: Row) -> str:
        """The cell of a row."""
        values = [row.get(name) for name in ((self.name,) if isinstance(self.name, str) else self.name)]
        return '' if None in values else self.cell(*values)


def table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """A table in Markdown, without optional columns that are empty."""
    lines = _cells(columns, rows)
    header, *body = (f'| {" | ".join(cells)} |' for cells in lines)
    return '\n'.join([header, f'|{" --- |" * len(lines[0])}', *body])


def aligned(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """The same for a terminal: columns side by side, what two lines have in common at their beginnings said once."""
    lines = _cells(columns, rows)
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    shown = []
    for before, cells in zip([[], *lines[:1], *lines[1:]], lines, strict=False):
        repeated = 0
        while before and repeated < len(cells) and cells[: repeated + 1] == before[: repeated + 1]:
            repeated += 1
        texts = ['' if i < repeated else cell for i, cell in enumerate(cells)]
        shown.append('  '.join(f'{text:<{width}}' for text, width in zip(texts, widths, strict=True)).rstrip())
    return '\n'.join([shown[0], '  '.join('-' * width for width in widths), *shown[1:]])


def _cells(columns: Sequence[Column], rows: Sequence[Row]) -> list[list[str]]:
    """The headers and the rows, without optional columns that are empty."""
    columns = [column for column in columns if not column.optional or any(map(column.text, rows))]
    return [[column.header for column in columns], *([column.text(row) for column in columns] for row in rows)]
