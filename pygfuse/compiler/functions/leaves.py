"""PyG's operators over the edges of each target, recorded as one operator each."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
import torch_geometric.utils
from torch.nn import BatchNorm1d, Module
from torch_geometric.nn.aggr import Aggregation

from pygfuse.compiler.functions.filled import filled
from pygfuse.compiler.ir.structure import rebuilt
from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, TARGET, Node, value
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.beside_edges import as_rows, as_value
from pygfuse.compiler.symbols.edge_tensors import MadeOfEdges
from pygfuse.compiler.symbols.handler_names import ANY_OF_NODES, SOFTMAX_OF_GROUPS, TO_GROUPS
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, NUM_OTHERS, NUM_SOURCES, NUM_TARGETS, OF_NODES, Rows
from pygfuse.compiler.symbols.places import AFTER_LAST_TARGET, BY_OTHERS, LastTarget, OfEdges, Place
from pygfuse.compiler.symbols.sharing import write
from pygfuse.compiler.symbols.symbol import HANDLERS, Rearranged, Recorded, Symbol, are_of_nodes, made

_REDUCTIONS = {'sum': 'sum', 'add': 'sum', 'mean': 'mean', 'max': 'max', 'amax': 'max', 'min': 'min', 'amin': 'min'}
# arguments of a checkpoint that are none of its function
_OF_CHECKPOINTS = ('use_reentrant', 'preserve_rng_state', 'context_fn', 'determinism_check', 'debug', 'early_stop')
# numbers of an edge of which PyTorch's operators take a softmax of sources: those of a message take them longer
_MOST_SCORES = 16
# normalisations that may take several rows together, of which values keep their shape
NORMS = (
    torch.nn.BatchNorm1d,
    torch_geometric.nn.norm.BatchNorm,
    torch_geometric.nn.norm.GraphNorm,
    torch_geometric.nn.norm.GraphSizeNorm,
    torch_geometric.nn.norm.InstanceNorm,
    torch_geometric.nn.norm.LayerNorm,
    torch_geometric.nn.norm.MeanSubtractionNorm,
    torch_geometric.nn.norm.PairNorm,
)
# what symbols of no parameter and no buffer are instances of
_TENSOR = torch.empty(0)


def _checked(x: Any, index: Any, dim: int, ptr: Any = None) -> None:
    """Raises `Refused` unless values of edges are grouped by their targets."""
    if not isinstance(x, Symbol) or x.rows != NUM_EDGES:
        raise Refused('a reduction of something that is no value of edges')
    by_target = isinstance(index, Place) and index.is_target and not index.inner
    if not by_target or ptr is not None:
        raise Refused(BY_OTHERS)
    rank = len(x.node.shape) + 1
    # of stacked values the dimension of edges is the last but one
    if not -rank <= dim < rank or dim % rank != 0 or (x.is_stacked and dim != -2):
        raise Refused(f'node_dim={dim} is not the dimension of edges')


def _is_of_targets(size: Any) -> bool:
    return isinstance(size, Rows) and size.kind == NUM_TARGETS


def _is_unsaid(size: Any) -> bool:
    """Whether a result ends at the last target that has an edge."""
    return size is None or size is AFTER_LAST_TARGET


def _is_number(size: Any) -> bool:
    """Whether a size is a number, or a tensor of the layer that holds one."""
    if isinstance(size, Symbol):
        return size.rows is None and size.node.shape == () and size.node.op == 'input' and size.dtype is torch.int64
    return type(size) is int


def softmax(src: Any, index: Any = None, ptr: Any = None, num_nodes: Any = None, dim: int = 0) -> Any:
    """`torch_geometric.utils.softmax` of symbols."""
    src, num_nodes = as_value(src), as_rows(num_nodes)
    if isinstance(index, Symbol) and isinstance(src, Symbol) and index.rows == NUM_EDGES and ptr is None:
        return HANDLERS[SOFTMAX_OF_GROUPS](src, index, dim, num_nodes)
    if isinstance(index, Place) and not index.is_target and not index.inner:
        return _softmax_of_sources(src, index, num_nodes, dim, ptr)
    _checked(src, index, dim, ptr)
    if not (_is_of_targets(num_nodes) or _is_unsaid(num_nodes)):
        raise Refused('a softmax over another number of targets than there are')
    return made('softmax', src, **index.along)


def _softmax_of_sources(src: Any, index: Place, num_nodes: Any, dim: int, ptr: Any) -> Symbol:
    """A softmax over the edges that leave a source."""
    _checked(src, Place(True), dim, ptr)
    is_of_sources = isinstance(num_nodes, Rows) and num_nodes.kind == NUM_SOURCES
    if not (is_of_sources or num_nodes is None):
        raise Refused(BY_OTHERS)
    if src.node.width > _MOST_SCORES:
        raise Refused('a softmax of many numbers of an edge over the edges of sources')
    each = src if src.node.residency == EDGE else Symbol(value('on_edges', src.node), src.rows)
    return made('softmax_of_sources', each, **index.along)


def scatter(src: Any, index: Any, dim: int = 0, dim_size: Any = None, reduce: str = 'sum') -> Any:
    """`torch_geometric.utils.scatter` of symbols."""
    src, dim_size = as_value(src), as_rows(dim_size)
    if isinstance(index, Symbol) and isinstance(src, Symbol) and index.rows == NUM_EDGES:
        return HANDLERS[TO_GROUPS](src, index, dim, dim_size, reduce)
    to_sources = isinstance(index, Place) and not index.is_target and index.is_reduced_to and not index.inner
    _checked(src, Place(True) if to_sources else index, dim)
    if reduce not in _REDUCTIONS:
        raise Refused(f'the reduction {reduce!r} has no fused form')
    if src.node.residency == SHARED or not src.dtype.is_floating_point:
        raise Refused('a reduction of something that is no floating value of edges')
    is_of_all, is_unsaid = isinstance(dim_size, Rows) and dim_size.kind == index.rows, _is_unsaid(dim_size)
    if not (is_of_all or is_unsaid or _is_number(dim_size)) or (src.is_stacked and is_unsaid):
        raise Refused('a reduction to another number of rows than there are targets')
    if to_sources and (not is_of_all or src.is_stacked):
        raise Refused('a reduction to sources that does not say how many there are')
    ends = {'ends_early': True} if is_unsaid else {}
    if src.constant is not None and math.isfinite(src.constant) and is_of_all and _REDUCTIONS[reduce] == 'sum':
        return _sum_of_constant(src, index)
    if to_sources:
        return _of_its_nodes(made('reduce_to_sources', src, reduce=_REDUCTIONS[reduce], **index.along).node, index)
    found = made('reduce', src, reduce=_REDUCTIONS[reduce], **ends, **index.along)
    if is_of_all or is_unsaid:
        return Symbol(found.node, NUM_TARGETS, found.is_stacked)
    size = dim_size.node if isinstance(dim_size, Symbol) else dim_size
    return Symbol(value('resized', found.node, size), NUM_OTHERS, found.is_stacked)


def _sum_of_constant(src: Symbol, index: Place) -> Symbol:
    """One number for each edge, added up: that times their count."""
    count = made('reshape', degree(index, Rows(index.rows), src.dtype), shape=(1,) * len(src.node.shape))
    zeros = filled((Rows(index.rows), *src.node.shape), 0.0, src.dtype)
    return made('add', zeros, made('mul', count, src.constant))


def _of_its_nodes(node: Node, index: Place) -> Symbol:
    """A value of the nodes that an end of the edges names; sources may be others than targets."""
    return Symbol(value('as_sources', node) if index.rows == NUM_SOURCES else node, index.rows)


def degree(index: Any, num_nodes: Any = None, dtype: torch.dtype | None = None) -> Any:
    """`torch_geometric.utils.degree` of symbols."""
    num_nodes = as_rows(num_nodes)
    is_place = isinstance(index, Place) and not index.inner and isinstance(num_nodes, Rows)
    if not is_place or num_nodes.kind not in (NUM_SOURCES, index.rows):
        raise Refused('degrees of something else than the ends of edges')
    dtype = torch.get_default_dtype() if dtype is None else dtype
    # those of sources are read as if they were of targets, which asks for one set of nodes
    is_usual = index.is_target and _is_of_targets(num_nodes)
    attributes = {} if is_usual else {'side': TARGET if index.is_target else SOURCE}
    return _of_its_nodes(Node('degree', (), {**attributes, **index.along}, TARGET, (), dtype), index)


def bincount(index: Place, weights: Any = None, minlength: Any = 0) -> Symbol:
    """`torch.bincount` of the ends of edges, with a count for each node."""
    if weights is not None:
        raise Refused('a weighed count of edges')
    return degree(index, minlength, torch.int64)


def reduce(self: Any, x: Any, index: Any = None, ptr: Any = None, dim_size: Any = None, dim: int = -2,
           reduce: str = 'sum') -> Any:  # fmt: skip
    """`Aggregation.reduce` of symbols."""
    return scatter(x, index, dim, dim_size, reduce)


def aggregation_call(self: Any, x: Any, index: Any = None, ptr: Any = None, dim_size: Any = None, dim: int = -2,
                     **kwargs: Any) -> Any:  # fmt: skip
    """``Aggregation.__call__`` of symbols."""
    return self.forward(x, index=index, ptr=None, dim_size=dim_size, dim=dim, **kwargs)


def batch_norm_call(module: BatchNorm1d, x: Any) -> Any:
    """``BatchNorm1d.__call__`` of symbols: the module is read, and its statistics move, when the plan runs."""
    x = as_value(x)
    if not isinstance(x, Symbol) or x.rows != NUM_EDGES or x.dim() != 2 or x.is_stacked:
        raise Refused('a batch normalisation of something that is no row of values for each edge')
    if x.shape[1] != module.num_features:
        raise Refused(f'a batch normalisation of {module.num_features} features where there are {x.shape[1]}')
    return made('batch_norm', x, module=module)


def norm_call(module: Module, x: Any, *given: Any) -> Any:
    """A call of a normalisation of nodes, which takes them together: the module runs as it is.

    Args:
        module: One of `NORMS`.
        x: Values of nodes.
        given: What it takes beside, the graph of each node perhaps.
    """
    rows = {one.rows if isinstance(one, Symbol) else None for one in (x, *given) if one is not None}
    if x is None or len(rows) > 1 or not rows <= {*OF_NODES} or x.dim() != 2 or x.is_stacked:
        raise Refused('a normalisation of something that is no row of values for each node')
    return made('norm_of_nodes', x, *given, module=module)


def sequential_call(watched: Any, module: Module, *args: Any, **kwargs: Any) -> Any:
    """``torch_geometric.nn.Sequential.__call__``, by the names of what each of its parts takes and returns.

    Raises:
        Refused: If PyG has written a forward for another one, which its class has since, and none for this one.
    """
    if 'forward' not in module.__dict__ and type(module).forward.__module__ != type(module).__module__:
        raise Refused('a Sequential whose forward is that of another one')
    values = {**dict(zip(module.signature.param_dict, args, strict=False)), **kwargs}
    for part in module._children:
        out = getattr(watched, part.name)(*[values[name] for name in part.param_names])
        values |= zip(part.return_names, (out,) if len(part.return_names) == 1 else out, strict=True)
    return out


def checkpoint(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """`torch.utils.checkpoint.checkpoint`: what is computed again for backward is for the plan to say."""
    return function(*args, **{name: value for name, value in kwargs.items() if name not in _OF_CHECKPOINTS})


def is_tensor(found: Any) -> bool:
    """`torch.is_tensor`, of which a symbol is one."""
    return is_instance(found, torch.Tensor)


def is_instance(found: Any, kinds: Any) -> bool:
    """``isinstance`` of what a symbol or the edges stand for."""
    kinds = rebuilt(kinds, lambda kind: next((one for one, made in CLASSES.items() if made is kind), kind))
    if isinstance(found, OfEdges):
        return issubclass(found.kind, kinds)
    if isinstance(found, Rearranged):
        return issubclass(torch.Tensor, kinds)
    if not isinstance(found, Symbol):
        return isinstance(found, kinds)
    source = found.node.attributes.get('source') if found.node.op == 'input' else None
    return isinstance(getattr(*source) if isinstance(source, tuple) else _TENSOR, kinds)


def type_of(found: Any, *others: Any) -> type:
    """``type`` of what stands for nothing else: of a tensor it may be another in the next call, and of a layer more."""
    if others or isinstance(found, Module):
        raise Refused('it reads type, which cannot be guarded')
    if isinstance(found, (Recorded, OfEdges)):
        raise Refused('it reads the type of a tensor')
    kind = found.__class__
    return getattr(kind, 'stands_for', kind)


def len_of(found: Any) -> int:
    """`len`, of a symbol the number of its rows."""
    # what it returned would be a number like any other
    return found.shape[0] if isinstance(found, (Recorded, OfEdges)) else len(found)


def int_of(*given: Any) -> Any:
    """``int``; numbers of rows, and that of the last target, stay what stands for them."""
    return given[0] if len(given) == 1 and isinstance(given[0], (LastTarget, Rows)) else int(*given)


def _or_real(leaf: Callable, real: Callable) -> Callable:
    """A function that takes symbols and tensors."""
    signature = inspect.signature(real)

    @functools.wraps(real)
    def either(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        if not any(isinstance(a, (Recorded, OfEdges)) for a in given):
            return real(*args, **kwargs)
        rearranged = next((a for a in given if isinstance(a, Rearranged)), None)
        if rearranged is not None:
            return rearranged.record_leaf(either, signature, args, kwargs)
        symbols = [a for a in given if isinstance(a, Symbol)]
        if len(symbols) == 2 and are_of_nodes(symbols) and not any(isinstance(a, OfEdges) for a in given):
            # nodes in groups, graphs of a batch for example
            bound = signature.bind(*args, **kwargs)
            _say_number_of_groups(bound)
            return HANDLERS[ANY_OF_NODES](real, bound.args, bound.kwargs)
        return leaf(*args, **kwargs)

    return either


def _say_number_of_groups(bound: inspect.BoundArguments) -> None:
    """Gives a function of groups of nodes their number, which it would read of their numbers itself."""
    index = bound.arguments.get('index')
    for name in ('dim_size', 'num_nodes'):
        is_unsaid = name in bound.signature.parameters and bound.arguments.get(name) is None
        if is_unsaid and isinstance(index, Symbol) and bound.arguments.get('out') is None:
            bound.arguments[name] = index.max().item() + 1


def _scattered(reduce: str | None = None) -> Callable:
    """The functions of `torch_scatter` of symbols, whose dimension is the last one by default."""

    def of_symbols(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: Any = None, **given: Any) -> Any:
        wanted = given.get('reduce', 'sum') if reduce is None else reduce
        if out is None and _REDUCTIONS.get(wanted) in ('max', 'min'):
            return _of_one(src, scatter(src, index, dim, dim_size, wanted))
        if out is None:
            return scatter(src, index, dim, dim_size, wanted)
        if _REDUCTIONS.get(wanted) != 'sum' or dim != 0 or not isinstance(out, Symbol) or out.rows not in OF_NODES:
            raise Refused('a reduction that writes into a tensor')
        found = scatter(src, index, dim, Rows(out.rows))
        write(out, found if out.constant == 0.0 else made('add', out, found))
        return out

    return of_symbols


def _scattered_extreme(reduce: str) -> Callable:
    """`torch_scatter.scatter_max` and `scatter_min` of symbols, which give numbers of edges, too."""

    def of_symbols(src: Any, index: Any, dim: int = -1, out: Any = None, dim_size: Any = None) -> tuple[Any, Any]:
        return _scattered(reduce)(src, index, dim, out, dim_size), OfEdges()

    return of_symbols


def _of_one(src: Any, found: Symbol) -> Symbol:
    """An extreme whose gradient goes to the first of several that tie, as that of `torch_scatter`."""
    if 'detach' in (src.node.op, found.node.op):
        return found
    return Symbol(_reduced_to_one(found.node), found.rows, found.is_stacked)


def _reduced_to_one(node: Node) -> Node:
    if node.op in ('resized', 'as_sources'):
        return value(node.op, _reduced_to_one(node.args[0]), *node.args[1:])
    return dataclasses.replace(node, attributes={**node.attributes, 'of_one': True})


def _scattered_softmax(src: Any, index: Any, dim: int = -1, dim_size: Any = None) -> Any:
    """`torch_scatter.scatter_softmax` of symbols."""
    return softmax(src, index, None, dim_size, dim)


def _of_torch_scatter() -> dict[Callable, Callable]:
    """Its functions that give what PyG's give, and extremes, whose gradient goes to another of the edges that tie."""
    try:
        import torch_scatter
    except (ImportError, OSError):
        return {}
    reductions = {'scatter': None, 'scatter_sum': 'sum', 'scatter_add': 'sum', 'scatter_mean': 'mean'}
    found = {getattr(torch_scatter, name): _scattered(reduce) for name, reduce in reductions.items()}
    extremes = {getattr(torch_scatter, f'scatter_{name}'): _scattered_extreme(name) for name in ('max', 'min')}
    return {**found, **extremes, torch_scatter.scatter_softmax: _scattered_softmax}


def _of_sizes(function: Callable) -> Callable:
    """A function of torch that takes sizes: one after the other it refuses what stands for a number of rows."""

    @functools.wraps(function)
    def sized(*sizes: Any, **given: Any) -> Any:
        sizes = (given.pop('size'),) if 'size' in given else sizes
        if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
            (sizes,) = sizes
        return function(tuple([int(size) if isinstance(size, MadeOfEdges) else size for size in sizes]), **given)

    return sized


# classes, and what makes what stands for an instance
CLASSES: dict[type, Callable] = {}
FUNCTIONS = {
    real: _or_real(leaf, real)
    for real, leaf in {
        torch_geometric.utils.softmax: softmax,
        torch_geometric.utils.scatter: scatter,
        torch_geometric.utils.degree: degree,
        **_of_torch_scatter(),
    }.items()
}
FUNCTIONS |= {torch.is_tensor: is_tensor, torch.utils.checkpoint.checkpoint: checkpoint}
FUNCTIONS |= {function: _of_sizes(function) for function in (torch.zeros, torch.ones)}
# methods that are replaced, by the function that a class has
METHODS = {Aggregation.reduce: reduce}
