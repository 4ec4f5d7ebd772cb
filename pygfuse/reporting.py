"""Telling which layers of a model run fused, and what they did the last time."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import torch
from torch_geometric.nn import MessagePassing

from pygfuse._lib.note import Activity, Note
from pygfuse.compiler.explanation import explained
from pygfuse.conv._compiled import CompiledConv
from pygfuse.conv._hag import USED
from pygfuse.conv._layer import FusedConv
from pygfuse.conv._noted import Noted
from pygfuse.swap import FUSED_CLASSES

# of a layer whose messages the compiler has not seen yet
NOT_YET = 'to be seen at its first call'


@dataclasses.dataclass(frozen=True)
class Row:
    """One layer in a report: its name in the model, its class as printed, and why it is not fused (None if it is).

    `hag` says what became of the HAG of the last call's edges: ``'used'``, why the layer did without, or None where
    there was none; `backward` what the last backward pass walked, None before there was one; `forward` what the last
    forward pass computed within `pygfuse.active`, None for one outside of it.
    """

    layer: str
    module: str
    why_not: str | None
    hag: str | None = None
    backward: Activity | None = None
    forward: Activity | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """What was found, row by row: prints as a table, iterates over its rows."""

    rows: tuple[Any, ...]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


class Report(Table):
    """What `report` found, a `Row` a layer."""

    def __str__(self) -> str:
        if not self.rows:
            return 'no message passing layers'
        table = [('layer', 'class', 'fused'), *((r.layer, r.module, _verdict(r)) for r in self.rows)]
        widths = [max(len(line[i]) for line in table) for i in range(2)]
        lines = [f'{a:<{widths[0]}}  {b:<{widths[1]}}  {c}' for a, b, c in table]
        fused = sum(row.why_not is None for row in self.rows)
        rule = '-' * max(len(line) for line in lines)
        return '\n'.join([lines[0], rule, *lines[1:], rule, f'{fused} of {len(self.rows)} layers fused'])


def _verdict(row: Row) -> str:
    if row.why_not is not None:
        return NOT_YET if row.why_not == NOT_YET else f'no: {row.why_not}'
    said = 'yes'
    if row.hag is not None:
        said = 'yes, over a HAG' if row.hag == USED else f'yes, without the HAG: {row.hag}'
    if row.forward is not None:
        said = f'{said}; forward computed {row.forward.computed}'
    return said if row.backward is None or row.backward.rows is None else f'{said}; {row.backward}'


def report(model: torch.nn.Module, file: TextIO | None = None) -> Report:
    """Prints a table of a model's message passing layers: which run fused and, if not, why not.

    A layer that has run says how it ran the last time (a call may fall back for its own reasons, such as features of
    a type without fused kernels); of a compiled one nothing is known before it is first called.

    Args:
        model: Any module.
        file: Where to print, by default standard output.

    Returns:
        The table; its rows have ``layer``, ``module``, ``why_not``, ``hag``, ``backward`` (how many rows of the
        gradient were active in the last backward pass, and how many edges were walked) and ``forward`` (how many rows
        and edges the last forward pass computed within `pygfuse.active`).

    Example:
        >>> import torch_geometric.nn as pyg
        >>> from pygfuse import fuse
        >>> _ = report(fuse(pyg.GATConv(16, 8)))
        layer    class                    fused
        ---------------------------------------
        (model)  GATConv(16, 8, heads=1)  yes
        ---------------------------------------
        1 of 1 layers fused
    """
    rows = []
    for name, module in model.named_modules():
        if isinstance(module, MessagePassing):
            note = module.note if isinstance(module, Noted) else Note()
            said = _why_not(module), note.hag, note.backward, note.forward
            rows.append(Row(name or '(model)', repr(module).split('\n')[0], *said))
    table = Report(tuple(rows))
    print(table, file=sys.stdout if file is None else file)
    return table


def _why_not(module: MessagePassing) -> str | None:
    kind = type(module)
    if isinstance(module, (FusedConv, CompiledConv)):
        # of the layer itself it is told as of now: an explainer may have left
        reason = module.why_not() or (None if module.note.of_layer else module.note.reason)
        return NOT_YET if reason is None and isinstance(module, CompiledConv) and not module.was_captured else reason
    if kind in FUSED_CLASSES:
        return 'call pygfuse.fuse(model)'
    return 'call pygfuse.compile(conv)'


def explain(conv: MessagePassing, file: TextIO | None = None) -> None:
    """Prints what `pygfuse.compile` made of a layer's messages in the calls so far.

    For each kind of call: the values that were captured, where each resides, and how each pass changes them; the
    programs of the walks over edges; and the operations and the memory before and after.

    Args:
        conv: A compiled layer that was called.
        file: Where to print, by default standard output.

    Raises:
        TypeError: If it is no compiled layer.

    Example:
        >>> import torch
        >>> import torch_geometric.nn as pyg
        >>> from pygfuse import compile
        >>> conv = compile(pyg.SimpleConv())
        >>> _ = conv(torch.ones(3, 2), torch.tensor([[0, 1], [1, 2]]))
        >>> explain(conv)
        as written
        x_j            source  [2]  input
        %1             target  [2]  reduce(x_j, reduce='sum')  over the edges of each target
        <BLANKLINE>
        walk: sum, heads=1, channels=2
        def message(s0):
            return s0
        <BLANKLINE>
        as written  operations: 2 for each edge, 0 for each source, 0 for each target; numbers an edge in memory: 2
        compiled    operations: 2 for each edge, 0 for each source, 0 for each target; numbers an edge in memory: 0
    """
    if not isinstance(conv, CompiledConv):
        raise TypeError(f"Expected 'conv' to be a layer that pygfuse.compile returned (got {type(conv).__name__})")
    plans = conv.plans()
    if not plans:
        reason = conv.why_not() or conv.note.reason
        print(f'no plan: {reason}' if reason else 'no plan yet: call the layer first', file=file or sys.stdout)
    print('\n\n'.join(explained(plan) for plan in plans), file=file or sys.stdout)


@dataclasses.dataclass(frozen=True)
class Support:
    """What is known of one of PyG's classes.

    Attributes:
        name: Of the class.
        form: ``'written'``, ``'compiled'`` or ``"PyG's path"``.
        reason: Why it runs PyG's path, or None.
    """

    name: str
    form: str
    reason: str | None = None


class SupportTable(Table):
    """What `supported` found, a `Support` a class."""

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = [f'{row.name:<{width}}  {row.form}{f": {row.reason}" if row.reason else ""}' for row in self.rows]
        fused = sum(row.form != "PyG's path" for row in self.rows)
        return '\n'.join([*lines, f'{fused} of {len(self.rows)} classes run fused'])


def supported() -> SupportTable:
    """Which of PyG's convolutions run fused: by a written program, compiled, or not, and why.

    The table was made by running each class; what a layer of one's own does, `report` and `explain` say.

    Example:
        >>> next(row for row in supported() if row.name == 'TAGConv')
        Support(name='TAGConv', form='compiled', reason=None)
    """
    text = importlib.resources.files('pygfuse.conv').joinpath('supported.json').read_text()
    return SupportTable(tuple(Support(**row) for row in json.loads(text)))
