"""What the operands of a program are made of: sums of linear maps of rows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pygfuse.ops.aggregation import aggregate
from pygfuse.ops.degrees import counts_of
from pygfuse.ops.edges import Edges
from pygfuse.ops.nodes.derived import Derived
from pygfuse.ops.nodes.linear import apply_weight
from pygfuse.ops.plan import Plan, plan_named
from pygfuse.program.products import OperandValue, Product
from pygfuse.program.program import EDGE, SOURCE, TARGET, EdgeProgram


class Part(NamedTuple):
    """Rows of one side, times a weight where there is one, or a bias alone.

    Attributes:
        side: ``'source'``, ``'target'`` or ``'edge'``; None for the bias alone.
        linear: Which linear map; None for the rows as they are.
        columns: The first and the number of the weight's columns that meet these rows; None for all.
        outputs: The same of its rows.
        biased: Whether the map's bias is added, where it has one.
    """

    side: str | None
    linear: int | None = None
    columns: tuple[int, int] | None = None
    outputs: tuple[int, int] | None = None
    biased: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class Form:
    """A program with what its operands are made of; what follows from it is kept with it.

    Forms are equal that say the same of the same program; see `first_of`.

    Attributes:
        program: The program.
        made: The operands that are sums of parts, by name.
        heads, channels: Of the rows.
        dots: Operands of heads, and the one whose features are multiplied by a vector for each head.
        given: The operands that are given as they are.
        derived: Operands that are other functions of rows and of what is given behind these.
        numbers: The scalars by name.
        reduce: How messages are reduced.
        loops: Whether each node gets one self-loop in place of others.
        added: What is added to the result.
        mapped_by: The linear map of the result, with what was added to it; None for the result as it is.
        root: The linear map of targets that is added then, without a bias; None where nothing is.
        turned: The linear maps whose weight is ``[in, out]``.
        sums_heads: Whether the result is the sum over heads.
        of_edges: Whether PyG maps rows of edges where these are of nodes: nodes without edges are in no gradient then.
    """

    program: EdgeProgram
    made: Mapping[str, tuple[Part, ...]]
    heads: int
    channels: int
    dots: Mapping[str, str] = dataclasses.field(default_factory=dict)
    given: tuple[str, ...] = ()
    derived: tuple[Derived, ...] = ()
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reduce: str = 'sum'
    loops: bool = False
    added: tuple[Part, ...] = ()
    mapped_by: int | None = None
    root: int | None = None
    turned: tuple[int, ...] = ()
    sums_heads: bool = False
    of_edges: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and self._said == other._said

    def __hash__(self) -> int:
        return hash(self._said)

    @functools.cached_property
    def _said(self) -> tuple:
        """All that it says, hashable; what is derived is told by identity."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values['derived'] = tuple(map(id, self.derived))
        return tuple([tuple(value.items()) if isinstance(value, Mapping) else value for value in values.values()])

    def plan(self, products: Sequence[str]) -> Plan:
        """What is known of walks that multiply these operands of edges; their weights are the last tensors."""
        made = [f'{name}:features' if name in products else name for name in self.made]
        names = *made, *self.dots, *self.given, *self.derived_names, *[f'{name}:weight' for name in products]
        numbers, products = tuple(self.numbers), tuple(products)
        return plan_named(self.program, names, numbers, self.heads, self.channels, self.reduce, products)

    @functools.cached_property
    def shapes(self) -> dict:
        """What is known of its calls, by which tensors are there (`pygfuse.ops.mapped_walk.shaped`)."""
        return {}

    @functools.cached_property
    def reads_edges(self) -> bool:
        """Whether something is made of rows of edges."""
        return any(part.side == EDGE for parts in self.made.values() for part in parts) or any(
            derived.is_remade for derived in self.derived
        )

    @functools.cached_property
    def derived_names(self) -> tuple[str, ...]:
        """The names of the operands that are derived."""
        return tuple([name for derived in self.derived for name in derived.reads])

    @functools.cached_property
    def given_to_derived(self) -> int:
        """The place of what those are made of behind the vectors of dots and the operands that are given."""
        return len(self.dots) + len(self.given)

    @functools.cached_property
    def place_of_dots(self) -> int | None:
        """The place among what is made of the operand that is multiplied by vectors, if there is one."""
        return list(self.made).index(next(iter(self.dots.values()))) if self.dots else None


@functools.lru_cache(maxsize=1024)
def first_of(form: Form) -> Form:
    """The first of the forms that are equal to this one: layers that are alike, and one whose calls take turns between
    kinds, have what is kept with it in common.

    Example:
        >>> from pygfuse.program.library.neighbours import NEIGHBOURS
        >>> forms = [Form(NEIGHBOURS, {'x': (Part(SOURCE, 0),)}, 1, width) for width in (8, 8, 4)]
        >>> [first_of(form) is first_of(forms[0]) for form in forms]
        [True, True, False]
    """
    return form


# the weight of a linear map, ``[out, in]`` if the form does not say otherwise, and its bias or None; a bias alone has
# None for the weight
Weights = tuple[Tensor | None, Tensor | None]
Rows = Mapping[str, Tensor]


def weight_of(part: Part, weight: Tensor) -> Tensor:
    """What of a weight, or of its gradient, a part is mapped by."""
    if part.outputs is not None:
        weight = weight.narrow(0, *part.outputs)
    return weight if part.columns is None else weight.narrow(1, *part.columns)


def bias_of(part: Part, bias: Tensor | None) -> Tensor | None:
    """The same of a bias."""
    if bias is None or not part.biased:
        return None
    return bias if part.outputs is None else bias.narrow(0, *part.outputs)


def _product_of(
    parts: Sequence[Part], features: Tensor, weights: Sequence[Tensor | None], biases: Sequence[Tensor | None]
) -> Product:
    """The sum of parts of edges, of which autograd keeps nothing but features and weights."""
    own = [weight_of(part, weights[part.linear]) for part in parts]
    weight = sum(own[1:], own[0]).t()
    there = [bias for bias in (bias_of(part, biases[part.linear]) for part in parts) if bias is not None]
    if not there:
        return Product(features, weight)
    ones = features.new_ones(len(features), 1)
    return Product(torch.cat([features, ones], dim=1), torch.cat([weight, sum(there[1:], there[0]).unsqueeze(0)]))


def by_parts(
    form: Form, edges: Edges, rows: Rows, maps: Sequence[Weights], rest: Sequence[Tensor],
    itself: float | None = None,
) -> Tensor:  # fmt: skip
    """The result of one node of autograd for each part.

    Args:
        form: The form.
        edges: The edges.
        rows: The rows of each side.
        maps: The linear maps.
        rest: The vectors of dots, the operands that are given, and what derived ones are made of beside rows.
        itself: How many times rows of targets are added, or None.
    """
    counts = dict(zip((TARGET, SOURCE), counts_of(edges, rows[SOURCE]), strict=True)) if form.of_edges else {}
    weights = [weight.t() if place in form.turned else weight for place, (weight, _) in enumerate(maps)]
    biases = [bias for _, bias in maps]

    def mapped(part: Part, of_edges: bool = True) -> Tensor:
        if part.side is None:
            return biases[part.linear]
        x = rows[part.side]
        if part.linear is None:
            return x
        weight, bias = weight_of(part, weights[part.linear]), bias_of(part, biases[part.linear])
        return apply_weight(x, weight, bias, counts.get(part.side) if of_edges else None)

    operands: dict[str, OperandValue] = {}
    for name, parts in form.made.items():
        if parts[0].side == EDGE and parts[0].linear is not None:
            operands[name] = _product_of(parts, rows[EDGE], weights, biases)
        else:
            there = [part for part in parts if part.side is not None or biases[part.linear] is not None]
            operands[name] = sum(map(mapped, there[1:]), mapped(there[0]))
    for (name, of), vector in zip(form.dots.items(), rest, strict=False):
        operands[name] = (operands[of].view(-1, form.heads, form.channels) * vector).sum(dim=-1)
    operands |= dict(zip(form.given, rest[len(form.dots) :], strict=False))
    for derived in form.derived:
        operands |= dict(zip(derived.reads, derived.compute(rows, rest[form.given_to_derived :]), strict=True))
    shape = form.heads, form.channels
    out = aggregate(form.program, edges, {**operands, **form.numbers}, *shape, form.reduce, flat=not form.sums_heads)
    out = out.sum(dim=1) if form.sums_heads else out
    for part in form.added:
        out = out + mapped(part, of_edges=False)
    out = out if itself is None else out + itself * rows[TARGET]
    if form.mapped_by is None:
        return out
    out = F.linear(out, weights[form.mapped_by], biases[form.mapped_by])
    return out if form.root is None else out + F.linear(rows[TARGET], weights[form.root])
