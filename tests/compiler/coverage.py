"""Which of PyG's message passing classes run fused: ``python -m tests.compiler.coverage`` writes the table.

Each class is run with the options of `tests.compiler.cases`; it counts as compiled if any of them runs fused.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import torch
import torch_geometric.nn as pyg
import torch_geometric.nn.conv

import pygfuse
from pygfuse.reporting import Support
from pygfuse.swap import FUSED_CLASSES
from tests.compiler.cases import CASES, Case
from tests.support import limits
from tests.support.parity import GRAPHS

ROOT = Path(__file__).parents[2]
DATA = ROOT / 'pygfuse' / 'conv' / 'supported.json'
PAGE = ROOT / 'docs' / 'supported.md'
# what PyG itself cannot run without packages that are not on PyPI for every platform
MISSING = {
    'FusedGATConv': 'not tried: PyG needs dgNN for it',
}
FUSED = ('written', 'compiled')


def classes() -> list[type]:
    """PyG's message passing classes, without the one they all extend."""
    found = (getattr(torch_geometric.nn.conv, name) for name in torch_geometric.nn.conv.__all__)
    return [kind for kind in found if issubclass(kind, pyg.MessagePassing) and kind is not pyg.MessagePassing]


def why_not(case: Case) -> str | None:
    """Why a case runs PyG's path; None if it runs fused."""
    torch.manual_seed(0)
    conv = pygfuse.compile(case.plain(**case.options)).eval()
    with torch.no_grad():
        conv(**case.arguments(GRAPHS['random']()))
    return conv.note.reason


def _support(kind: type) -> Support:
    name = kind.__name__
    if kind in FUSED_CLASSES:
        return Support(name, 'written')
    if name in MISSING:
        return Support(name, "PyG's path", MISSING[name])
    reasons = [why_not(case) for case in CASES if case.name == name]
    return Support(name, 'compiled') if None in reasons else Support(name, "PyG's path", reasons[0])


@functools.cache
def table() -> tuple[Support, ...]:
    """A row for each class."""
    return tuple(_support(kind) for kind in sorted(classes(), key=lambda kind: kind.__name__))


def as_json() -> str:
    rows = [json.dumps({'name': row.name, 'form': row.form, 'reason': row.reason}) for row in table()]
    return '[\n' + ',\n'.join(f'  {row}' for row in rows) + '\n]\n'


def as_page() -> str:
    rows = table()
    count = sum(row.form in FUSED for row in rows)
    lines = [f'| `{row.name}` | {row.form} | {row.reason or ""} |' for row in rows]
    return '\n'.join(
        [
            '# Supported convolutions',
            '',
            f"{count} of PyG's {len(rows)} message passing classes run fused: by a written program, or "
            '[compiled](guides/compile.md). The others run',
            "PyG's own code, and `pygfuse.report` says why. `pygfuse.supported()` returns this table, which",
            '`python -m tests.compiler.coverage` writes.',
            '',
            '| class | form | reason |',
            '| --- | --- | --- |',
            *lines,
            '',
            "PyG's modules that gather and reduce along edges without message passing are compiled, too:",
            '`MetaLayer`, `InnerProductDecoder`, and the interaction blocks of `DimeNet` and `DimeNetPlusPlus`.',
            '',
        ]
    )


if __name__ == '__main__':
    limits.lift()
    DATA.write_text(as_json())
    PAGE.write_text(as_page())
    print(pygfuse.supported())
