"""What is decided once of all calls of a form whose tensors are there alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pygfuse.ops.mapped_walk.form import Form, Part
from pygfuse.ops.mapped_walk.map_lines import Shape
from pygfuse.ops.mapped_walk.written import SIDES, is_remade, products_of, written, written_adjoint
from pygfuse.ops.plan import Adjoint
from pygfuse.program.program import EDGE, SOURCE, TARGET


class Wanted(NamedTuple):
    """What follows from which tensors need a gradient.

    Attributes:
        shaped: Of which calls.
        adjoint: What the walk's adjoint gives and reads; None where no operand needs a gradient.
        dropped: The places of operands that are not kept for it beside the tensors.
        lines: The adjoint of the maps, as of `written_adjoint`.
        of_map: What is needed of the map of the result and of that of targets beside it, as
            `pygfuse.ops.nodes.sum_maps.adjoint_of_maps` takes it; None where the result is not mapped.
        features: The products whose features' gradients the walk's adjoint gives.
        needed: Which tensors need one.
        of_derived: Whether derived operands do.
    """

    shaped: Shaped
    adjoint: Adjoint | None
    dropped: tuple[int, ...]
    lines: Callable
    of_map: tuple[bool, ...] | None
    features: frozenset[str]
    needed: tuple[bool, ...]
    of_derived: bool


class Shaped:
    """Calls of a form.

    Args:
        form: The form.
        shape: Which tensors are there.

    Attributes:
        num_mapped: The number of tensors that maps take: three of rows, and two of each map.
        plan: What is known of the walks.
        make, weights, remake, add: As of `written`.
        numbers: The scalars, in the order of the plan.
        are_fresh: Whether all operands are new tensors of a row for each node, as walks read them.
    """

    def __init__(self, form: Form, shape: Shape) -> None:
        self.form, self.shape, self.num_mapped = form, shape, 3 + 2 * len(shape.biased)
        self._products = products_of(form, shape)
        self.plan = form.plan(self._products)
        self.make, self.weights, self.remake, self.add = written(form, shape)
        self.numbers = tuple(form.numbers.values())
        parts = [part for each in form.made.values() for part in each]
        are_mapped = all(part.linear is not None and part.side in (SOURCE, TARGET) for part in parts)
        self.are_fresh = are_mapped and len(form.made) == len(self.plan.tensors)
        self._wanted: dict[tuple[bool, ...], Wanted] = {}

    @property
    def place_of_own(self) -> int:
        """The place of the rows of targets among what is given."""
        return 0 if self.shape.same else 1

    def wanted(self, needed: tuple[bool, ...]) -> Wanted:
        """What follows from which tensors need a gradient."""
        found = self._wanted.get(needed)
        if found is None:
            found = self._wanted[needed] = self._wanted_of(needed)
        return found

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
        given, behind = rest[len(form.dots) : form.given_to_derived], rest[form.given_to_derived :]
        of_derived = [flag for derived in form.derived for flag in derived.needed(of_sides, behind)]
        flags = *of_made, *of_dots, *given, *of_derived, *of_weights
        adjoint = self.plan.adjoint(flags) if any(flags) else None
        found = set() if adjoint is None else {*adjoint.needed.names, *(form.dots.values() if any(of_dots) else ())}
        lines = written_adjoint(form, self.shape, found, mapped)
        features = frozenset() if adjoint is None else frozenset(adjoint.needed.features)
        dropped = tuple(self._dropped(adjoint, len(flags)))
        return Wanted(self, adjoint, dropped, lines, self._of_map(needed), features, needed, any(of_derived))

    def _of_map(self, needed: tuple[bool, ...]) -> tuple[bool, ...] | None:
        place = self.form.mapped_by
        if place is None:
            return None
        first, root = 3 + 2 * place, self.form.root
        others = {first, first + 1} if root is None else {first, first + 1, 3 + 2 * root}
        of_sums = any(flag for k, flag in enumerate(needed) if k not in others)
        of_own = root is not None and needed[self.place_of_own]
        return of_sums, of_own, *needed[first : first + 2], root is not None and needed[3 + 2 * root]

    def _dropped(self, adjoint: Adjoint | None, num_operands: int) -> Sequence[int]:
        form, num_made = self.form, len(self.form.made)
        remade = [place for place, parts in enumerate(form.made.values()) if is_remade(parts)]
        # what is given is kept already; weights of products are made again
        first = num_made + form.given_to_derived
        kept = [not derived.is_remade for derived in form.derived for _ in derived.reads]
        remade += [place for place, is_kept in enumerate(kept, first) if not is_kept]
        given = *range(num_made + len(form.dots), first), *range(first + len(kept), num_operands)
        unread = () if adjoint is None else [place for place in adjoint.unread if place != form.place_of_dots]
        return sorted({*remade, *given, *unread})


def shaped_of(form: Form, shape: Shape) -> Shaped:
    """The calls of a form and a shape; they are kept with the form."""
    found = form.shapes.get(shape)
    if found is None:
        found = form.shapes[shape] = Shaped(form, shape)
    return found
