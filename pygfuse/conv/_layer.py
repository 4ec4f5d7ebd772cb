"""What all fused convolutions share: when a call runs fused and when it runs PyG's own path, and why."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from pygfuse._lib import backends as targets
from pygfuse._lib.hooks import has_hooks, why_not_linear
from pygfuse._lib.modes import changed, modes
from pygfuse._lib.note import Note
from pygfuse.conv._hag import note_hag
from pygfuse.graph.adjacency import FLOWS, values_of
from pygfuse.graph.graph import Graph
from pygfuse.ops import autocast
from pygfuse.ops.aggregate import Edges

_HOOKS = (
    '_propagate_forward_pre_hooks',
    '_propagate_forward_hooks',
    '_message_forward_pre_hooks',
    '_message_forward_hooks',
    '_aggregate_forward_pre_hooks',
    '_aggregate_forward_hooks',
    '_message_and_aggregate_forward_pre_hooks',
    '_message_and_aggregate_forward_hooks',
    '_edge_update_forward_pre_hooks',
    '_edge_update_forward_hooks',
)
# PyG's names of simple aggregations -> what runs them
_AGGREGATIONS = {
    'add': SumAggregation,
    'sum': SumAggregation,
    'mean': MeanAggregation,
    'max': MaxAggregation,
    'min': MinAggregation,
}
_METHODS = ('message', 'aggregate', 'update', 'edge_update', 'message_and_aggregate')


class FusedConv(MessagePassing):
    """A mixin before one of PyG's classes.

    The subclass runs its program where `why_not` finds no reason against it, and PyG's forward otherwise. It names
    the arguments of PyG's `propagate` and `edge_updater` in ``propagate_type`` and ``edge_updater_type``: PyG would
    read them from sources that it caches by class name, and ours have the names of PyG's.
    """

    # whether the fused form exists only because a linear map on edges was taken apart
    rests_on_reorganisation: ClassVar[bool] = False
    # whether the fused form has the types and the precision of PyG's layer under autocast
    runs_under_autocast: ClassVar[bool] = False

    def why_not(self) -> str | None:
        """The reason, if any, for which this layer as it stands runs PyG's own path."""
        if self.explain:
            return 'an explainer reads its messages'
        for name in _HOOKS:
            if getattr(self, name):
                return f'a hook is registered ({name.strip("_").removesuffix("s")})'
        if self.decomposed_layers > 1:
            return 'decomposed_layers is greater than 1'
        if self.rests_on_reorganisation and not modes().reorganisation:
            return 'reorganisation is switched off'
        return self._what_is_overridden() or self._what_aggregates()

    def _what_is_overridden(self) -> str | None:
        plain = next(kind for kind in type(self).__mro__ if not issubclass(kind, FusedConv))
        for name in _METHODS:
            if name in self.__dict__ or getattr(type(self), name) is not getattr(plain, name):
                return f'{name} is overridden'
        return None

    def _what_aggregates(self) -> str | None:
        """The reason, if any, for which the layer aggregates otherwise than its `aggr` says."""
        expected = _AGGREGATIONS.get(self.aggr) if isinstance(self.aggr, str) else None
        if expected is None:
            return None
        if type(self.aggr_module) is not expected:
            return f'aggr_module is a {type(self.aggr_module).__name__}, not what aggr={self.aggr!r} stands for'
        return 'a hook is registered on aggr_module' if has_hooks(self.aggr_module) else None

    def why_not_with(
        self, adjacency: Any, x: tuple[Tensor, Tensor | None], parameter: Tensor | None = None, **others: Tensor | None
    ) -> str | None:
        """The reason, if any, for which a call with these arguments runs PyG's own path.

        Args:
            adjacency: What the user passed.
            x: Features of both sides; the second may be missing.
            parameter: One of the layer's, for its type and device.
            others: Further tensors by name, or None.

        Raises:
            ValueError: If something is no tensor, the tensors are on different devices, or the adjacency is none.
        """
        reason = self.why_not()
        if reason is not None:
            return reason
        if torch.jit.is_scripting() or torch.jit.is_tracing():
            return 'TorchScript'
        if torch._C._are_functorch_transforms_active():
            return 'a transform of torch.func'
        if forward_ad._current_level >= 0:
            return 'forward-mode differentiation'
        tensors = {'x[0]': x[0], 'x[1]': x[1], **others, 'a parameter of the layer': parameter}
        given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        check_tensors(given)
        check_adjacency(adjacency)
        check_devices(adjacency, given)
        # all are on one device
        missing = targets.why_not(x[0].device.type)
        if missing is not None:
            return missing
        casts = autocast.is_on(x[0].device)
        if casts and not self.runs_under_autocast:
            return 'autocast is on'
        for tensor in given.values():
            known = targets.DTYPES[tensor.device.type]
            if tensor.dtype not in known and not (casts and tensor.dtype in autocast.NARROW):
                return f'{tensor.dtype} has no fused kernels'
        dtypes = {tensor.dtype for tensor in given.values()}
        if len(dtypes) > 1 and not (casts and dtypes <= {torch.float32, *autocast.NARROW}):
            return 'the tensors are of several types'
        return None

    def __prepare_scriptable__(self) -> MessagePassing:
        # torch would put what this returns into the user's model
        raise NotImplementedError(
            f'TorchScript cannot compile a fused {type(self).__name__}: script pygfuse.unfuse(copy.deepcopy(model)), '
            'or export the model by torch.export'
        )

    # None before the first call; PyG's classes make layers of theirs ours without a call of `__init__`
    _note: Note | None = None

    @property
    def note(self) -> Note:
        """How the layer ran the last time; copies begin with an empty one."""
        if self._note is None:
            self._note = Note()
        return self._note

    @note.deleter
    def note(self) -> None:
        self.__dict__.pop('_note', None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != '_note'}

    def runs_fused(self, reason: str | None) -> bool:
        """Notes for `pygfuse.report` how a call runs; True if it runs fused.

        Args:
            reason: Why it runs PyG's own path, or None.
        """
        known = None if self._note is None else self._note.reason
        if reason != known:
            self.note.reason = reason
        if not torch.compiler.is_compiling() and self._note is not None and self._note.forward is not None:
            self._note.forward = None
        return reason is None

    def noted(self) -> contextlib.AbstractContextManager[None]:
        """A ``with`` block for the layer's own aggregation: passes of what runs in it are the layer's."""
        return contextlib.nullcontext() if torch.compiler.is_compiling() else changed(note=self.note)


def check_tensors(given: Mapping[str, Any]) -> None:
    """Raises a ValueError that names the first argument that is no tensor."""
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"Expected '{name}' to be a tensor (got {type(value).__name__})")


def check_adjacency(adjacency: Any) -> None:
    """Raises a ValueError if PyG would not take this for an adjacency."""
    if not isinstance(adjacency, Tensor) and not is_sparse_tensor(adjacency):
        raise ValueError(
            f"Expected 'edge_index' to be a tensor of shape [2, edges] or a sparse tensor (got "
            f'{type(adjacency).__name__})'
        )


def check_devices(adjacency: Any, tensors: Mapping[str, Tensor]) -> None:
    """Raises a ValueError that names the first tensor that is on another device than the features."""
    first = next(iter(tensors.values())).device
    places = {name: tensor.device for name, tensor in tensors.items()}
    places['edge_index'] = adjacency.device() if is_sparse_tensor(adjacency) else adjacency.device
    for name, device in places.items():
        if device != first:
            raise ValueError(f"Expected '{name}' to be on the device of 'x', {first} (got {device})")


def edges_of(
    adjacency: Any, num_sources: int, num_targets: int, flow: str, loops: int | None = None
) -> tuple[Edges, Graph | None]:
    """The edges as an operator takes them, and the graph itself except while torch compiles.

    Args:
        adjacency: Any adjacency that PyG takes.
        num_sources: Number of source nodes.
        num_targets: Number of target nodes.
        flow: PyG's flow.
        loops: None, or how many nodes get exactly one self-loop.

    Raises:
        ValueError: If the adjacency is not one, or names nodes that are not there.
    """
    # torch.export hands over tensors of classes of its own
    if torch.compiler.is_compiling() and is_edge_index(adjacency) and not isinstance(adjacency, EdgeIndex):
        return Edges(adjacency, num_sources, num_targets, flow, loops), None
    graph = Graph.of(adjacency, num_sources=num_sources, num_targets=num_targets, flow=flow)
    edges = Edges(graph.token, num_sources, num_targets, flow, loops)
    return edges, graph if loops is None else graph.with_self_loops(loops)


def user_rows(edges: Edges) -> tuple[Tensor, Tensor]:
    """Rows 0 and 1 of the ``edge_index`` that the user passed."""
    pair = edges.token
    if pair.dim() != 2:  # the token of a graph
        pair = dataclasses.replace(edges, loops=None).graph().coo()
    return pair[0], pair[1]


def is_edge_index(adjacency: Any) -> bool:
    """Whether the adjacency is a plain ``edge_index`` or an ``EdgeIndex``: a tensor of two rows."""
    return isinstance(adjacency, Tensor) and not is_torch_sparse_tensor(adjacency)


def is_sparse_tensor(adjacency: Any) -> bool:
    """Whether the adjacency is a ``torch_sparse.SparseTensor``."""
    return isinstance(adjacency, SparseTensor)


def edge_values(adjacency: Any) -> Tensor | None:
    """The values of a sparse adjacency where PyG takes them for edge features: one row an edge, else None."""
    values = values_of(adjacency)
    return values if values is not None and values.dim() > 1 else None


def why_not_reversed(
    flow: str, pair: tuple[Tensor, Tensor | None], size: tuple[int | None, int | None] | None = None
) -> str | None:
    """The reason, if any, for which a reversed flow runs PyG's own path: it confuses two sets of different sizes."""
    if flow == FLOWS[0]:
        return None
    rows = {pair[0].shape[0], *(size or ())} | ({pair[1].shape[0]} if pair[1] is not None else set())
    return None if len(rows - {None}) == 1 else 'flow target_to_source between different sets of nodes'


def check_features(conv: Any, pair: tuple[Tensor, Tensor | None], shared: bool) -> None:
    """Raises a ValueError that names `x` if the features have another shape or width than the layer expects."""
    expected = conv.in_channels
    for i, features in enumerate(pair[:1] if shared else pair):
        if features is None:
            continue
        name = 'x' if shared else f'x[{i}]'
        width = expected if isinstance(expected, int) else expected[0 if shared else i]
        if features.dim() != 2:
            raise ValueError(
                f"Expected '{name}' to be two-dimensional, [nodes, features] (got shape {list(features.shape)})"
            )
        if width != -1 and features.shape[1] != width:
            raise ValueError(
                f"Expected '{name}' to have {width} features, as in_channels says (got shape {list(features.shape)})"
            )


def check_rows(
    rows: Sequence[int | None], size: tuple[int | None, int | None] | None, adjacency: Any
) -> tuple[int, int]:
    """The numbers of nodes that rows 0 and 1 of an ``edge_index`` name.

    Args:
        rows: Numbers of rows of ``x[0]`` and ``x[1]``; None where there are no features.
        size: The user's `size`.
        adjacency: The adjacency; a sparse one has sizes of its own and PyG ignores `size`.

    Raises:
        ValueError: If `size` contradicts the features.
    """
    given = (None, None)
    if not is_edge_index(adjacency):
        given = (adjacency.size(1), adjacency.size(0))
    elif isinstance(adjacency, EdgeIndex):
        given = (adjacency.sparse_size(0), adjacency.sparse_size(1))
    elif size is not None:
        given = (size[0], size[1])
    for i, (have, want) in enumerate(zip(rows, given, strict=True)):
        if have is not None and want is not None and have != want:
            what = 'size' if is_edge_index(adjacency) and not isinstance(adjacency, EdgeIndex) else 'edge_index'
            raise ValueError(f"Expected 'x[{i}]' to have {want} rows, as '{what}' says (got {have})")
    first = rows[0] if rows[0] is not None else given[0]
    second = rows[1] if rows[1] is not None else given[1]
    return first, first if second is None else second


# PyG's names of simple aggregations -> those of `pygfuse.ops.aggregate`
REDUCTIONS = {'add': 'sum', 'sum': 'sum', 'mean': 'mean', 'max': 'max', 'min': 'min'}


def why_not_reduce(aggr: Any, known: Sequence[str] = ('sum', 'mean', 'max', 'min')) -> str | None:
    """The reason, if any, for which an aggregation has no fused form."""
    if isinstance(aggr, str) and REDUCTIONS.get(aggr) in known:
        return None
    return f'aggr={aggr!r} has no fused form here'


def why_not_repeats(conv: Any, adjacency: Any) -> str | None:
    """The reason, if any, for which repeated edges count otherwise in PyG: its product of matrices adds them up first.

    A sum does not tell the difference.

    Args:
        conv: The layer.
        adjacency: What the user passed.
    """
    is_told_apart = why_not_reduce(conv.aggr, ('mean', 'max', 'min')) is None
    if not is_told_apart or not isinstance(adjacency, Tensor) or adjacency.layout != torch.sparse_coo:
        return None
    return None if adjacency.is_coalesced() else f'aggr={conv.aggr!r} over a sparse COO tensor that is not coalesced'


def why_not_ties(conv: Any, adjacency: Any, *tensors: Tensor) -> str | None:
    """The reason, if any, for which a maximum or minimum over a sparse adjacency has other gradients in PyG.

    Layers that PyG runs as a product of matrices give the gradient of a tie to one edge; elsewhere its edges share it.

    Args:
        conv: The layer.
        adjacency: What the user passed.
        tensors: What decides whether the features that are reduced require a gradient.
    """
    if conv.aggr not in ('max', 'min') or not conv.fuse or is_edge_index(adjacency):
        return None
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return f'aggr={conv.aggr!r} over a sparse adjacency gives the gradient of a tie to one edge'
    return None


def why_not_map(conv: torch.nn.Module, *names: str) -> str | None:
    """The reason, if any, for which a linear map inside the layer cannot be taken apart: it is more than that."""
    for name in names:
        module = getattr(conv, name, None)
        reason = None if module is None else why_not_linear(module, name)
        if reason is not None:
            return reason
    return None


def checked_edge_attr(
    adjacency: Any, edge_attr: Tensor | None, edge_dim: int | None, edges: Edges, graph: Graph | None
) -> Tensor | None:
    """Edge features as ``[edges, D]``: the argument, else the values of a sparse adjacency, else None.

    Raises:
        ValueError: If there is not one row for each edge, or rows have another width than `edge_dim` (if given).
    """
    edge_attr = edge_values(adjacency) if edge_attr is None else edge_attr
    if edge_attr is None:
        return None
    edge_attr = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
    num_edges = edges.token.shape[1] if graph is None else graph.num_user_edges
    width = edge_attr.shape[-1] if edge_dim is None else edge_dim
    if edge_attr.dim() != 2 or tuple(edge_attr.shape) != (num_edges, width):
        raise ValueError(
            f"Expected 'edge_attr' of shape [{num_edges}, {width}], a row for each edge (got {list(edge_attr.shape)})"
        )
    return edge_attr


def checked_edge_weight(edge_weight: Tensor | None, edges: Edges, graph: Graph | None) -> Tensor | None:
    """Edge weights as ``[edges, 1]``, or None.

    Raises:
        ValueError: If there is not one for each edge.
    """
    if edge_weight is None:
        return None
    num_edges = edges.token.shape[1] if graph is None else graph.num_user_edges
    if edge_weight.numel() != num_edges or edge_weight.shape[:1] != (num_edges,):
        raise ValueError(
            f"Expected 'edge_weight' to hold one number for each of {num_edges} edges (got shape "
            f'{list(edge_weight.shape)})'
        )
    return edge_weight.view(-1, 1)


def as_features(weight: Tensor, like: Tensor) -> Tensor:
    """Edge weights in the type of features; under autocast in their own, as layers there mix types."""
    return weight if autocast.is_on(like.device) and weight.is_floating_point() else weight.to(like.dtype)


def nodes_of(
    conv: Any, pair: tuple[Tensor, Tensor | None], adjacency: Any, size: Any = None, loops: bool = False
) -> tuple[Edges, Graph | None]:
    """The edges of a call: between the nodes of ``x[0]`` and those of ``x[1]``, `size` or the adjacency.

    Args:
        conv: The layer; its ``flow`` counts.
        pair: Features of both sides; the second may be missing.
        adjacency: What the user passed.
        size: PyG's `size`.
        loops: Whether each node that is on both sides gets exactly one self-loop.
    """
    note_hag(conv, adjacency)
    rows = [pair[0].shape[0], None if pair[1] is None else pair[1].shape[0]]
    first, second = check_rows(rows, size, adjacency)
    given = size is not None and is_edge_index(adjacency)
    return edges_of(
        adjacency, first, second, conv.flow, (min(size) if given else min(first, second)) if loops else None
    )


def why_not_rows(x: Tensor) -> str | None:
    """The reason, if any, for which features cannot be rows of nodes."""
    return None if x.dim() == 2 else f'features have {x.dim()} dimensions, not two'
