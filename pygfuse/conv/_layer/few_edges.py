"""Layers that take so few edges as they come.

That is decided by the sizes of a call and not by what was done with its edges before: a call gives the same bits each
time.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from pygfuse._lib.backends import few_edges_of
from pygfuse._lib.hooks import weight_and_bias
from pygfuse._lib.note import Note
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.as_list import as_list, is_short_product
from pygfuse.conv._layer.checks import NodePair
from pygfuse.conv._layer.spec import EdgeWeight, Spec
from pygfuse.mapping.few_edges import are_few, counted_bytes, fewest_compiled
from pygfuse.ops.aggregation import is_divided
from pygfuse.ops.few_edges.sums import TYPES, FewEdges
from pygfuse.ops.listed import savable
from pygfuse.ops.mapped_walk import Form, Weights, first_of, walk_of_maps
from pygfuse.ops.within_torch.intercepted import PLAIN


class FewWalk(NamedTuple):
    """How a layer's maps and its walk are one node of autograd.

    Attributes:
        form: The program, and what its operands are made of.
        maps: The names of the layer's linear maps: those of its modules, and of what `map_of_few` gives.
        rest: The names of its parameters and buffers that are vectors of dots, given operands, or what others are
            derived of.
        takes_features: Whether calls bring features of edges.
    """

    form: Form
    maps: tuple[str, ...]
    rest: tuple[str, ...] = ()
    takes_features: bool = False


class OverFewEdges:
    """A mixin for layers, of which those that take few edges as they come say here how."""

    note: Note
    flow: str
    fuse: bool
    spec: ClassVar[Spec]
    # what calls along few edges may bring beside features, an adjacency and features of edges
    given_of_few: ClassVar[tuple[str, ...]] = ()
    # whether a network is on each edge
    has_network: ClassVar[bool] = False
    # whether features, sparse ones as others, are mapped before they are summed in whatever form of a sum it says
    maps_sparse_first: ClassVar[bool] = False

    def as_list(self, x: Any, adjacency: Any, given: dict[str, Any]) -> Any:
        """The adjacency, or the list of its edges, where the layer gives the same over it."""
        if torch.compiler.is_compiling():
            return adjacency
        if self.spec.matrix and self.fuse and not self.adds_loops() and is_short_product(adjacency):
            return adjacency
        edge = self.spec.edge
        drops_values = isinstance(edge, EdgeWeight) and not edge.of_sparse_tensor
        return as_list(self, x, adjacency, given, self.adds_loops(), drops_values)

    def without_size(self, x: Any, given: dict[str, Any]) -> dict[str, Any]:
        """The other arguments of a call, without a `size` that says of two sets of nodes what their features say."""
        size = given['size']
        is_pair = type(x) is tuple and len(x) == 2 and all(isinstance(part, Tensor) and part.dim() == 2 for part in x)
        is_said = is_pair and type(size) in (tuple, list) and tuple(size) == (len(x[0]), len(x[1]))
        return {**given, 'size': None} if is_said and not torch.compiler.is_compiling() else given

    def drops(self) -> bool:
        """Whether weights of edges are dropped."""
        return self.spec.attention is not None and self.training and self.dropout > 0.0

    def are_few_compiled(self, adjacency: Any) -> bool:
        """Whether what torch compiles of PyG's operators takes less along edges as few as these."""
        program = self.spec.program
        is_softmax = self.spec.attention is not None or (program is not None and program.softmax)
        return fallback.are_few_compiled(adjacency, fewest_compiled(is_softmax or self.has_network))

    def form_of_few(self, x: Tensor | NodePair, prepared: Any) -> Any:
        """How the layer runs along few edges, the form of a sum (`pygfuse.ops.few_edges.sums`) or what else `sum_few`
        takes; None where it takes them as it takes many."""
        return None

    def walk_of_few(self, x: NodePair, given: Mapping[str, Any], prepared: Any) -> FewWalk | None:
        """The same of a layer whose maps and walk are one node then.

        Args:
            x: Features of both sides, which may be the same tensor.
            given: What else it is called with, by PyG's names; features of edges have the layer's width.
            prepared: What the layer read of itself.
        """
        return None

    def width_of_few(self, width: int, form: Any) -> int:
        """How wide the rows are that it adds or holds then, given features of this width."""
        return width

    def products_of_few(self, form: Any) -> tuple[int, int]:
        """How many numbers it multiplies then for an edge and for a node, beside rows."""
        return 0, 0

    def run_few(
        self, x: Tensor | NodePair, edges: FewEdges | None, forms: tuple | None, prepared: Any
    ) -> Tensor | None:
        """The output of a call, the first or one that follows; None where it takes its edges as it takes many."""
        return None if edges is None else self.sum_few(x if type(x) is tuple else (x, x), edges, forms[0], prepared)

    def sum_few(self, x: NodePair, edges: FewEdges, form: Any, prepared: Any) -> Tensor | None:
        """Its output then, None if it takes them as it takes many after all; where a call gives one tensor, both of `x`
        are it."""
        out = self.walk_few(x, edges, form)
        return None if out is None else self.finish_few(out, x, edges)

    def walk_few(
        self, x: NodePair, edges: FewEdges, walk: FewWalk, more: Sequence[Tensor] = (), itself: float | None = None
    ) -> Tensor | None:
        """What the node of `walk_of_few` gives; None if a map is more than its weight and bias.

        Args:
            x: Features of both sides.
            edges: The edges.
            walk: How the layer runs along them.
            more: Operands that are given beside the layer's parameters.
            itself: How many times features of targets are added, or None.
        """
        modules, dtype, maps = self._modules, x[0].dtype, []
        for name in walk.maps:
            found = weight_and_bias(modules[name]) if name in modules else self.map_of_few(name)
            if found is None:
                return None
            for tensor in found:
                if tensor is not None and (type(tensor) not in PLAIN or tensor.dtype is not dtype):
                    return None
            maps.append(found)
        rest = [*map(self._vector, walk.rest), *more] if walk.rest or more else ()
        for tensor in rest:
            if type(tensor) not in PLAIN or tensor.dtype is not dtype:
                return None
        features = edges.given.get('edge_attr') if walk.form.reads_edges else None
        if features is not None or self.given_of_few:
            # autograd is to keep what it saves, and nothing beside it
            edges = FewEdges(*edges[:-1])
        return walk_of_maps(walk.form, maps, x, edges, features, rest, itself)

    def _vector(self, name: str) -> Tensor | None:
        """A parameter or buffer by its name; what is computed is neither."""
        return self._parameters.get(name, self._buffers.get(name))

    def has_bias(self) -> bool:
        """Whether the layer has a bias of its own; one that is computed is not."""
        return self._parameters.get('bias', self) is not None

    def map_of_few(self, name: str) -> Weights | None:
        """A linear map of `walk_of_few` that is no module of the layer, by its name; None if it is more than that. A
        parameter is a bias alone."""
        # one that is computed is no parameter
        bias = self._parameters.get(name)
        return None if bias is None else (None, bias)

    def finish_few(self, out: Tensor, x: NodePair, edges: FewEdges) -> Tensor:
        """The layer's output, from what that node gives."""
        return out

    def forms_of_few(
        self, x: Tensor | NodePair, edge_index: Tensor, given: Mapping[str, Any], prepared: Any
    ) -> tuple | None:
        """How calls of a kind run along few edges, as `pygfuse._lib.note.Note` has it.

        Args:
            x, edge_index, given: What the layer is called with.
            prepared: What it read of itself.
        """
        pair = x if isinstance(x, tuple) else (x, x)
        source, brought = pair[0], {name for name, value in given.items() if value is not None}
        is_plain = type(source) in PLAIN and (pair[1] is None or type(pair[1]) in PLAIN)
        if not is_plain and (brought or not self.maps_sparse_first):
            return None
        # a layer whose maps decide whether it runs fused runs walks, which look at them
        form = None if brought or self.spec.maps else self.form_of_few(x, prepared)
        is_known = brought <= {'edge_attr', *self.given_of_few} and pair[1] is not None
        is_taken = is_known and is_plain and source.dtype in TYPES and not self.drops()
        if form is None and is_taken and self._takes_features(pair, given.get('edge_attr')):
            form = self.walk_of_few(pair, given, prepared)
        if form is None or (isinstance(form, FewWalk) and is_divided(form.form.program, form.form.reduce)):
            return None
        has_kernel = edge_index.dtype is torch.int64 and few_edges_of(edge_index.device) is not None
        if not (has_kernel and source.dim() == 2 and source.shape[1]):
            return None
        width = self.width_of_few(source.shape[1], form)
        scores_channels = False
        if isinstance(form, FewWalk):
            form = form._replace(form=first_of(form.form))
            width, scores_channels = form.form.heads * form.form.channels, form.form.program.scores_channels
        if not width:
            # no kernel would check the edges
            return None
        return form, counted_bytes(width, source.element_size(), scores_channels), self.products_of_few(form)

    def _takes_features(self, x: NodePair, features: Tensor | None) -> bool:
        """Whether the layer takes features of edges like these, or none if there are none."""
        width = self.edge_width(x)
        if features is None:
            return not (width and self.spec.edge.required)
        return features.dim() == 2 and bool(width) and width in (-1, features.shape[1])

    def few_edges(
        self, x: Tensor | NodePair, edge_index: Tensor, given: Mapping[str, Any], forms: tuple | None
    ) -> FewEdges | None:
        """The edges of a call, if such calls take few edges as they come and they are so few.

        Args:
            x, edge_index, given: What the layer is called with.
            forms: As of `forms_of_few`.
        """
        if forms is None:
            return None
        source, target = x if type(x) is tuple else (x, x)
        num_rows, num_edges = edge_index.shape
        if num_rows != 2 or source.layout is not torch.strided or not edge_index.is_contiguous():
            return None
        num_sources = source.shape[0]
        num_targets = num_sources if target is None or target is source else target.shape[0]
        form, row_bytes, products = forms
        if not are_few(num_edges, num_sources + num_targets, row_bytes, products):
            return None
        if type(form) is FewWalk and not _fits(form, num_edges, num_sources, num_targets, given):
            return None
        return FewEdges(savable(edge_index), self.flow, num_sources, num_targets, weakref.ref(self.note), given)


def _fits(walk: FewWalk, num_edges: int, num_sources: int, num_targets: int, given: Mapping[str, Any]) -> bool:
    """Whether there is a row of features for each edge where they are taken, and a loop for each node where these are
    put in."""
    features = given.get('edge_attr')
    if walk.takes_features and (features is None or features.shape[0] != num_edges):
        return False
    return num_targets > 0 and (not walk.form.loops or num_sources == num_targets)
