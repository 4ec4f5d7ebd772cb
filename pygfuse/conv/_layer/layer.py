"""The one class behind all fused convolutions: it runs what a convolution declares, or PyG's own path."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor

from pygfuse._lib.callers import are_callers_writing, kept_from_callers
from pygfuse._lib.hooks import some_parameter, width_of
from pygfuse._lib.modes import modes
from pygfuse._lib.note import Known
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.attention import attention_in_order, attention_result
from pygfuse.conv._layer.checks import (
    Inputs,
    NodePair,
    as_features,
    check_adjacency,
    check_devices,
    check_features,
    check_tensors,
    checked_edge_attr,
    checked_edge_weight,
    pair_of,
)
from pygfuse.conv._layer.density import note_density
from pygfuse.conv._layer.edges import EdgeInput, edges_of, weight_of
from pygfuse.conv._layer.few_edges import OverFewEdges
from pygfuse.conv._layer.hag import note_hag, usable_hag
from pygfuse.conv._layer.in_place_of_pyg import InPlaceOfPyG
from pygfuse.conv._layer.noted import Noted
from pygfuse.conv._layer.repeated import is_of_kind, kind_of
from pygfuse.conv._layer.self_loops import loop_values
from pygfuse.conv._layer.spec import AFTER_DROPOUT, REDUCTIONS, EdgeFeatures, EdgeWeight, Spec
from pygfuse.conv._layer.untraced import NOT_TRACED, WEIGHTS_NOT_TRACED, may_break
from pygfuse.hag.hag import Hag
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from pygfuse.ops import Edges, aggregate, aggregate_with_weights, new_seed
from pygfuse.ops.aggregation import aggregate_known
from pygfuse.ops.hag import hag_aggregate
from pygfuse.ops.nodes.large_sums import added_to
from pygfuse.partial.rows.session import is_deferring
from pygfuse.program.products import OperandValue
from pygfuse.program.program import EdgeProgram
from pygfuse.program.trace import CHANNELS


class FusedConv(OverFewEdges, Noted, InPlaceOfPyG):
    """A mixin before one of PyG's classes, whose ``forward`` hands its arguments to `fused`.

    A convolution says in ``spec`` what it takes and what it runs, and in `operands` and `finish` which linear maps come
    before and after the edges. It names the arguments of PyG's ``propagate`` and ``edge_updater`` in ``propagate_type``
    and ``edge_updater_type``: PyG would read them from sources that it caches by class name, and ours have the names
    of PyG's.

    Constructor, parameters, ``state_dict``, ``repr``, arguments and results are those of PyG's class. What has no fused
    form runs PyG's ``forward``, and `pygfuse.report` says why.

    Shapes:
        - **input:** node features :math:`(|\\mathcal{V}|, F_{in})` or, where PyG's class takes two sets of nodes,
          :math:`((|\\mathcal{V}_s|, F_s), (|\\mathcal{V}_t|, F_t))`; any adjacency that PyG takes; features
          :math:`(|\\mathcal{E}|, D)` or weights :math:`(|\\mathcal{E}|)` of edges, where PyG's class takes them
        - **output:** as PyG's

    Raises:
        ValueError: If ``edge_index`` names a node that is not there, or an argument has another shape, type or device
            than expected; the message says which, and what it was.

    Example:
        >>> import torch
        >>> import torch_geometric.nn as pyg
        >>> from pygfuse.program.library.neighbours import NEIGHBOURS
        >>> class FusedSum(FusedConv, pyg.SimpleConv):
        ...     spec = Spec(NEIGHBOURS)
        ...
        ...     def forward(self, x, edge_index):
        ...         return self.fused(x, edge_index)
        >>> FusedSum()(torch.ones(3, 2), torch.tensor([[0, 1, 2], [1, 2, 1]])).tolist()
        [[0.0, 0.0], [2.0, 2.0], [1.0, 1.0]]
    """

    spec: ClassVar[Spec]

    def prepare(self) -> Any:
        """What the layer reads of itself once a call, handed on to the methods below; a str is a reason against."""
        return None

    def kind_of_prepared(self, prepared: Any) -> tuple[tuple, tuple] | None:
        """What checks of the layer find in it, by identity and by value; None where each call is looked at anew."""
        return ((), ()) if prepared is None else None

    def program(self, edge: EdgeInput | None) -> EdgeProgram:
        """What happens on an edge."""
        spec = self.spec
        weighted = spec.edge.program if isinstance(spec.edge, EdgeWeight) and edge is not None else None
        return weighted or spec.program

    def edge_width(self, x: NodePair) -> int | None:
        """How many features of edges the layer takes; None or 0 for no features, -1 for any number."""
        edge = self.spec.edge
        if not isinstance(edge, EdgeFeatures):
            return None
        return getattr(self, edge.width) if edge.map is None else width_of(getattr(self, edge.map))

    def adds_loops(self) -> bool:
        """Whether self-loops are put in."""
        return self.spec.loops and self.add_self_loops

    def why_not_call(self, inputs: Inputs) -> str | None:
        """A reason of the layer's own, if any, for which a call runs PyG's path."""
        return None

    def are_so_few(self, adjacency: Any) -> bool:
        """Whether PyG's path takes less along edges as few as these (`pygfuse.conv._layer.fallback.are_so_few`)."""
        return self.spec.matrix and self.fuse and fallback.is_small_matrix(adjacency)

    def why_not_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> str | None:
        """The same, where it takes the edges to know."""
        return None

    def tensors_of_layer(self, prepared: Any) -> dict[str, Tensor | None]:
        """Tensors of the layer, by name, whose type and device the inputs must have."""
        name = self.spec.parameter
        if name is None:
            return {}
        held = self._modules.get(name)
        return {'a parameter of the layer': some_parameter(self, name) if held is None else some_parameter(held)}

    def check(self, inputs: Inputs, prepared: Any) -> None:
        """Raises a ValueError if the features do not fit the layer."""
        said_by = self.spec.in_channels
        if said_by is not None:
            check_features(self, said_by, inputs.x, inputs.shared)

    def begin(self, inputs: Inputs) -> Tensor | None:
        """What is computed before everything else and handed to `finish`: lazy layers draw in PyG's order."""
        return None

    def operands(self, x: NodePair, edge: EdgeInput | None, edges: Edges) -> dict[str, OperandValue]:
        """The program's operands, those of channels ``[rows, channels]`` or ``[rows, heads, channels]``."""
        return {'x': x[0]} if edge is None else {'x': x[0], 'edge_weight': edge.values}

    def with_bias(self, out: Tensor) -> Tensor:
        """An output that nobody else has and the layer's bias; both reads are PyG's, of which each may compute it."""
        return out if self.bias is None else added_to(out, self.bias)

    def finish(self, out: Tensor, x: NodePair, begun: Tensor | None) -> Tensor:
        """The layer's output, from the aggregation: ``[targets, channels]``, heads side by side."""
        return out

    # The way of a call

    def fused(self, x: Any, edge_index: Any, **given: Any) -> Any:
        """Runs the layer, fused or by PyG's forward.

        Args:
            x: Features, or a pair of them.
            edge_index: Any adjacency.
            given: The other arguments by PyG's names.
        """
        out = self.over_copies(x, edge_index, given) if isinstance(x, Tensor) and x.dim() > 2 else None
        if out is not None:
            return out
        compiles = torch.compiler.is_compiling()
        # a trace that read it would be made again once it was written to
        note = None if compiles else self._note
        if compiles and isinstance(edge_index, _UNTRACED):
            return _fused_untraced(self, x, edge_index, **given)
        if compiles and self.are_few_compiled(edge_index):
            self.runs_fused(SO_FEW_EDGES)
            return self._by_pyg(x, edge_index, given)
        adjacency = edge_index
        if given.get('size') is not None:
            given = self.without_size(x, given)
        if type(edge_index) is not Tensor or edge_index.layout is not torch.strided:
            edge_index = self.as_list(x, adjacency, given)
        if note is not None and note.reason is SO_FEW_EDGES and self.are_so_few(edge_index):
            # PyG's path is right for every call: nothing else has to be looked at
            return self._by_pyg(x, adjacency, given)
        if self.spec.saves_rows and not compiles and are_callers_writing():
            given = {**kept_from_callers({**given, 'x': x})}
            x = given.pop('x')
        prepared = self.prepare()
        known = None if note is None else note.known
        is_known = known is not None and is_of_kind(known.kind, self, x, edge_index, given, prepared)
        forms = known.few if is_known else None
        few = self.few_edges(x, edge_index, given, forms) if is_known else None
        out = self.run_few(x, few, forms, prepared)
        if out is not None:
            note.reason = note.forward = None
            return out
        # a walk along few edges has looked at the maps that it reads
        is_known = is_known and fallback.why_not_maps(self, self.spec.maps) is None
        kind = None if compiles or is_known else kind_of(self, x, edge_index, given, prepared)
        inputs, reason = self._inputs(x, edge_index, given, is_known), None
        if not is_known:
            reason = prepared if isinstance(prepared, str) else self._why_not(inputs, prepared)
            if reason is None:
                self.check(inputs, prepared)
                note_hag(self, adjacency)
                note_density(self, inputs.x[0])
        if reason is None:
            inputs, edges = self.find_edges(inputs)
            if kind is not None:
                forms = self.forms_of_few(x, edge_index, given, prepared)
                few = self.few_edges(x, edge_index, given, forms)
            reason = self.why_not_edges(inputs, edges, prepared) if few is None else None
        if reason in (NOT_TRACED, WEIGHTS_NOT_TRACED) and may_break():
            return _fused_untraced(self, x, adjacency, **given)
        if reason is None and is_known:
            note.reason = note.forward = None
        elif not self.runs_fused(reason):
            return self._by_pyg(x, adjacency, given)
        if kind is not None:
            self.note.known = Known(kind, forms)
            out = self.run_few(x, few, forms, prepared)
            if out is not None:
                return out
        begun = self.begin(inputs)
        if is_known and prepared is None:
            out, weights = self.aggregate_edges(inputs, edges, prepared)
        else:
            with self.noted():
                out, weights = self.aggregate_edges(inputs, edges, prepared)
        out = self.finish(out, inputs.x, begun)
        return out if weights is None else self.with_weights(out, inputs.adjacency, edges, weights)

    def over_copies(self, x: Tensor, edge_index: Any, given: dict[str, Any]) -> Tensor | None:
        """The output of features of several copies of the graph, ``[..., nodes, channels]``; None where one is run."""
        return None

    def _by_pyg(self, x: Any, edge_index: Any, given: dict[str, Any]) -> Any:
        """PyG's own path."""
        if isinstance(edge_index, EdgeIndex) and is_deferring():
            # PyG's product with it is an autograd.Function, which wants values
            x = x[:] if isinstance(x, Tensor) else tuple(None if part is None else part[:] for part in x)
        return super().forward(x=x, edge_index=fallback.adjacency_for_pyg(edge_index), **given)

    def with_weights(self, out: Tensor, adjacency: Any, edges: Edges, weights: Tensor) -> Any:
        """The output and the weights of edges, as PyG's layer returns them."""
        return attention_result(out, adjacency, edges.graph(), weights)

    def find_edges(self, inputs: Inputs) -> tuple[Inputs, Edges]:
        """The edges of a call, and the call."""
        return inputs, edges_of(inputs.x, inputs.adjacency, self.flow, inputs.size, self.adds_loops(), inputs.is_known)

    def aggregate_edges(self, inputs: Inputs, edges: Edges, prepared: Any) -> tuple[Tensor, Tensor | None]:
        """The reduced messages, and the weights of edges in PyG's order of them if the call asks for them."""
        edge = self.edge_input(inputs, edges)
        operands, hag = self.operands(inputs.x, edge, edges), self.hag_for(inputs, edges, edge)
        if hag is not None:
            return hag_aggregate(hag, operands['x'], self.reduction), None
        return self.run(self.program(edge), operands, inputs, edges)

    def run(
        self, program: EdgeProgram, operands: dict[str, OperandValue], inputs: Inputs, edges: Edges
    ) -> tuple[Tensor, Tensor | None]:
        """Runs a program; results as of `aggregate_edges`."""
        heads, channels = _shape_of(program, operands)
        dropout = self.dropout if self.drops() else 0.0
        seed = new_seed(inputs.x[0]) if dropout > 0.0 else None
        arguments = program, edges, operands, heads, channels, self.reduction, dropout, seed
        if inputs.is_known:
            return aggregate_known(*arguments, self._note), None
        if not inputs.with_weights:
            return aggregate(*arguments, flat=True), None
        out, weights = aggregate_with_weights(*arguments)
        dropped = (dropout, seed) if self.spec.attention == AFTER_DROPOUT else ()
        return out.flatten(1), attention_in_order(edges.graph(), weights, *dropped)

    @property
    def reduction(self) -> str:
        """How messages are reduced, under the name of `pygfuse.ops.aggregate`."""
        return REDUCTIONS[self.aggr]

    def edge_input(self, inputs: Inputs, edges: Edges) -> EdgeInput | None:
        """What the call brings for each edge, checked.

        Raises:
            ValueError: If it has another shape than expected, or is missing.
        """
        spec, adjacency = self.spec.edge, inputs.adjacency
        if inputs.edge is None and inputs.is_known and isinstance(spec, EdgeWeight):
            return None
        if isinstance(spec, EdgeWeight):
            weight = checked_edge_weight(weight_of(spec, adjacency, inputs.edge, self.fuse), edges)
            return None if weight is None else EdgeInput(as_features(weight, inputs.x[0]))
        width = self.edge_width(inputs.x)
        if not width:
            return None
        values = checked_edge_attr(adjacency, inputs.edge, width, edges)
        if values is None:
            if spec.required:
                raise ValueError("Expected 'edge_attr' to be given, as the layer takes features of edges (got None)")
            return None
        return EdgeInput(values, None if edges.loops is None else loop_values(values, self.fill_value, edges))

    def hag_for(self, inputs: Inputs, edges: Edges, edge: EdgeInput | None) -> Hag | None:
        """The HAG that belongs to the adjacency, if the call can run over it; what became of it is noted."""
        if not self.spec.hag or inputs.is_known:
            return None
        return usable_hag(self, inputs.adjacency, edges, self.why_no_hag(edge))

    def why_no_hag(self, edge: EdgeInput | None) -> str | None:
        """A reason of the layer's own, if any, to do without a HAG."""
        return None if edge is None else 'its messages have edge weights'

    def _inputs(self, x: Any, adjacency: Any, given: dict[str, Any], is_known: bool) -> Inputs:
        others = dict(given)
        # of a layer that takes both, features are what belongs to an edge
        edge = others.pop('edge_attr' if 'edge_attr' in others else 'edge_weight', None)
        edge_type = others.pop('edge_type', None)
        size, with_weights = others.pop('size', None), others.pop('return_attention_weights', None)
        if self.spec.any_bool_is_yes:
            with_weights = with_weights is not None
        if not self.spec.bipartite and not isinstance(x, Tensor):
            name, got = type(self).__name__, type(x).__name__
            raise ValueError(
                f"Expected 'x' to be a tensor: {name} does not support bipartite message passing (got {got})"
            )
        brought = pair_of(x), isinstance(x, Tensor), adjacency, edge, size, bool(with_weights), others
        return Inputs(*brought, is_known=is_known, edge_type=edge_type)

    # Reasons against

    def why_not(self) -> str | None:
        """The reason, if any, for which this layer as it stands runs PyG's own path."""
        prepared = self.prepare()
        return prepared if isinstance(prepared, str) else self._why_not_layer()

    def _why_not_layer(self) -> str | None:
        reason = fallback.why_not_watched(self)
        if reason is None and self.spec.reorganised and not modes().reorganisation:
            return 'reorganisation is switched off'
        return (
            reason or self.what_is_overridden() or self.why_not_reduce() or fallback.why_not_maps(self, self.spec.maps)
        )

    def why_not_reduce(self) -> str | None:
        """The reason, if any, for which the layer's aggregation has no fused form."""
        return fallback.why_not_reduce(self, self.spec.reductions)

    def _why_not(self, inputs: Inputs, prepared: Any) -> str | None:
        """The reason, if any, for which a call runs PyG's own path.

        Raises:
            ValueError: If something is no tensor, the tensors are on different devices, or the adjacency is none.
        """
        spec, x, adjacency = self.spec, inputs.x, inputs.adjacency
        reason = self._why_not_layer() or fallback.why_not_here()
        if reason is not None:
            return reason
        first = 'x' if inputs.shared else 'x[0]'
        check_tensors({first: x[0]})
        width = self.edge_width(x)
        own = self.tensors_of_layer(prepared)
        given = self.tensors_of_call(inputs, width)
        given |= {name: tensor for name, tensor in own.items() if tensor is not None}
        check_tensors(given)
        check_adjacency(adjacency)
        check_devices(adjacency, given)
        reason = (
            fallback.why_not_tensors(given, spec.autocast)
            or fallback.why_not_features(spec, x)
            or fallback.why_not_reversed(self.flow, inputs)
            or fallback.why_not_edges(self, spec, inputs, width)
            or fallback.why_not_segments(self, adjacency)
        )
        if reason is None and spec.matrix:
            before = None if spec.before is None else self._modules.get(spec.before)
            reason = fallback.why_not_repeats(self, adjacency) or fallback.why_not_ties(self, adjacency, x[0], before)
        return reason or self.why_not_call(inputs) or (SO_FEW_EDGES if self.are_so_few(adjacency) else None)

    def tensors_of_call(self, inputs: Inputs, width: int | None) -> dict[str, Any]:
        """The floating tensors of a call by name."""
        x, edge = inputs.x, self.spec.edge
        given = {'x': x[0]} if inputs.shared else {'x[0]': x[0], 'x[1]': x[1]}
        if isinstance(edge, EdgeWeight):
            given['edge_weight'] = inputs.edge
        elif width or (edge is not None and not edge.ignored):
            given['edge_attr'] = inputs.edge
        given |= inputs.others
        return {name: tensor for name, tensor in given.items() if tensor is not None}


# torch.compile can trace neither the operators of torch_sparse nor the kept graph of an EdgeIndex
_UNTRACED = (SparseTensor, EdgeIndex)
_fused_untraced = torch.compiler.disable(FusedConv.fused)


def _shape_of(program: EdgeProgram, operands: dict[str, OperandValue]) -> tuple[int, int]:
    """Heads and channels of a call."""
    for name, value in operands.items():
        if isinstance(value, Tensor) and program.operands[name].level == CHANNELS:
            return (value.shape[1], value.shape[2]) if value.dim() == 3 else (1, value.shape[1])
    raise ValueError(f'Expected an operand of channels for program {program.name!r} (got {list(operands)})')
