"""Maps and their adjoints, written out for a form as lines of torch's operators: they run in each step of few edges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import torch

from pygfuse._lib.row_products import sum_over_rows
from pygfuse.ops.mapped_walk.form import Form, Part
from pygfuse.program.program import EDGE, SOURCE, TARGET

SIDES = (SOURCE, TARGET, EDGE)


class Shape(NamedTuple):
    """What lines depend on beside a form.

    Attributes:
        same: Whether sources and targets are one tensor.
        biased: Whether each map has a bias.
        added: Whether rows of targets are added to the result.
        multiplies: Whether the walk multiplies rows of edges.
    """

    same: bool
    biased: tuple[bool, ...]
    added: bool
    multiplies: bool


class Written(NamedTuple):
    """Functions of the rows of sources, targets and edges, and of the weight and the bias of each map.

    Attributes:
        make: ``make(source, target, edge, w0, b0, ...)``: the operands that are made.
        weights: The weights of those that the walk multiplies.
        remake: As `make`, of what nobody keeps; None for others.
        add: ``add(walked, itself, source, ...)``: the result, with what is added to it; None where nothing is.
    """

    make: Callable
    weights: Callable
    remake: Callable
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
    made = [
        [f'made_{place} = edge'] if name in products else [*_sum_of(f'made_{place}', parts, shape)]
        for place, (name, parts) in enumerate(form.made.items())
    ]
    weights = [_sum_of_weights(form.made[name]) for name in products]
    results = [f'made_{place}' for place in range(len(made))]
    make = _function(names, [line for lines in made for line in lines], results)
    again = [is_remade(parts) for parts in form.made.values()]
    lines = [line for lines, is_again in zip(made, again, strict=True) if is_again for line in lines]
    results = [name if is_again else 'None' for name, is_again in zip(results, again, strict=True)]
    remake = _function(names, lines, results)
    added = [*_added(form, shape)]
    add = _function(f'walked, itself, {names}', added, ['out'], single=True) if added else None
    return Written(make, _function(names, [], weights), remake, add)


def is_remade(parts: Sequence[Part]) -> bool:
    """Whether an operand is made again in backward: rows as they are, which cost nothing, and rows of edges, of which
    nothing is kept."""
    return parts[0].linear is None or parts[0].side == EDGE


def _added(form: Form, shape: Shape) -> Iterator[str]:
    """Lines that set ``out`` to a new tensor, as the adjoint may read that of the walk."""
    first, target = form.added[:1], _rows(TARGET, shape)
    if form.sums_heads:
        yield f'walked = walked.view(walked.shape[0], {form.heads}, {form.channels}).sum(1)'
        yield 'out = walked'
    if first and first[0].side is None:
        yield f'out = walked + b{first[0].linear}'
        yield from _sum_of('out', form.added[1:], shape, begun=True)
    elif first and first[0].linear is not None:
        yield from _sum_of('out', form.added, shape)
        yield 'out.add_(walked)'
    elif first:
        yield f'out = walked + {_rows(first[0].side, shape)}'
        yield from _sum_of('out', form.added[1:], shape, begun=True)
    if shape.added:
        yield f'out.add_({target}, alpha=itself)' if first else f'out = add(walked, {target}, alpha=itself)'


def written_adjoint(form: Form, shape: Shape, found: Collection[str], needed: Sequence[bool]) -> Callable:
    """``adjoint(grad, itself, found_0, ..., source, target, edge, w0, b0, ...)``: the gradients of the latter.

    Args:
        form: The form.
        shape: What else lines depend on.
        found: The operands of which there is a gradient.
        needed: Which gradients are wanted.
    """
    writer = _Adjoint(shape, dict(zip(_arguments(shape).split(', '), needed, strict=True)))
    products = products_of(form, shape)
    for place, (name, parts) in enumerate(form.made.items()):
        if name in found:
            with_rows = [part for part in parts if part.side is not None]
            # those of rows come last, which may write to what was found
            for part in [*(part for part in parts if part.side is None), *with_rows]:
                if name in products:
                    writer.add_to_weight(part, f'found_{place}.weight.t()')
                else:
                    writer.add(part, f'found_{place}', may_write=len(with_rows) == 1)
        if name in found and name in products:
            # once, of whatever maps the weight is the sum
            writer.add_features(f'found_{place}.features')
    for part in form.added:
        writer.add(part, 'grad', may_write=False)
    if shape.added:
        writer.add_scaled(TARGET)
    arguments = ''.join(f'found_{place}, ' for place in range(len(form.made)))
    results = [f'of_{name}' if f'of_{name}' in writer.begun else 'None' for name in writer.needed]
    return _function(f'grad, itself, {arguments}{_arguments(shape)}', writer.lines, results)


def _arguments(shape: Shape) -> str:
    maps = ''.join(f', w{place}, b{place}' for place in range(len(shape.biased)))
    return f'source, target, edge{maps}'


def _rows(side: str, shape: Shape) -> str:
    return 'source' if side == TARGET and shape.same else side


def _of_weight(name: str, part: Part) -> str:
    outputs = '' if part.outputs is None else '.narrow(0, {}, {})'.format(*part.outputs)
    columns = '' if part.columns is None else '.narrow(1, {}, {})'.format(*part.columns)
    return name + outputs + columns


def _of_bias(name: str, part: Part) -> str:
    return name if part.outputs is None else '{}.narrow(0, {}, {})'.format(name, *part.outputs)


def _is_weight_alone(part: Part, shape: Shape) -> bool:
    return part.linear is not None and not _has_bias(part, shape)


def _sum_of_weights(parts: Sequence[Part]) -> str:
    """What walks multiply rows of edges by, ``[D, H * C]``."""
    return '({}).t()'.format(' + '.join(_of_weight(f'w{part.linear}', part) for part in parts))


def _has_bias(part: Part, shape: Shape) -> bool:
    return part.linear is not None and part.biased and shape.biased[part.linear]


def _sum_of(result: str, parts: Sequence[Part], shape: Shape, begun: bool = False) -> Iterator[str]:
    """Lines that set a name to the sum of parts, or add these to it."""
    for place, part in enumerate(parts):
        if part.side is None:
            # rows as they are belong to somebody else
            is_own = begun or place > 1 or parts[0].linear is not None
            if shape.biased[part.linear]:
                yield f'{result}.add_(b{part.linear})' if is_own else f'{result} = {result} + b{part.linear}'
            continue
        rows, is_first = _rows(part.side, shape), not begun and place == 0
        if part.linear is None:
            yield f'{result} = {rows}' if is_first else f'{result}.add_({rows})'
            continue
        weight = _of_weight(f'w{part.linear}', part)
        bias = _of_bias(f'b{part.linear}', part) if _has_bias(part, shape) else None
        if is_first:
            yield f'{result} = ' + (
                f'{rows}.mm({weight}.t())' if bias is None else f'addmm({bias}, {rows}, {weight}.t())'
            )
            continue
        yield f'{result}.addmm_({rows}, {weight}.t())'
        if bias is not None:
            yield f'{result}.add_({bias})'


class _Adjoint:
    """Lines that add up gradients."""

    def __init__(self, shape: Shape, needed: dict[str, bool]) -> None:
        self.shape, self.needed = shape, needed
        self.lines: list[str] = []
        self.begun: set[str] = set()

    def add(self, part: Part, grad: str, may_write: bool) -> None:
        """Adds what the gradient of a part gives to those of its rows, weight and bias."""
        if part.side is None:
            if self.needed[f'b{part.linear}']:
                self._put_part(f'b{part.linear}', f'of_b{part.linear}', f'{grad}.sum(0)')
            return
        rows = _rows(part.side, self.shape)
        if part.linear is None:
            if self.needed[rows]:
                self._put(rows, f'.add_({grad})', grad if may_write else f'{grad}.clone()')
            return
        bias = f'b{part.linear}'
        if self.needed[rows]:
            weight = _of_weight(f'w{part.linear}', part)
            self._put(rows, f'.addmm_({grad}, {weight})', f'{grad}.mm({weight})')
        self.add_to_weight(part, f'sum_over_rows({grad}, {rows})')
        if _has_bias(part, self.shape) and self.needed[bias]:
            self._put_part(bias, _of_bias(f'of_{bias}', part), f'{grad}.sum(0)')

    def add_scaled(self, side: str) -> None:
        """Adds the result's gradient to rows that were added ``itself`` times."""
        rows = _rows(side, self.shape)
        if self.needed[rows]:
            self._put(rows, '.add_(grad, alpha=itself)', 'grad * itself')

    def add_features(self, grad: str) -> None:
        """Adds a gradient of rows of edges that a walk gave, if it is needed."""
        if self.needed[EDGE]:
            self._put(EDGE, f'.add_({grad})', grad)

    def add_to_weight(self, part: Part, value: str) -> None:
        """Adds a value to the gradient of the part's weight, if that is needed."""
        name = f'w{part.linear}'
        if self.needed[name]:
            self._put_part(name, _of_weight(f'of_{name}', part), value)

    def _put(self, name: str, more: str, first: str) -> None:
        result = f'of_{name}'
        self.lines.append(result + more if result in self.begun else f'{result} = {first}')
        self.begun.add(result)

    def _put_part(self, name: str, place: str, value: str) -> None:
        """Adds a value to what of a gradient it is of."""
        result = f'of_{name}'
        if result not in self.begun:
            is_whole = place == result
            self.lines.append(f'{result} = {value}' if is_whole else f'{result} = zeros_like({name})')
            self.begun.add(result)
            if is_whole:
                return
        self.lines.append(f'{place}.add_({value})')


def _function(arguments: str, lines: Sequence[str], results: Sequence[str], single: bool = False) -> Callable:
    scope = {'add': torch.add, 'addmm': torch.addmm, 'zeros_like': torch.zeros_like, 'sum_over_rows': sum_over_rows}
    result = results[0] if single else '(' + ''.join(f'{name}, ' for name in results) + ')'
    body = ''.join(f'    {line}\n' for line in [*lines, f'return {result}'])
    exec(f'def function({arguments}):\n{body}', scope)
    return scope['function']
