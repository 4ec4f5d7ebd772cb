"""Maps and their adjoints, written out for a form as lines of Python: they run in each step of few edges.

Products that follow one another are one launch (`pygfuse.ops.nodes.product_lines`); what is added and nothing else is
an operator of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import torch

from pygfuse.ops.mapped_walk.form import Form, Part
from pygfuse.ops.mapped_walk.map_lines import MapLines, Shape, has_bias, is_there, rows_of
from pygfuse.ops.nodes.product_lines import ProductLines, matrix
from pygfuse.program.program import EDGE, SOURCE, TARGET
from pygfuse.program.trace import CHANNELS

SIDES = (SOURCE, TARGET, EDGE)


class Written(NamedTuple):
    """Functions of the rows of sources, targets and edges, and of the weight and the bias of each map.

    Attributes:
        make: ``make(source, target, edge, w0, b0, ...)``: the operands that are made.
        weights: The weights of those that the walk multiplies; None where there are none.
        remake: As `make`, of what nobody keeps, and None for others; None where all is kept.
        add: ``add(walked, itself, source, ...)``: the result, with what is added to it; None where nothing is.
    """

    make: Callable
    weights: Callable | None
    remake: Callable | None
    add: Callable | None


def products_of(form: Form, shape: Shape) -> list[str]:
    """The operands of edges that walks multiply: sums of maps without a bias."""
    return [
        name
        for name, parts in form.made.items()
        if shape.multiplies and all(part.side == EDGE and _is_weight_alone(part, shape) for part in parts)
    ]


def written(form: Form, shape: Shape) -> Written:
    """The lines of a form's maps."""
    names, products = _arguments(shape), products_of(form, shape)

    def maker(is_made: Callable[[Sequence[Part]], bool]) -> Callable:
        lines, results = MapLines(shape), []
        for place, (name, parts) in enumerate(form.made.items()):
            results.append(f'made_{place}' if is_made(parts) else 'None')
            if not is_made(parts):
                continue
            if name in products:
                lines.say(f'made_{place} = edge')
                for part in parts:
                    lines.check(part, form.heads * form.channels)
            else:
                level = form.program.operands[name].level
                lines.add_up(f'made_{place}', parts, form.heads * (form.channels if level == CHANNELS else 1))
        return lines.function(names, _tuple_of(results))

    weights = [_sum_of_weights(form.made[name], shape) for name in products]
    weights_of = ProductLines('source').function(names, _tuple_of(weights)) if weights else None
    remake = maker(is_remade) if any(map(is_remade, form.made.values())) else None
    return Written(maker(lambda parts: True), weights_of, remake, _adder(form, shape))


def is_remade(parts: Sequence[Part]) -> bool:
    """Whether an operand is made again in backward: rows as they are, which cost nothing, and rows of edges, of which
    nothing is kept."""
    return parts[0].linear is None or parts[0].side == EDGE


def _adder(form: Form, shape: Shape) -> Callable | None:
    """The function that gives a new tensor, as the adjoint may read that of the walk."""
    lines, parts = MapLines(shape), [part for part in form.added if is_there(part, shape)]
    if not (parts or form.sums_heads or shape.added):
        return None
    width = form.channels if form.sums_heads else form.heads * form.channels
    if form.sums_heads:
        lines.prepare(f'summed = source.new_empty(walked.shape[0], {width})')
        lines.sum_of_blocks('walked.shape[0]', form.heads, width, 'walked', matrix('summed', width))
    lines.add_up('out', parts, width, begun='summed' if form.sums_heads else 'walked')
    if shape.added:
        target = rows_of(TARGET, shape)
        lines.say(f'out.add_({target}, alpha=itself)' if parts else f'out = add(walked, {target}, alpha=itself)')
    return lines.function(f'walked, itself, {_arguments(shape)}', 'out', {'add': torch.add})


def written_adjoint(form: Form, shape: Shape, found: Collection[str], needed: Sequence[bool]) -> Callable:
    """``adjoint(grad, itself, found_0, ..., source, target, edge, w0, b0, ...)``: the gradients of the latter.

    Args:
        form: The form.
        shape: What else lines depend on.
        found: The operands of which there is a gradient.
        needed: Which gradients are wanted.
    """
    names, products = _arguments(shape).split(', '), products_of(form, shape)
    adjoint = _Adjoint(shape, dict(zip(names, needed, strict=True)))
    for place, (name, parts) in enumerate(form.made.items()):
        if name not in found:
            continue
        for part in parts:
            if name in products:
                adjoint.add_to_weight(part, f'found_{place}.weight.t()')
            else:
                adjoint.add(part, f'found_{place}')
        if name in products:
            # once, of whatever maps the weight is the sum
            adjoint.add_rows(EDGE, f'found_{place}.features')
    for part in form.added:
        adjoint.add(part, 'grad')
    if shape.added:
        adjoint.scaled.add(rows_of(TARGET, shape))
    arguments = ''.join(f'found_{place}, ' for place in range(len(form.made)))
    lines, results = adjoint.written()
    scope = {'add': torch.add, 'zeros_like': torch.zeros_like, 'empty_like': torch.empty_like}
    return lines.function(f'grad, itself, {arguments}{_arguments(shape)}', _tuple_of(results), scope)


class _Adjoint:
    """Collects what gradients are sums of, and writes them.

    Args:
        shape: What lines depend on beside a form.
        needed: Which gradients are needed, by the names of what they are of.

    Attributes:
        scaled: The rows that were added ``itself`` times.
    """

    def __init__(self, shape: Shape, needed: dict[str, bool]) -> None:
        self.shape, self.needed = shape, needed
        self.scaled: set[str] = set()
        self._rows: dict[str, list[str]] = {}
        self._products: dict[str, list[tuple[Part, str]]] = {}
        self._weights: dict[str, list[tuple[Part, str]]] = {}
        self._values: dict[str, list[tuple[Part, str]]] = {}
        self._biases: dict[str, list[tuple[Part, str]]] = {}

    def add(self, part: Part, grad: str) -> None:
        """Adds what the gradient of a part gives to those of its rows, weight and bias."""
        if part.side is not None and part.linear is None:
            self.add_rows(part.side, grad)
            return
        if part.side is not None:
            self._products.setdefault(rows_of(part.side, self.shape), []).append((part, grad))
            self._weights.setdefault(f'w{part.linear}', []).append((part, grad))
        if self.shape.biased[part.linear] and part.biased:
            self._biases.setdefault(f'b{part.linear}', []).append((part, grad))

    def add_rows(self, side: str, grad: str) -> None:
        """Adds a gradient to that of the rows of a side."""
        self._rows.setdefault(rows_of(side, self.shape), []).append(grad)

    def add_to_weight(self, part: Part, value: str) -> None:
        """Adds a value to the gradient of the part's weight."""
        self._values.setdefault(f'w{part.linear}', []).append((part, value))

    def written(self) -> tuple[MapLines, list[str]]:
        """The lines, and what they find for each name."""
        lines = MapLines(self.shape)
        results = []
        for name, is_needed in self.needed.items():
            write = self._write_rows if name in SIDES else self._write_weight if name[0] == 'w' else self._write_bias
            results.append(f'of_{name}' if is_needed and write(lines, name) else 'None')
        return lines, results

    def _write_rows(self, lines: MapLines, name: str) -> bool:
        result, terms, products = f'of_{name}', [*self._rows.get(name, ())], self._products.get(name, ())
        if products:
            _, count, own = lines.rows(products[0][0].side)
            lines.prepare(f'{result} = empty_like({name})')
            for place, (part, grad) in enumerate(products):
                weight, outputs, inputs = lines.weight(part)
                out = matrix(result, own)
                addend = out if place else lines.row(terms.pop(0), own) if terms else None
                lines.product((count, outputs, inputs), lines.row(grad, outputs), weight, out, addend=addend)
            for term in terms:
                lines.say(f'{result}.add_({term})')
        elif terms:
            lines.say(f'{result} = {" + ".join(terms)}')
        if name in self.scaled:
            if products:
                lines.say(f'{result}.add_(grad, alpha=itself)')
            else:
                lines.say(f'{result} = ' + (f'add({result}, grad, alpha=itself)' if terms else 'grad * itself'))
        return bool(products or terms or name in self.scaled)

    def _write_weight(self, lines: MapLines, name: str) -> bool:
        result, products, values = f'of_{name}', self._weights.get(name, ()), self._values.get(name, ())
        parts = [part for part, *_ in [*products, *values]]
        if not parts:
            return False
        is_whole = all(part.outputs is None and part.columns is None for part in parts)
        if not products and is_whole:
            total = ' + '.join(value for _, value in values)
            lines.say(f'{result} = ({total}).t()' if self.shape.turned[parts[0].linear] else f'{result} = {total}')
            return True
        lines.weight(parts[0])
        lines.prepare(f'{result} = {"empty" if is_whole else "zeros"}_like({name})')
        for place, (part, grad) in enumerate(products):
            if any(_overlap(part, other) for other, _ in products[:place]):
                # its rows are shared out otherwise
                lines.wait()
            rows, count, _ = lines.rows(part.side)
            out, outputs, inputs = lines.weight(part, result)
            sizes, left, right = (outputs, count, inputs), lines.row(grad, outputs).turned, rows
            if self.shape.turned[part.linear]:
                sizes, left, right, out = (inputs, count, outputs), rows.turned, left.turned, out.turned
            lines.product(sizes, left, right, out, addend=None if is_whole and not place else out)
        for part, value in values:
            lines.say(f'{_part_of(result, part, self.shape)}.add_({value})')
        return True

    def _write_bias(self, lines: MapLines, name: str) -> bool:
        result, sums = f'of_{name}', self._biases.get(name, ())
        if sums:
            is_whole = all(part.outputs is None for part, *_ in sums)
            lines.prepare(f'{result} = {"empty" if is_whole else "zeros"}_like({name})')
        for place, (part, grad) in enumerate(sums):
            out, width = lines.part_of_vector(result, part)
            adds = not is_whole or place > 0
            lines.column_sums(lines.count(grad), width, lines.row(grad, width), out, adds)
        return bool(sums)


def _arguments(shape: Shape) -> str:
    maps = ''.join(f', w{place}, b{place}' for place in range(len(shape.biased)))
    return f'source, target, edge{maps}'


def _tuple_of(results: Iterator[str] | Sequence[str]) -> str:
    return '(' + ''.join(f'{name}, ' for name in results) + ')'


def _part_of(name: str, part: Part, shape: Shape) -> str:
    """A weight, or one like it, as far as a part is mapped by it, ``[out, in]``."""
    turned = '.t()' if shape.turned[part.linear] else ''
    outputs = '' if part.outputs is None else '.narrow(0, {}, {})'.format(*part.outputs)
    columns = '' if part.columns is None else '.narrow(1, {}, {})'.format(*part.columns)
    return name + turned + outputs + columns


def _overlap(part: Part, other: Part) -> bool:
    """Whether blocks of one weight share some of it, but not all."""
    ranges = (part.outputs, other.outputs), (part.columns, other.columns)
    if all(one == two for one, two in ranges):
        return False
    return all(one is None or two is None or (one[0] < sum(two) and two[0] < sum(one)) for one, two in ranges)


def _is_weight_alone(part: Part, shape: Shape) -> bool:
    return part.linear is not None and not has_bias(part, shape)


def _sum_of_weights(parts: Sequence[Part], shape: Shape) -> str:
    """What walks multiply rows of edges by, ``[D, H * C]``."""
    return '({}).t()'.format(' + '.join(_part_of(f'w{part.linear}', part, shape) for part in parts))
