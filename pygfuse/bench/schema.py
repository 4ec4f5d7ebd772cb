"""Results as JSON: which benchmark, by which command, when, on what machine, and a row for each case."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pygfuse.bench.timing import Samples, Spread

MACHINE = ('processor', 'cores', 'threads', 'python', 'torch', 'pygfuse')  # what a machine must say at least


@dataclasses.dataclass(frozen=True)
class Row:
    """What was found for one case.

    Attributes:
        parameters: What the case was: layer, graph, width.
        times: By side.
        ratios: By name: 'PyG / pygfuse' is PyG's time over ours.
        values: Anything else: bytes, counts, notes.
    """

    parameters: Mapping[str, Any]
    times: Mapping[str, Spread] = dataclasses.field(default_factory=dict)
    ratios: Mapping[str, float] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, Any],
        samples: Samples,
        ratios: Sequence[tuple[str, str]] = (),
        values: Mapping[str, Any] | None = None,
    ) -> Row:
        """A row of medians and quartiles, with the ratios of those pairs of sides that were measured."""
        times = {side: Spread.of(seconds) for side, seconds in samples.items() if seconds}
        found = {
            f'{above} / {below}': float(f'{times[above].median / times[below].median:.4g}')
            for above, below in ratios
            if above in times and below in times
        }
        return cls(parameters, times, found, values or {})

    @property
    def key(self) -> str:
        """The case's name: its parameters."""
        return ', '.join(map(str, self.parameters.values()))

    def get(self, name: str) -> Any:
        """A parameter, value, ratio or time of this name, or None."""
        for found in (self.parameters, self.values, self.ratios, self.times):
            if name in found:
                return found[name]
        return None


@dataclasses.dataclass(frozen=True)
class Result:
    """What one command found.

    Attributes:
        benchmark: Its name.
        command: What was typed, paths of data left out.
        date: As YYYY-MM-DD.
        machine: As `pygfuse.bench.machine.machine` says it.
        settings: What holds for all rows.
        rows: What was found.
        transcribed: Where the figures were read from a table that the command printed, the file with the table.
    """

    benchmark: str
    command: str
    date: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    rows: Sequence[Row]
    transcribed: str | None = None

    def __post_init__(self) -> None:
        missing = [name for name in MACHINE if name not in self.machine]
        if missing:
            raise ValueError(f"Expected 'machine' to name {', '.join(MACHINE)} (got none of {', '.join(missing)})")
        if not re.fullmatch(r'\d{4}-\d\d-\d\d', self.date):
            raise ValueError(f"Expected 'date' to be YYYY-MM-DD (got {self.date!r})")
        keys = [row.key for row in self.rows]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"Expected 'rows' to have different parameters (got more than one of {twice})")

    def row(self, key: str) -> Row:
        """The row of a case.

        Raises:
            KeyError: If there is none.
        """
        for row in self.rows:
            if row.key == key:
                return row
        raise KeyError(f'no row {key!r} among {[row.key for row in self.rows]}')

    def write(self, path: Path) -> None:
        """Writes it as JSON, one line a row, whole or not at all."""
        head = {key: value for key, value in vars(self).items() if key != 'rows' and value is not None}
        lines = [f' {json.dumps(key)}: {json.dumps(value)}' for key, value in head.items()]
        rows = ',\n'.join(f'  {json.dumps(_stored(row))}' for row in self.rows)
        temporary = path.with_suffix('.partial')
        temporary.write_text('{\n' + ',\n'.join([*lines, f' "rows": [\n{rows}\n ]']) + '\n}\n')
        os.replace(temporary, path)

    @classmethod
    def read(cls, path: Path) -> Result:
        """Reads what `write` wrote."""
        stored = json.loads(path.read_text())
        rows = [
            Row(
                row['parameters'],
                {side: Spread(**spread) for side, spread in row.get('times_ms', {}).items()},
                row.get('ratios', {}),
                row.get('values', {}),
            )
            for row in stored.pop('rows')
        ]
        return cls(rows=rows, **stored)


def _stored(row: Row) -> dict[str, Any]:
    times = {
        side: {key: value for key, value in vars(spread).items() if value is not None}
        for side, spread in row.times.items()
    }
    found = {'parameters': row.parameters, 'times_ms': times, 'ratios': row.ratios, 'values': row.values}
    return {key: dict(value) for key, value in found.items() if value}
