"""The adjoints of maps as lines: what gradients are sums of is collected, and then written."""

from __future__ import annotations

from pygfuse.ops.mapped_walk.form import Part
from pygfuse.ops.mapped_walk.map_lines import SIDES, SUMMED, MapLines, part_of, rows_of
from pygfuse.ops.nodes.product_lines import matrix


class AdjointLines:
    """Collects what gradients are sums of, and writes them.

    Args:
        lines: Where they are written.
        needed: Which gradients are needed, by the names of what they are of.
        reserves_sums: Whether launches alone read that of what the result is mapped of.

    Attributes:
        scaled: The rows that were added ``itself`` times, by their names, and the name of their gradient.
    """

    def __init__(self, lines: MapLines, needed: dict[str, bool], reserves_sums: bool) -> None:
        self.needed, self.reserves_sums = needed, reserves_sums
        self.scaled: dict[str, str] = {}
        self._lines, self._shape = lines, lines.shape
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
            self._products.setdefault(rows_of(part.side, self._shape), []).append((part, grad))
            self._weights.setdefault(f'w{part.linear}', []).append((part, grad))
        if self._shape.biased[part.linear] and part.biased:
            self._biases.setdefault(f'b{part.linear}', []).append((part, grad))

    def add_rows(self, side: str, grad: str) -> None:
        """Adds a gradient to that of the rows of a side."""
        self._rows.setdefault(rows_of(side, self._shape), []).append(grad)

    def add_to_weight(self, part: Part, value: str) -> None:
        """Adds a value to the gradient of the part's weight."""
        self._values.setdefault(f'w{part.linear}', []).append((part, value))

    def write(self, name: str) -> str:
        """Writes the gradient of what has a name, and returns its own; ``'None'`` if it is not needed or nothing."""
        is_rows = name in (*SIDES, SUMMED)
        write = self._write_rows if is_rows else self._write_weight if name[0] == 'w' else self._write_bias
        return f'of_{name}' if self.needed[name] and write(name) else 'None'

    def _write_rows(self, name: str) -> bool:
        lines, result = self._lines, f'of_{name}'
        terms, products = [*self._rows.get(name, ())], self._products.get(name, ())
        if products:
            count, own = lines.size_of(products[0][0].side)
            if name == SUMMED and self.reserves_sums:
                lines.reserve(result, f'{count} * {own}')
            else:
                lines.prepare(f'{result} = source.new_empty({count}, {own})')
            for place, (part, grad) in enumerate(products):
                weight, outputs, inputs = lines.weight(part)
                out = matrix(result, own)
                addend = out if place else lines.row(terms.pop(0), own) if terms else None
                lines.product((count, outputs, inputs), lines.row(grad, outputs), weight, out, addend=addend)
        elif len(terms) == 1:
            lines.say(f'{result} = {terms.pop()}')
        elif terms:
            count, own = lines.size_of(name)
            lines.prepare(f'{result} = source.new_empty({count}, {own})')
            lines.add_two(result, [terms.pop(0), terms.pop(0)], (count, own))
        for term in terms:
            lines.add_two(result, [result, term], (count, own))
        scaled, is_there = self.scaled.get(name), bool(self._rows.get(name))
        # of one term, the result is the term's tensor
        if scaled is not None and products:
            lines.say(f'{result}.add_({scaled}, alpha=itself)')
        elif scaled is not None:
            lines.say(f'{result} = ' + (f'add({result}, {scaled}, alpha=itself)' if is_there else f'{scaled} * itself'))
        return bool(products or is_there or scaled)

    def _write_weight(self, name: str) -> bool:
        lines, result = self._lines, f'of_{name}'
        products, values = self._weights.get(name, ()), self._values.get(name, ())
        parts = [part for part, *_ in [*products, *values]]
        if not parts:
            return False
        is_turned = self._shape.turned[parts[0].linear]
        is_whole = all(part.outputs is None and part.columns is None for part in parts)
        if not products and is_whole:
            total = ' + '.join(value for _, value in values)
            lines.say(f'{result} = ({total}).t()' if is_turned else f'{result} = {total}')
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
            if is_turned:
                sizes, left, right, out = (inputs, count, outputs), rows.turned, left.turned, out.turned
            lines.product(sizes, left, right, out, addend=None if is_whole and not place else out)
        for part, value in values:
            lines.say(f'{part_of(result, part, self._shape)}.add_({value})')
        return True

    def _write_bias(self, name: str) -> bool:
        lines, result, sums = self._lines, f'of_{name}', self._biases.get(name, ())
        if sums:
            is_whole = all(part.outputs is None for part, *_ in sums)
            lines.prepare(f'{result} = {"empty" if is_whole else "zeros"}_like({name})')
        for place, (part, grad) in enumerate(sums):
            out, width = lines.part_of_vector(result, part)
            adds = not is_whole or place > 0
            lines.column_sums(lines.counts[grad], width, lines.row(grad, width), out, adds)
        return bool(sums)


def _overlap(part: Part, other: Part) -> bool:
    """Whether blocks of one weight share some of it, but not all."""
    ranges = (part.outputs, other.outputs), (part.columns, other.columns)
    if all(one == two for one, two in ranges):
        return False
    return all(one is None or two is None or (one[0] < sum(two) and two[0] < sum(one)) for one, two in ranges)
