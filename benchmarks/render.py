"""Fills the tables of README.md and the documentation from `benchmarks/results/*.json`, and checks what texts quote.

Between ``<!-- rendered: convs, short -->`` and ``<!-- end -->`` stands the table of ``results/convs.json``, here in the
view ``short`` (`suite/columns.py`); without a view, all of it. A figure in a text is a link: ``[1.3 ms][knn]``, where
the label is defined at the end of the file with the result, the row and what is quoted of it:

    [knn]: <benchmarks/results/knn.json#1 x 1,024, 64, 20: pygfuse>

The figure is the value to as many digits as are written, times 100 before a per cent sign.

    python benchmarks/render.py            # fills the tables; fails if a figure is not what its result says
    python benchmarks/render.py --check    # changes nothing; fails if a table is stale, too

It runs where torch is not installed, too.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from suite.columns import rendered

from pygfuse.bench.schema import Result
from pygfuse.bench.timing import Spread

ROOT = Path(__file__).resolve().parents[1]
REGION = re.compile(r'(<!-- rendered: ([\w-]+)(?:, ([^>]+?))? -->\n).*?(\n<!-- end -->)', re.DOTALL)
MARKER = re.compile(r'<!-- rendered: .*?-->|<!-- end -->')
DEFINITION = re.compile(r'^\[(?P<label>[^\]]+)\]: <(?P<file>\S*results/[\w-]+\.json)#(?P<row>.+): (?P<name>.+)>$', re.M)
# of figures in a text, those that need a result: times, sizes and ratios
FIGURE = re.compile(r'\b\d[\d,]*(?:\.\d+)?(?:x\b| ?(?:ms|[MG]B)\b| times (?:as|fewer|faster))')
NUMBER = re.compile(r'\d[\d,]*(?:\.(?P<decimals>\d+))?(?P<percent> ?%)?')


def documents(root: Path) -> list[Path]:
    """The texts that hold tables and figures."""
    return [root / 'README.md', *sorted(root.glob('docs/**/*.md')), *sorted(root.glob('benchmarks/results/*.md'))]


def filled(text: str, results: Path) -> str:
    """A text with its tables as the results have them.

    Raises:
        ValueError: If a region has no end, or its result or view does not exist.
    """

    def table(match: re.Match) -> str:
        start, name, view, end = match.groups()
        path = results / f'{name}.json'
        if not path.exists():
            raise ValueError(f'no result {path.name} for the table {match[1].strip()}')
        try:
            return f'{start}\n{rendered(Result.read(path), view)}\n{end}'
        except KeyError as error:
            raise ValueError(f'no view {error} for the table {match[1].strip()}') from error

    regions = list(REGION.finditer(text))
    if len(MARKER.findall(text)) != 2 * len(regions):
        raise ValueError('a rendered table without an end, or an end without a table')
    return REGION.sub(table, text)


def quoted(value: object, text: str) -> bool:
    """Whether a text quotes a value: to its digits, and times 100 before a per cent sign."""
    found = NUMBER.search(text)
    if found is None or isinstance(value, str):
        return text == value
    number = float(NUMBER.search(text)[0].rstrip(' %').replace(',', ''))
    true = (value.median if isinstance(value, Spread) else float(value)) * (100 if found['percent'] else 1)
    return abs(number - true) <= 0.5 * 10.0 ** -len(found['decimals'] or '') * (1 + 1e-9)


def wrong_figures(path: Path, text: str) -> list[str]:
    """One line for each figure that is not what its result says, or whose result is not there."""
    lines = []
    for definition in DEFINITION.finditer(text):
        label, file, row, name = definition.group('label', 'file', 'row', 'name')
        figures = re.findall(rf'\[([^\]]+)\]\[{re.escape(label)}\]', text)
        if not figures:
            lines.append(f'[{label}] is defined but quotes nothing')
        try:
            value = Result.read(path.parent / file).row(row).get(name)
        except (FileNotFoundError, KeyError) as error:
            lines.append(f'[{label}] has no result: {error}')
            continue
        if value is None:
            lines.append(f'[{label}] has no result: {file} has no {name!r} of {row!r}')
            continue
        lines += [f'[{figure}][{label}] is {value} in {file}' for figure in figures if not quoted(value, figure)]
    return lines


def unmarked_figures(text: str) -> list[str]:
    """Times, sizes and ratios in a text that are no links to a result; tables, code and definitions aside."""
    for pattern in (r'```.*?```', REGION, r'`[^`\n]*`', r'\[[^\]]+\]\[[^\]]+\]', r'^\[[^\]]+\]: .*$'):
        text = re.sub(pattern, '', text, flags=0 if isinstance(pattern, re.Pattern) else re.DOTALL | re.MULTILINE)
    return FIGURE.findall(text)


def problems(root: Path, write: bool) -> list[str]:
    """What is wrong with the documents of a repository; stale tables are mended if `write` says so."""
    lines = []
    for path in documents(root):
        text, name = path.read_text(), path.relative_to(root)
        try:
            wanted = filled(text, root / 'benchmarks/results')
        except ValueError as error:
            lines.append(f'{name}: {error}')
            continue
        if wanted != text:
            if write:
                path.write_text(wanted)
            else:
                lines.append(f'{name}: a table is stale (python benchmarks/render.py fills it)')
        lines += [f'{name}: {line}' for line in wrong_figures(path, text)]
        if name == Path('README.md'):
            lines += [f'{name}: no result is named for {figure!r}' for figure in unmarked_figures(text)]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true', help='change nothing')
    found = problems(ROOT, write=not parser.parse_args().check)
    print('\n'.join(found), file=sys.stderr, end='\n' if found else '')
    return int(bool(found))


if __name__ == '__main__':
    sys.exit(main())
