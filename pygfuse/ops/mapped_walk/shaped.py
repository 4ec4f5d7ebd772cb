"""What is decided once of all calls of a form whose tensors are there alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pygfuse.graph.listed import Listed
from pygfuse.ops.mapped_walk.form import Form, Part
from pygfuse.ops.mapped_walk.written import SIDES, Shape, is_remade, products_of, written, written_adjoint
from pygfuse.ops.plan import Adjoint
from pygfuse.program.program import EDGE, SOURCE, TARGET


class Wanted(NamedTuple):
    """What follows from which tensors need a gradient.

    Attributes:
        shaped: Of which calls.
        adjoint: What the walk's adjoint gives and reads; None where no operand needs a gradient.
        dropped: The places of operands that are not kept for it beside the tensors.
        lines: The adjoint of the maps, as of `written_adjoint`.
    """

    shaped: Shaped
    adjoint: Adjoint | None
    dropped: tuple[int, ...]
    lines: Callable


class Shaped:
    """Calls of a form.

    Args:
        form: The form.
        shape: Which tensors are there.

    Attributes:
        num_mapped: The number of tensors that maps take: three of rows, and two of each map.
        plan: What is known of the walks.
        make, weights, remake, add: As of `written`.
    """

    def __init__(self, form: Form, shape: Shape) -> None:
        self.form, self.shape, self.num_mapped = form, shape, 3 + 2 * len(shape.biased)
        self._products = products_of(form, shape)
        self.plan = form.plan(self._products)
        self.make, self.weights, self.remake, self.add = written(form, shape)
        self._wanted: dict[tuple[bool, ...], Wanted] = {}

    def wanted(self, needed: tuple[bool, ...]) -> Wanted:
        """What follows from which tensors need a gradient."""
        found = self._wanted.get(needed)
        if found is None:
            found = self._wanted[needed] = self._wanted_of(needed)
        return found

    def shape_of(self, place: int, listed: Listed) -> tuple[int, int]:
        """The shape of an operand of nodes."""
        form = self.form
        name = self.plan.tensors[place]
        rows = listed.num_sources if form.program.operands[name].side == SOURCE else listed.num_targets
        return rows, form.heads * (form.channels if place < len(form.made) else 1)

    def _wanted_of(self, needed: tuple[bool, ...]) -> Wanted:
        form = self.form
        mapped, rest = needed[: self.num_mapped], needed[self.num_mapped :]
        of_sides = dict(zip(SIDES, mapped, strict=False))
        if self.shape.same:
            of_sides[TARGET] = of_sides[SOURCE]

        def is_needed(part: Part) -> bool:
            weights = () if part.linear is None else mapped[3 + 2 * part.linear : 5 + 2 * part.linear]
            # a bias alone is of no side
            return of_sides.get(part.side, False) or any(weights)

        def is_weight_needed(part: Part) -> bool:
            return mapped[3 + 2 * part.linear]

        # of products in parts
        of_made = [
            of_sides[EDGE] if name in self._products else any(map(is_needed, parts))
            for name, parts in form.made.items()
        ]
        of_weights = [any(map(is_weight_needed, form.made[name])) for name in self._products]
        # all at once
        of_dots = [bool(form.dots) and (of_made[form.place_of_dots] or any(rest[: len(form.dots)]))] * len(form.dots)
        flags = *of_made, *of_dots, *rest[len(form.dots) :], *of_weights
        adjoint = self.plan.adjoint(flags) if any(flags) else None
        found = set() if adjoint is None else {*adjoint.needed.names, *(form.dots.values() if any(of_dots) else ())}
        lines = written_adjoint(form, self.shape, found, mapped)
        return Wanted(self, adjoint, tuple(self._dropped(adjoint, len(flags))), lines)

    def _dropped(self, adjoint: Adjoint | None, num_operands: int) -> Sequence[int]:
        form, num_made = self.form, len(self.form.made)
        remade = [place for place, parts in enumerate(form.made.values()) if is_remade(parts)]
        # what is given is kept already; weights of products are made again
        given = range(num_made + len(form.dots), num_operands)
        unread = () if adjoint is None else [place for place in adjoint.unread if place != form.place_of_dots]
        return sorted({*remade, *given, *unread})


def shaped_of(form: Form, shape: Shape) -> Shaped:
    """The calls of a form and a shape; they are kept with the form."""
    found = form.shapes.get(shape)
    if found is None:
        found = form.shapes[shape] = Shaped(form, shape)
    return found
