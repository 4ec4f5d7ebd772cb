"""The operands of a walk as lines: what a form makes of rows, in the order in which the walk takes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor

from pygfuse._lib.backends import head_products_of
from pygfuse.ops.mapped_walk.form import Form, Part
from pygfuse.ops.mapped_walk.map_lines import MapLines, Shape, has_bias, part_of, rows_of
from pygfuse.ops.plan import check_rows
from pygfuse.program.program import EDGE, SOURCE, TARGET
from pygfuse.program.trace import CHANNELS


def arguments_of(shape: Shape, num_rest: int) -> list[str]:
    """The names of what a call brings: rows of sources, targets and edges, each map's weight and bias, and the rest."""
    maps = [name for place in range(len(shape.biased)) for name in (f'w{place}', f'b{place}')]
    return ['source', 'target', 'edge', *maps, *[f'rest_{place}' for place in range(num_rest)]]


def products_of(form: Form, shape: Shape) -> list[str]:
    """The operands of edges that walks multiply: sums of maps without a bias."""
    return [
        name
        for name, parts in form.made.items()
        if shape.multiplies and all(part.side == EDGE and _is_weight_alone(part, shape) for part in parts)
    ]


def is_remade(parts: Sequence[Part]) -> bool:
    """Whether an operand is made again in backward: rows as they are, which cost nothing, and rows of edges, of which
    nothing is kept."""
    return parts[0].linear is None or parts[0].side == EDGE


class OperandLines:
    """Writes lines that set ``tensor_0``, ..., the operands.

    Args:
        lines: Where they are written.
        form: The form.
        num_rest: How many tensors are given behind those that maps take.
        again: Whether those alone are set that backward makes again.
        unread: The places of others that nobody reads.
    """

    def __init__(
        self, lines: MapLines, form: Form, num_rest: int, again: bool = False, unread: Collection[int] = ()
    ) -> None:
        self._lines, self._form, self._num_rest = lines, form, num_rest
        self._again, self._unread = again, unread
        self._products = products_of(form, lines.shape)

    def make(self, kept: Collection[str] = ()) -> None:
        """The sums of parts; those of these names are kept."""
        for place, (name, parts) in enumerate(self._form.made.items()):
            if place in self._unread or (self._again and not is_remade(parts)):
                continue
            width = self._form.heads * self._form.channels
            if name in self._products:
                self._lines.prepare(f'tensor_{place} = edge.contiguous()')
                for part in parts:
                    self._lines.check(part, width)
            else:
                is_row = self._form.program.operands[name].level == CHANNELS
                result = f'tensor_{place}'
                room = None if place == self._form.place_of_dots else 'kept' if result in kept else 'rows'
                self._lines.add_up(result, parts, width if is_row else self._form.heads, room=room)
            if parts[0].side == EDGE:
                self._check_rows(name, self._lines.rows(EDGE)[1])

    def multiply(self) -> None:
        """The dots with vectors."""
        form, first = self._form, len(self._form.made)
        if form.dots:
            self._lines.knows('dots', _dots)
            results = ''.join(f'tensor_{first + k}, ' for k in range(len(form.dots)))
            given = f'tensor_{form.place_of_dots}, {self.vectors}, {form.heads}, {form.channels}'
            self._lines.say(f'{results}= dots({given})')

    def take(self) -> None:
        """What is given as it is."""
        for place, name in enumerate(self._form.given, len(self._form.dots)):
            own = len(self._form.made) + place
            if own not in self._unread:
                self._lines.prepare(f'tensor_{own} = rest_{place}.contiguous()')
                if self._form.program.operands[name].side == EDGE:
                    self._check_rows(name, f'tensor_{own}.shape[0]')

    def derive(self) -> None:
        """Other functions of rows."""
        place = len(self._form.made) + self._form.given_to_derived
        for k, derived in enumerate(self._form.derived):
            names = [*derived.reads]
            if derived.is_remade or not self._again:
                self._lines.knows(f'compute_{k}', derived.compute)
                results = ', '.join(f'tensor_{place + i}' for i in range(len(names)))
                self._lines.prepare(f'{results}, = compute_{k}({self.rows}, {self.behind})')
                for i, name in enumerate(names):
                    self._lines.prepare(f'tensor_{place + i} = tensor_{place + i}.contiguous()')
                    if self._form.program.operands[name].side == EDGE:
                        self._check_rows(name, f'tensor_{place + i}.shape[0]')
            place += len(names)

    def weigh(self) -> None:
        """The weights of products."""
        place = len(self._form.made) + self._form.given_to_derived + len(self._form.derived_names)
        for k, name in enumerate(self._products, place):
            weights = [part_of(f'w{part.linear}', part, self._lines.shape) for part in self._form.made[name]]
            self._lines.prepare(f'tensor_{k} = ({" + ".join(weights)}).t().contiguous()')

    @property
    def vectors(self) -> str:
        """The vectors of dots."""
        return _tuple_of(f'rest_{k}' for k in range(len(self._form.dots)))

    @property
    def rows(self) -> str:
        """The rows of each side by its name."""
        names = {SOURCE: 'source', TARGET: rows_of(TARGET, self._lines.shape), EDGE: 'edge'}
        return '{' + ', '.join(f'{side!r}: {name}' for side, name in names.items()) + '}'

    @property
    def behind(self) -> str:
        """What is given to what is derived."""
        return _tuple_of(f'rest_{k}' for k in range(self._form.given_to_derived, self._num_rest))

    def _check_rows(self, name: str, rows: str) -> None:
        self._lines.knows('check_rows', check_rows)
        self._lines.once('num_ids = edge_index.shape[1] + (loops if loops > 0 else 0)')
        self._lines.prepare(f'if {rows} != num_ids: check_rows({name!r}, {rows}, num_ids)')


def _tuple_of(names: Collection[str]) -> str:
    return '(' + ''.join(f'{name}, ' for name in names) + ')'


def _dots(x: Tensor, vectors: Sequence[Tensor], heads: int, channels: int) -> Sequence[Tensor]:
    vectors = [vector.contiguous() for vector in vectors]
    return head_products_of(x.device).products(x.view(-1, heads, channels), *vectors)


def _is_weight_alone(part: Part, shape: Shape) -> bool:
    return part.linear is not None and not has_bias(part, shape)
