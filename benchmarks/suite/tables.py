"""Rows of results as Markdown tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from suite.schema import Row
from suite.timing import Spread

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
    """A table, without optional columns that are empty."""
    columns = [column for column in columns if not column.optional or any(map(column.text, rows))]
    lines = [[column.header for column in columns], *([column.text(row) for column in columns] for row in rows)]
    header, *body = (f'| {" | ".join(cells)} |' for cells in lines)
    return '\n'.join([header, f'|{" --- |" * len(columns)}', *body])
