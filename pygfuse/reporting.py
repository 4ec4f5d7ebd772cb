"""Telling which layers of a model run fused, and what they did the last time."""

from __future__ import annotations

import dataclasses
import html
import importlib.resources
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch_geometric.nn import MessagePassing

from pygfuse._lib.disk import cache_directory
from pygfuse._lib.kernel_counts import COUNTS, KernelCounts
from pygfuse._lib.note import Activity, Note
from pygfuse.compiler.explanation import explained
from pygfuse.conv._compiled.planned import Planned
from pygfuse.conv._layer.advice import advice_for
from pygfuse.conv._layer.density import advice_for_density
from pygfuse.conv._layer.hag import USED
from pygfuse.conv._layer.noted import Noted
from pygfuse.swap import layers_of, why_not

# of a layer whose messages the compiler has not seen yet
NOT_YET = 'to be seen at its first call'


@dataclasses.dataclass(frozen=True)
class Row:
    """One layer in a report: its name in the model, its class as printed, and why it is not fused (None if it is).

    `hag` says what became of the HAG of the last call's edges: ``'used'``, why the layer did without, or None where
    there was none; `backward` what the last backward pass walked, None before there was one; `forward` what the last
    forward pass computed within `pygfuse.active`, None for one outside of it; `density` which share of dense features
    was not zero, where that is little; `where` the file and line of one's own code that has no fused form. `advice`
    says what would help, where that is known.
    """

    layer: str
    module: str
    why_not: str | None
    hag: str | None = None
    backward: Activity | None = None
    forward: Activity | None = None
    density: float | None = None
    where: str | None = None

    @property
    def advice(self) -> str | None:
        """What would let the layer run fused, or take less."""
        if self.why_not is not None:
            return advice_for(self.why_not)
        return None if self.density is None else advice_for_density(self.density)


@dataclasses.dataclass(frozen=True, repr=False)
class Table:
    """What was found, row by row: shows itself as a table, iterates over its rows."""

    rows: tuple[Any, ...]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __repr__(self) -> str:
        # what a console shows of a last line
        return str(self)


@dataclasses.dataclass(frozen=True, repr=False)
class Report(Table):
    """What `report` found, a `Row` a layer.

    Attributes:
        kernels: How many kernels this process has compiled and found so far, for all models.
    """

    kernels: KernelCounts = dataclasses.field(default_factory=KernelCounts)

    def __str__(self) -> str:
        if not self.rows:
            return 'no message passing layers'
        table = self._cells()
        widths = [max(len(line[i]) for line in table) for i in range(2)]
        lines = [f'{a:<{widths[0]}}  {b:<{widths[1]}}  {c}' for a, b, c in table]
        rule = '-' * max(len(line) for line in lines)
        return '\n'.join([lines[0], rule, *lines[1:], rule, *self._below()])

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        if not self.rows:
            return f'<p>{self}</p>'
        head, *body = self._cells()
        rows = [_html_row('th', head), *(_html_row('td', cells) for cells in body)]
        below = ''.join(f'<br>{html.escape(line)}' for line in self._below())
        return f'<table>{"".join(rows)}</table>{below.removeprefix("<br>")}'

    def _cells(self) -> list[tuple[str, str, str]]:
        return [('layer', 'class', 'fused'), *((r.layer, r.module, _verdict(r)) for r in self.rows)]

    def _below(self) -> list[str]:
        """The lines under the table: the sum, what would help, and the state of kernels."""
        fused = sum(row.why_not is None for row in self.rows)
        advice = [f'what would help {row.layer}: {row.advice}' for row in self.rows if row.advice]
        lines = [f'{fused} of {len(self.rows)} layers fused', *advice]
        if self.kernels.compiled or self.kernels.found:
            kernels = self.kernels
            lines.append(f'kernels: {kernels.compiled} compiled, {kernels.found} found in {cache_directory()}')
        return lines


def _html_row(kind: str, cells: Iterable[str]) -> str:
    return f'<tr>{"".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells)}</tr>'


def _with_place(reason: str | None, where: str | None) -> str | None:
    """A reason, and the line of code that it is about."""
    return reason if where is None else f'{reason} ({where})'


def _verdict(row: Row) -> str:
    if row.why_not is not None:
        return NOT_YET if row.why_not == NOT_YET else f'no: {_with_place(row.why_not, row.where)}'
    said = 'yes'
    if row.hag is not None:
        said = 'yes, over a HAG' if row.hag == USED else f'yes, without the HAG: {row.hag}'
    if row.forward is not None:
        said = f'{said}; forward computed {row.forward.computed}'
    return said if row.backward is None or row.backward.rows is None else f'{said}; {row.backward}'


def report(model: torch.nn.Module) -> Report:
    """A table of a model's message passing layers: which run fused and, if not, why not and what would help.

    A layer that has run says how it ran the last time (a call may fall back for its own reasons, such as features of
    a type without fused kernels); of a compiled one nothing is known before it is first called.

    Args:
        model: Any module.

    Returns:
        The table, which shows itself: as text where it is printed or ends a console's line, as a table in a notebook.
        Its rows have ``layer``, ``module``, ``why_not``, ``where`` (the file and line that have no fused form, of one's
        own code), ``advice``, ``hag``, ``backward`` (how many rows of the gradient were active in the last backward
        pass, and how many edges were walked), ``forward`` (how many rows and edges the last forward pass computed
        within `pygfuse.active`) and ``density`` (which share of the features was not zero, where they are many, dense
        and mostly zero).

    Raises:
        TypeError: If `model` is no module.

    Example:
        >>> import torch_geometric.nn as pyg
        >>> from pygfuse import fuse
        >>> report(fuse(pyg.GATConv(16, 8)))
        layer    class                    fused
        ---------------------------------------
        (model)  GATConv(16, 8, heads=1)  yes
        ---------------------------------------
        1 of 1 layers fused...
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"Expected 'model' to be a torch.nn.Module (got {type(model).__name__})")
    rows = []
    for name, layer in layers_of(model).items():
        note = layer.note if isinstance(layer, Noted) else Note()
        reason = _why_not(layer)
        said = reason, note.hag, note.backward, note.forward, note.density, _place_of(reason, note)
        rows.append(Row(name, _in_a_line(layer), *said))
    return Report(tuple(rows), dataclasses.replace(COUNTS))


def _place_of(reason: str | None, note: Note) -> str | None:
    return note.where if reason is not None and reason == note.reason else None


def _in_a_line(layer: torch.nn.Module) -> str:
    try:
        first, *others = repr(layer).split('\n')
    except Exception:
        # that of somebody's class, which may read what its layers do not have
        return f'{type(layer).__name__}(...)'
    return f'{first}...{")" * (first.count("(") - first.count(")"))}' if others else first


def _why_not(layer: torch.nn.Module) -> str | None:
    reason = why_not(layer)
    if reason is None:
        # of the layer itself it is told as of now: an explainer may have left
        reason = None if layer.note.of_layer else layer.note.reason
    return NOT_YET if reason is None and not getattr(layer, 'was_captured', True) else reason


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation:
    """What `explain` found; shows itself as text.

    Attributes:
        plans: The text of each kind of call; empty before the first call.
        why_not: Why there is no plan, if there is none.
        where: The file and line that this is about, where that is one's own code.
    """

    plans: Sequence[str]
    why_not: str | None = None
    where: str | None = None

    def __str__(self) -> str:
        return '\n\n'.join(self.plans) if self.plans else f'no plan: {_with_place(self.why_not, self.where)}'

    def __repr__(self) -> str:
        return str(self)


def explain(conv: MessagePassing) -> Explanation:
    """What `pygfuse.compile` made of a layer's messages in the calls so far.

    For each kind of call: the values that were captured, where each resides, and how each pass changes them; the
    programs of the walks over edges; and the operations and the memory before and after.

    Args:
        conv: A compiled layer that was called.

    Returns:
        The text, which shows itself where it is printed or ends a console's line.

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
    if not isinstance(conv, Planned):
        raise TypeError(f"Expected 'conv' to be a layer that pygfuse.compile returned (got {type(conv).__name__})")
    plans = [explained(plan) for plan in conv.plans()]
    reason = None if plans else conv.why_not() or conv.note.reason or 'call the layer first'
    return Explanation(plans, reason, _place_of(reason, conv.note))


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
