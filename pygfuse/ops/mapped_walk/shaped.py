"""What is decided once of all calls of a form whose tensors are there alike."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch

from pygfuse.codegen.launch_lines import LaunchLines
from pygfuse.ops.mapped_walk.form import Form, Part
from pygfuse.ops.mapped_walk.map_lines import SIDES, Shape
from pygfuse.ops.mapped_walk.operand_lines import is_remade, products_of
from pygfuse.ops.plan import Adjoint
from pygfuse.program.program import EDGE, SOURCE, TARGET


class Kind(NamedTuple):
    """What calls have in common beside their form and which tensors are there.

    Attributes:
        of: The type and device of all tensors.
        sharing: How threads share walks of so many edges, as these say it.
    """

    of: tuple[torch.dtype, torch.device]
    sharing: Hashable


class Wanted(NamedTuple):
    """What follows from which tensors need a gradient.

    Attributes:
        shaped: Of which calls.
        adjoint: What the walk's adjoint gives and reads; None where no operand needs a gradient.
        dropped: The places of operands that are not kept for it beside the tensors.
        needs_sums: Whether the gradient of what the result is mapped of is needed, where it is mapped.
        reads_sums: Whether the adjoint reads what the result is mapped of.
        features: The products whose features' gradients the walk's adjoint gives.
        needed: Which tensors need one.
        of_derived: Whether derived operands do.
    """

    shaped: Shaped
    adjoint: Adjoint | None
    dropped: tuple[int, ...]
    needs_sums: bool
    reads_sums: bool
    features: frozenset[str]
    needed: tuple[bool, ...]
    of_derived: bool


class Shaped:
    """Calls of a form.

    Args:
        form: The form.
        shape: Which tensors are there.
        num_rest: How many tensors are given behind those that maps take.

    Attributes:
        num_mapped: The number of tensors that maps take: three of rows, and two of each map.
        plan: What is known of the walks.
        products: The operands of edges that walks multiply.
        added: What is added to the result.
        width_of_sums: Values in a row of the result before it is mapped.
        steps: What was written of them (`pygfuse.ops.mapped_walk.step`).
    """

    def __init__(self, form: Form, shape: Shape, num_rest: int) -> None:
        self.form, self.shape, self.num_rest = form, shape, num_rest
        self.num_mapped = 3 + 2 * len(shape.biased)
        self.products = products_of(form, shape)
        self.plan = form.plan(self.products)
        self.added = (*form.added, *((Part(TARGET),) if shape.once else ()))
        self.width_of_sums = form.channels * (1 if form.sums_heads else form.heads)
        self.steps: dict[tuple, Any] = {}

    @property
    def place_of_own(self) -> int:
        """The place of the rows of targets among what is given."""
        return 0 if self.shape.same else 1

    def walks_in(self, lines: LaunchLines, kind: Kind) -> Any:
        """The walks of calls of a kind, whose numbers lines know from then on."""
        for place, number in enumerate(self.form.numbers.values()):
            lines.knows(f'number_{place}', number)
        return self.plan.walks_on(*kind.of)

    def wanted(self, needed: tuple[bool, ...]) -> Wanted:
        """What follows from which tensors need a gradient."""
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
            of_sides[EDGE] if name in self.products else any(map(is_needed, parts)) for name, parts in form.made.items()
        ]
        of_weights = [any(map(is_weight_needed, form.made[name])) for name in self.products]
        # all at once
        of_dots = [bool(form.dots) and (of_made[form.place_of_dots] or any(rest[: len(form.dots)]))] * len(form.dots)
        given, behind = rest[len(form.dots) : form.given_to_derived], rest[form.given_to_derived :]
        of_derived = [flag for derived in form.derived for flag in derived.needed(of_sides, behind)]
        flags = *of_made, *of_dots, *given, *of_derived, *of_weights
        adjoint = self.plan.adjoint(flags) if any(flags) else None
        features = frozenset() if adjoint is None else frozenset(adjoint.needed.features)
        dropped = tuple(self._dropped(adjoint, len(flags)))
        return Wanted(self, adjoint, dropped, *self._of_sums(needed), features, needed, any(of_derived))

    def _of_sums(self, needed: tuple[bool, ...]) -> tuple[bool, bool]:
        place = self.form.mapped_by
        if place is None:
            return False, False
        first, root = 3 + 2 * place, self.form.root
        others = {first, first + 1} if root is None else {first, first + 1, 3 + 2 * root}
        return any(flag for k, flag in enumerate(needed) if k not in others), needed[first]

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
