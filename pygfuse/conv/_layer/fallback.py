"""When a call runs PyG's own path, and why: reasons against the fused form, each a few words for the report."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation

from pygfuse._lib import backends
from pygfuse._lib.hooks import why_not_as_it_is, why_not_linear
from pygfuse.conv._layer.checks import Inputs, NodePair, is_edge_index, is_sparse_tensor
from pygfuse.conv._layer.spec import REDUCTIONS, EdgeWeight, Spec
from pygfuse.conv._layer.untraced import WEIGHTS_NOT_TRACED
from pygfuse.graph.adjacency import FLOWS
from pygfuse.mapping.few_edges import are_few_of_types, are_of_a_product, counted_bytes
from pygfuse.ops.within_torch import autocast

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
_FLOAT_BYTES = torch.float32.itemsize
_hooks_of = operator.itemgetter(*_HOOKS)
# PyG's names of simple aggregations -> what runs them
_AGGREGATIONS = {
    'add': SumAggregation,
    'sum': SumAggregation,
    'mean': MeanAggregation,
    'max': MaxAggregation,
    'min': MinAggregation,
}


def why_not_observed(conv: MessagePassing) -> str | None:
    """The reason, if any, for which somebody reads or changes messages of a layer of any class."""
    if conv.explain:
        return 'an explainer reads its messages'
    for name in _HOOKS:
        if getattr(conv, name):
            return f'a hook is registered ({name.strip("_").removesuffix("s")})'
    if conv.decomposed_layers > 1:
        return 'decomposed_layers is greater than 1'
    return None


def is_observed(conv: MessagePassing) -> bool:
    """Whether `why_not_observed` has a reason, in a tenth of its time; torch.compile does not see through it."""
    own = conv.__dict__
    return bool(own['_explain']) or own['_decomposed_layers'] > 1 or any(_hooks_of(own))


def why_not_watched(conv: MessagePassing) -> str | None:
    """The same of a layer that declares itself, or that its nodes are in another dimension than it says."""
    reason = why_not_observed(conv)
    if reason is not None:
        return reason
    if conv.node_dim not in conv.spec.node_dims:
        return f'node_dim={conv.node_dim} is not the dimension of nodes'
    return None


def why_not_reduce(conv: MessagePassing, known: tuple[str, ...]) -> str | None:
    """The reason, if any, for which a layer aggregates otherwise than the names in `known` say."""
    if not isinstance(conv.aggr, str) or REDUCTIONS.get(conv.aggr) not in known:
        return f'aggr={conv.aggr!r} has no fused form here'
    if type(conv.aggr_module) is not _AGGREGATIONS[conv.aggr]:
        return f'aggr_module is a {type(conv.aggr_module).__name__}, not what aggr={conv.aggr!r} stands for'
    return why_not_as_it_is(conv.aggr_module, 'aggr_module')


def why_not_maps(conv: MessagePassing, names: tuple[str, ...]) -> str | None:
    """The reason, if any, for which linear maps inside a layer cannot be taken apart: they are more than that."""
    modules = conv._modules
    for name in names:
        # PyG's classes have None for a map that is not there, which is no module
        module = modules[name] if name in modules else getattr(conv, name, None)
        reason = None if module is None else why_not_linear(module, name)
        if reason is not None:
            return reason
    return None


def adjacency_for_pyg(adjacency: Any) -> Any:
    """What PyG's own path gets for an adjacency: an ``edge_index`` of int32 as int64.

    torch's ``gather`` on a CPU is wrong with an expanded index of int32 (torch 2.13), and so are PyG's gradients.
    """
    is_plain = isinstance(adjacency, Tensor) and adjacency.layout is torch.strided
    return adjacency.long() if is_plain and adjacency.dtype is torch.int32 else adjacency


def why_not_here() -> str | None:
    """The reason, if any, for which no layer runs fused where this is called."""
    if torch.jit.is_scripting() or torch.jit.is_tracing():
        return 'TorchScript'
    if torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export():
        return 'an export to ONNX'
    if torch._C._are_functorch_transforms_active():
        return 'a transform of torch.func'
    return 'forward-mode differentiation' if forward_ad._current_level >= 0 else None


def why_not_device(adjacency: Any) -> str | None:
    """The reason, if any, for which edges where they are have no kernels."""
    device = getattr(adjacency, 'device', None)
    # of a `SparseTensor` it is a method; what has none of torch's is no adjacency, as PyG says
    device = device() if callable(device) else device
    return backends.why_not(device.type) if isinstance(device, torch.device) else None


def why_not_tensors(given: dict[str, Tensor], with_autocast: bool) -> str | None:
    """The reason, if any, for which tensors of these types, all on one device, have no fused form.

    Args:
        given: Tensors by name.
        with_autocast: Whether the fused form has the types of PyG's layer under autocast.
    """
    own = None if torch.compiler.is_compiling() else next(filter(_has_operators, map(type, given.values())), None)
    if own is not None:
        # fake, distributed and others, which hold no memory of their own
        return f'operators of a {own.__name__} are its own'
    device = next(iter(given.values())).device
    missing = backends.why_not(device.type)
    if missing is not None:
        return missing
    casts = autocast.is_on(device)
    if casts and not with_autocast:
        return 'autocast is on'
    known, dtypes = backends.DTYPES[device.type], {tensor.dtype for tensor in given.values()}
    for dtype in dtypes:
        if dtype not in known and not (casts and dtype in autocast.NARROW):
            return f'{dtype} has no fused kernels'
    if len(dtypes) > 1 and not (casts and dtypes <= {torch.float32, *autocast.NARROW}):
        return 'the tensors are of several types'
    return None


def _has_operators(kind: type) -> bool:
    """Whether a class of tensors has operators of its own, and is none of the package's."""
    operators = kind.__torch_dispatch__
    return operators is not Tensor.__torch_dispatch__ and not operators.__module__.startswith('pygfuse.')


def why_not_features(spec: Spec, x: NodePair) -> str | None:
    """The reason, if any, for which features of these shapes run PyG's path."""
    if spec.static and x[0].dim() != 2:
        return f'features have {x[0].dim()} dimensions, not two'
    return 'no features of the targets' if spec.needs_targets and x[1] is None else None


def why_not_reversed(flow: str, inputs: Inputs) -> str | None:
    """The reason, if any, for which a reversed flow runs PyG's own path: it confuses two sets of different sizes."""
    if flow == FLOWS[0]:
        return None
    rows = {None, inputs.x[0].shape[0], *(inputs.size or ())}
    if inputs.x[1] is not None:
        rows.add(inputs.x[1].shape[0])
    return None if len(rows) == 2 else 'flow target_to_source between different sets of nodes'


def why_not_edges(conv: MessagePassing, spec: Spec, inputs: Inputs, width: int | None) -> str | None:
    """The reason, if any, for which what a call brings for each edge runs PyG's path.

    Args:
        conv: The layer.
        spec: Its declaration.
        inputs: The call.
        width: How many features of edges the layer takes.
    """
    if inputs.with_weights and torch.compiler.is_compiling():
        return WEIGHTS_NOT_TRACED
    if isinstance(spec.edge, EdgeWeight):
        wide = inputs.edge is not None and inputs.edge.dim() > 1 and inputs.edge[:1].numel() > 1
        return 'edge weights of more than one number an edge' if spec.edge.wide and wide else None
    if spec.edge is None:
        return None
    if inputs.edge is not None and not width and not spec.edge.ignored:
        return f'edge_attr without {spec.edge.width}'
    if width and spec.loops and conv.add_self_loops and not is_edge_index(inputs.adjacency):
        return 'edge features of self-loops need an edge_index'
    return None


def are_so_few(adjacencies: Iterable[Any], width: int) -> bool:
    """Whether PyG's path takes less along so few edges, for a layer that takes nodes by their types: its fused form is
    many operators on nodes.

    Args:
        adjacencies: What the user passed.
        width: Numbers in a row of an edge.
    """
    num_edges = _listed_edges(adjacencies)
    return num_edges is not None and are_few_of_types(num_edges, counted_bytes(width, _FLOAT_BYTES))


def are_fewer(adjacency: Any, count: int) -> bool:
    """Whether there are fewer edges than so many, from which on a layer's fused form takes less than PyG's path."""
    num_edges = _listed_edges([adjacency])
    return num_edges is not None and 0 < num_edges < count


def are_few_compiled(adjacency: Any, count: int) -> bool:
    """Whether there are fewer edges than so many, from which on kernels take less than what torch makes of PyG's
    operators. Nobody asks but while torch compiles.
    """
    # an export is of kernels for any number of edges
    if torch.compiler.is_exporting() or not is_edge_index(adjacency):
        return False
    # measured on a CPU; how many edges a forward of PyG's has chosen is not known
    return adjacency.device.type == 'cpu' and guard_or_false(adjacency.shape[1] < count)


def _listed_edges(adjacencies: Iterable[Any]) -> int | None:
    """How many edges there are; None where nothing was measured: elsewhere than on a CPU, and while torch compiles."""
    num_edges = 0
    for adjacency in adjacencies:
        if torch.compiler.is_compiling() or not is_edge_index(adjacency):
            return None
        if backends.few_edges_of(adjacency.device) is None:
            return None
        num_edges += adjacency.shape[-1]
    return num_edges


def is_small_matrix(adjacency: Any) -> bool:
    """Whether PyG's product with a sparse matrix takes less than what walks of its edges need first."""
    if torch.compiler.is_compiling() or (type(adjacency) is Tensor and adjacency.layout is torch.strided):
        return False
    if is_sparse_tensor(adjacency):
        col = adjacency.storage.col()
        return are_of_a_product(col.numel()) and backends.few_edges_of(col.device) is not None
    is_matrix = isinstance(adjacency, Tensor) and not is_edge_index(adjacency)
    return is_matrix and are_of_a_product(adjacency._nnz()) and backends.few_edges_of(adjacency.device) is not None


def why_not_repeats(conv: MessagePassing, adjacency: Any) -> str | None:
    """The reason, if any, for which repeated edges count otherwise in PyG: its product of matrices adds them up first.

    A sum does not tell the difference.
    """
    is_told_apart = REDUCTIONS.get(conv.aggr) in ('mean', 'max', 'min')
    if not is_told_apart or not isinstance(adjacency, Tensor) or adjacency.layout != torch.sparse_coo:
        return None
    return None if adjacency.is_coalesced() else f'aggr={conv.aggr!r} over a sparse COO tensor that is not coalesced'


def why_not_ties(conv: MessagePassing, adjacency: Any, x: Tensor, before: torch.nn.Module | None = None) -> str | None:
    """The reason, if any, for which a maximum or minimum over a sparse adjacency has other gradients in PyG.

    Layers that PyG runs as a product of matrices give the gradient of a tie to one edge; elsewhere its edges share it.

    Args:
        conv: The layer.
        adjacency: What the user passed.
        x: The features.
        before: What maps them before they are reduced, if anything does.
    """
    if conv.aggr not in ('max', 'min') or not conv.fuse or is_edge_index(adjacency):
        return None
    tensors = (x,) if before is None else (x, *before.parameters())
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return f'aggr={conv.aggr!r} over a sparse adjacency gives the gradient of a tie to one edge'
    return None


def why_not_segments(conv: MessagePassing, adjacency: Any) -> str | None:
    """The reason, if any, for which a maximum or minimum over edges sorted by target has other gradients in PyG.

    There layers multiply that know a product with an EdgeIndex, and layers that are made under
    ``torch.use_deterministic_algorithms`` reduce segments: of both, one edge gets the gradient of a tie.
    """
    if conv.aggr_module is None or not torch.is_grad_enabled() or not _has_segments(adjacency, conv.flow):
        return None
    if (
        conv.aggr in ('max', 'min')
        and conv.fuse
        and conv.SUPPORTS_FUSED_EDGE_INDEX
        and isinstance(adjacency, EdgeIndex)
    ):
        return f'aggr={conv.aggr!r} over a sorted EdgeIndex gives the gradient of a tie to one edge'
    for module in conv.aggr_module.modules():
        if isinstance(module, (MaxAggregation, MinAggregation)) and module._deterministic:
            return 'a deterministic maximum or minimum over sorted edges gives the gradient of a tie to one edge'
    return None


def _has_segments(adjacency: Any, flow: str) -> bool:
    """Whether PyG knows where the edges of each target begin and end."""
    if isinstance(adjacency, EdgeIndex):
        return adjacency.is_sorted_by_col if flow == FLOWS[0] else adjacency.is_sorted_by_row
    return is_sparse_tensor(adjacency) or (isinstance(adjacency, Tensor) and adjacency.layout is torch.sparse_csr)
