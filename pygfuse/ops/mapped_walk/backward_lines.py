"""The adjoint of a call of a form, written out as lines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from pygfuse._lib.backends import head_products_of
from pygfuse._lib.finite import are_finite
from pygfuse.ops.mapped_walk.adjoint_lines import AdjointLines
from pygfuse.ops.mapped_walk.form import Part
from pygfuse.ops.mapped_walk.forward_lines import OF_EDGES, Forward
from pygfuse.ops.mapped_walk.map_lines import GIVEN, SUMMED, MapLines, rows_of
from pygfuse.ops.mapped_walk.operand_lines import OperandLines, arguments_of
from pygfuse.ops.mapped_walk.shaped import Kind, Wanted
from pygfuse.ops.nodes.product_lines import contiguous
from pygfuse.program.products import Product
from pygfuse.program.program import EDGE, SOURCE, TARGET


def written_backward(wanted: Wanted, kind: Kind, forward: Forward) -> Callable[..., tuple]:
    """``backward(edge_index, ..., itself, grad_of_result, *kept, source, target, ...)``: the gradients of what was
    given, and the number of edges walked, or None; the former are None where some are not finite and nodes without
    edges might be why.

    Args:
        wanted: The calls, and which gradients are needed.
        kind: As of `written_forward`.
        forward: What it wrote.
    """
    return _Backward(wanted, kind, forward).written()


class _Backward:
    def __init__(self, wanted: Wanted, kind: Kind, forward: Forward) -> None:
        self._wanted, self._shaped, self._kind, self._kept = wanted, wanted.shaped, kind, forward.kept
        self._form, self._shape = wanted.shaped.form, wanted.shaped.shape
        self._names = arguments_of(self._shape, wanted.shaped.num_rest)
        self._lines = MapLines(self._shape, kind.of, wanted.shaped.width_of_sums)
        unread = () if wanted.adjoint is None else wanted.adjoint.unread
        self._operands = OperandLines(self._lines, self._form, wanted.shaped.num_rest, True, unread)
        needed = dict(zip(self._names, wanted.needed, strict=True))
        # blocks of heads laid side by side, and what extremes divide, are of operators of torch
        is_read_by_torch = (
            self._form.sums_heads
            or self._form.reduce in ('max', 'min')
            or self._shape.added
            or any(part.linear is None and self._is_alone(part) for part in self._shaped.added)
        )
        self._adjoint = AdjointLines(self._lines, {**needed, SUMMED: wanted.needs_sums}, not is_read_by_torch)
        # hooks of saved tensors may have laid them out otherwise
        if forward.kept:
            self._lines.prepare(contiguous(forward.kept))
        for room, contents in forward.rooms.items():
            self._lines.place(room, contents)
        self._lines.counts |= {GIVEN: 'num_targets', f'of_{SUMMED}': 'num_targets'}

    def written(self) -> Callable[..., tuple]:
        form, lines, wanted = self._form, self._lines, self._wanted
        grad, found, of_rest = GIVEN, {}, {}
        if form.mapped_by is not None:
            self._adjoint.add(Part(SUMMED, form.mapped_by), grad)
            if form.root is not None:
                self._adjoint.add(Part(TARGET, form.root, biased=False), grad)
            grad = self._adjoint.write(SUMMED)
        num_walked = 'None'
        if grad != 'None':
            if wanted.adjoint is not None:
                found, num_walked = self._walk(grad), 'num_walked'
                of_rest = self._of_rest(found)
            self._of_maps(grad, found)
        num_mapped = self._shaped.num_mapped
        results = [self._adjoint.write(name) for name in self._names[:num_mapped]]
        results += [of_rest.get(name, 'None') for name in self._names[num_mapped:]]
        lines.say(f'results = [{", ".join(results)}]')
        if wanted.of_derived and found:
            self._of_derived(found)
        if form.of_edges and grad != 'None':
            lines.knows('are_finite', are_finite)
            matrices = '[value for value in results if value is not None and value.dim() == 2]'
            lines.say(f'results = results if are_finite({matrices}) else None')
        arguments = ', '.join([*OF_EDGES, GIVEN, *self._kept, *self._names])
        return lines.function(arguments, f'results, {num_walked}', {'add': torch.add, 'Product': Product})

    def _walk(self, grad: str) -> dict[str, str]:
        """What the walk finds, from the gradient of its result; expressions by operands' names."""
        form, lines, adjoint, shaped = self._form, self._lines, self._wanted.adjoint, self._shaped
        self._operands.make()
        self._operands.take()
        self._operands.derive()
        self._operands.weigh()
        if form.sums_heads:
            lines.knows('cat', torch.cat)
            lines.say(f'grad = cat([{grad}] * {form.heads}, dim=1)')
        else:
            lines.rename('grad', grad if lines.is_reserved(grad) else f'{grad}.contiguous()')
        there = [place not in adjoint.unread for place in range(len(shaped.plan.tensors))]
        found = shaped.walks_in(lines, self._kind).write_backward(
            lines,
            adjoint.needed.names,
            self._wanted.features,
            there,
            shaped.plan.reads_output,
            self._kind.sharing,
            addressed=self._addressed(),
        )
        for name, value in found.items():
            lines.counts[value] = self._count_of(name)
        return found

    def _count_of(self, name: str) -> str:
        """The number of rows of an operand."""
        sizes = {SOURCE: 'num_sources', TARGET: 'num_targets', EDGE: 'num_ids'}
        return sizes.get(self._form.program.operands[name].side, '1')

    def _addressed(self) -> set[str]:
        """The operands whose gradients launches alone read: those of maps."""
        form = self._form
        return {
            name
            for name, parts in form.made.items()
            if not any(part.linear is None and self._is_alone(part) for part in parts)
            and name not in (*form.dots.values(), *self._shaped.products)
            and not (form.loops and parts[0].side == EDGE)
        }

    def _is_alone(self, part: Part) -> bool:
        """Whether the gradient of rows that are taken as they are may be that of this part, and nothing more."""
        form, adjoint, name = self._form, self._wanted.adjoint, rows_of(part.side, self._shape)
        made = [parts for name, parts in form.made.items() if adjoint is not None and name in adjoint.needed.names]
        there = [*self._shaped.added, *(other for parts in made for other in parts)]
        there += [] if form.root is None else [Part(TARGET, form.root)]
        of_rows = [other for other in there if other.side is not None and rows_of(other.side, self._shape) == name]
        return len(of_rows) == 1 or self._shape.added

    def _of_rest(self, found: dict[str, str]) -> dict[str, str]:
        """The gradients of the vectors of dots and of what is given, by their names."""
        form, lines, of_rest = self._form, self._lines, {}
        if form.dots and next(iter(form.dots)) in found:
            name, x = next(iter(form.dots.values())), f'tensor_{form.place_of_dots}'
            results = [f'of_vector_{k}' for k in range(len(form.dots))]
            lines.knows('through_dots', _through_dots)
            of_dots = ', '.join(found[dot] for dot in form.dots)
            given = f'{x}, {self._operands.vectors}, ({of_dots}, ), {found.get(name)}, {form.heads}, {form.channels}'
            lines.say(f'of_features, {", ".join(results)} = through_dots({given})')
            found[name] = 'of_features'
            lines.counts['of_features'] = self._count_of(name)
            of_rest = {f'rest_{k}': result for k, result in enumerate(results)}
        for place, name in enumerate(form.given, len(form.dots)):
            if name in found:
                value, rest = found[name], f'rest_{place}'
                of_rest[rest] = f'{value} if {rest}.dim() == 2 else {value}.view({rest}.shape)'
        return of_rest

    def _of_maps(self, grad: str, found: Mapping[str, str]) -> None:
        """Collects what gradients of rows, weights and biases are sums of."""
        for name, parts in self._form.made.items():
            if name not in found:
                continue
            is_product = name in self._shaped.products
            for part in parts:
                if is_product:
                    self._adjoint.add_to_weight(part, f'{found[name]}.weight.t()')
                else:
                    self._adjoint.add(part, found[name])
            if is_product:
                # once, of whatever maps the weight is the sum
                self._adjoint.add_rows(EDGE, f'{found[name]}.features')
        for part in self._shaped.added:
            self._adjoint.add(part, grad)
        if self._shape.added:
            self._adjoint.scaled[rows_of(TARGET, self._shape)] = grad

    def _of_derived(self, found: Mapping[str, str]) -> None:
        """Adds what was found of derived operands to the gradients of what they are made of."""
        form, lines, shaped = self._form, self._lines, self._shaped
        first, unread = len(form.made) + form.given_to_derived, self._wanted.adjoint.unread
        there = {name: place for place, name in enumerate(form.derived_names, first) if place not in unread}
        tensors = _dict_of({name: f'tensor_{place}' for name, place in there.items()})
        for k, derived in enumerate(form.derived):
            lines.knows(f'adjoint_{k}', derived.adjoint)
            places = {SOURCE: 0, TARGET: shaped.place_of_own, EDGE: 2}
            behind = shaped.num_mapped + form.given_to_derived
            lines.knows('add_to', _adder(places, behind, self._wanted.needed))
            own = _dict_of({name: value for name, value in found.items() if name in derived.reads})
            given = f'{own}, {tensors}, {self._operands.rows}, {self._operands.behind}'
            lines.say(f'add_to(results, adjoint_{k}({given}))')


def _adder(places: Mapping[str, int], behind: int, needed: Sequence[bool]) -> Callable:
    def add_to(results: list[Tensor | None], gradients: Mapping[str | int, Tensor]) -> None:
        for part, gradient in gradients.items():
            place = places[part] if isinstance(part, str) else behind + part
            if needed[place]:
                results[place] = gradient if results[place] is None else results[place] + gradient

    return add_to


def _dict_of(names: Mapping[str, str]) -> str:
    return '{' + ', '.join(f'{key!r}: {value}' for key, value in names.items()) + '}'


def _through_dots(
    x: Tensor, vectors: Collection[Tensor], of_dots: Sequence[Tensor], begun: Tensor | None, heads: int, channels: int
) -> tuple[Tensor, ...]:
    """The gradients of the features, added to those begun, and of the dots' vectors."""
    x = x.view(-1, heads, channels)
    begun = None if begun is None else begun.view(x.shape)
    given = x, [vector.contiguous() for vector in vectors], of_dots
    of_x, *of_vectors = head_products_of(x.device).products_adjoint(*given, begun, begun)
    return of_x.flatten(1), *of_vectors
