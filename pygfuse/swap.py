"""Swapping the convolutions of an existing model."""

from __future__ import annotations

import inspect
import logging
import types
from collections.abc import Callable, Iterable

import torch
import torch_geometric.nn
from torch_geometric.nn.models.dimenet import InteractionBlock, InteractionPPBlock

from pygfuse import conv
from pygfuse._lib.announcement import logger
from pygfuse._lib.selection import Chosen, Selection
from pygfuse._lib.written_by_pyg import has_template_of_all
from pygfuse.compiler.capture.propagates import propagates
from pygfuse.conv._compiled import compiled_class
from pygfuse.conv._compiled.planned import Planned
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.layer import FusedConv
from pygfuse.conv._layer.noted import Noted
from pygfuse.conv._layer.scripting import turn_back
from pygfuse.conv._modules import compiled_module
from pygfuse.conv._modules.edges_by_name import takes_edges
from pygfuse.conv._smearing import GaussianSmearing

# PyG's class -> the fused class of the same name
FUSED_CLASSES: dict[type, type[FusedConv | Planned]] = {
    # those of a model of PyG's are not among its layers
    getattr(torch_geometric.nn, name, None) or getattr(conv, name).plain: getattr(conv, name)
    for name in conv.__all__
    if issubclass(getattr(conv, name), torch_geometric.nn.MessagePassing) and name != FusedConv.__name__
}
# a layer that is no message passing, and has models of a user's own
_OF_MODELS = {torch_geometric.nn.MetaLayer: conv.MetaLayer}
# modules of PyG's that are none, and gather and reduce along edges themselves
_GATHERING = InteractionBlock, InteractionPPBlock, torch_geometric.nn.InnerProductDecoder
_LAYERS = torch_geometric.nn.MessagePassing, torch_geometric.nn.MetaLayer, *_GATHERING
# what makes features of edges for layers
_OF_EDGES = {GaussianSmearing.plain: GaussianSmearing}
_PLAIN_CLASSES = {fused: plain for plain, fused in (FUSED_CLASSES | _OF_MODELS | _OF_EDGES).items()}


def fuse(
    model: torch.nn.Module,
    compile: bool = True,
    include: Chosen | None = None,
    exclude: Chosen | None = None,
    strict: bool = False,
) -> torch.nn.Module:
    """Swaps the convolutions of a model for their fused forms, in place.

    Parameters, buffers, hooks and references that an optimizer holds stay as they are: only the layers' class changes.
    Layers of classes without a written form, a user's own among them, are compiled (`compile`). A
    ``GaussianSmearing`` of PyG's becomes one pass. How many layers there are, and how many of them are fused, goes to
    the logger ``pygfuse`` at level INFO, or WARNING if none is.

    Args:
        model: Any module, for example a whole model or one layer.
        compile: Whether to compile layers for which no program is written, or to leave them alone.
        include: The layers to fuse: classes (those derived from them included), names as `report` and
            ``model.named_modules()`` have them, or patterns of names (``'encoder.*'``); default: all. Classes of
            modules that gather along an ``edge_index`` themselves are compiled as by `compile`; PyG's are in any case.
        exclude: Layers of these that are left alone.
        strict: Whether each chosen layer must have a fused form. Of a compiled layer that is known only once it is
            called (`pygfuse.warm`); `report` tells then.

    Returns:
        The same model.

    Raises:
        TypeError: If `model` is no module, or `include` or `exclude` holds something else than classes and names.
        ValueError: If `include` or `exclude` names what is not among the layers; under `strict`, if a chosen layer has
            no fused form: the message says why, and the model stays as it is.

    Example:
        >>> import torch_geometric.nn as pyg
        >>> model = fuse(pyg.GATConv(16, 8))
        >>> model
        GATConv(16, 8, heads=1)
        >>> model = torch.nn.ModuleDict({'first': pyg.GCNConv(16, 8), 'second': pyg.GCNConv(8, 8)})
        >>> _ = fuse(model, exclude='second')
        >>> [type(conv).__module__.split('.')[0] for conv in model.values()]
        ['pygfuse', 'torch_geometric']
    """
    _check_module(model)
    layers = layers_of(model) | (_of_own_classes(model, include) if compile else {})
    of_edges = {name: one for name, one in model.named_modules() if type(one) in _OF_EDGES}
    chosen = _chosen(layers | of_edges, include, exclude)
    before = {name: type(layer) for name, layer in chosen.items()}
    for layer in chosen.values():
        _become(layer, lambda layer: _OF_EDGES.get(type(layer)) or _fused_class(layer, compile))
    if strict:
        reasons = {name: why_not(layer) for name, layer in chosen.items() if name in layers}
        missing = [f'{name} ({type(chosen[name]).__name__}): {reason}' for name, reason in reasons.items() if reason]
        if missing:
            for name, layer in chosen.items():
                _become(layer, lambda _, name=name: before[name])
            raise ValueError(f"Expected every layer to have a fused form under 'strict' (got {'; '.join(missing)})")
    _log(model, layers)
    return model


def layers_of(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """The layers and the compiled modules of a model by name; the model itself is ``'(model)'``."""
    return {name or '(model)': one for name, one in model.named_modules() if isinstance(one, (*_LAYERS, Planned))}


def _of_own_classes(model: torch.nn.Module, include: Chosen | None) -> dict[str, torch.nn.Module]:
    """The modules of classes that somebody names, which are no layers of PyG's and may gather themselves."""
    chosen = include if isinstance(include, Iterable) and not isinstance(include, str) else [include]
    kinds = tuple([kind for kind in chosen if isinstance(kind, type)])
    found = {name or '(model)': one for name, one in model.named_modules() if isinstance(one, kinds)}
    return {name: one for name, one in found.items() if not isinstance(one, _LAYERS) and _may_gather(one)}


def why_not(layer: torch.nn.Module) -> str | None:
    """The reason, if any, for which a layer as it stands does not run fused."""
    if isinstance(layer, (FusedConv, Planned, conv.MetaLayer)):
        return layer.why_not()
    return 'call pygfuse.fuse(model)' if type(layer) in (*FUSED_CLASSES, *_OF_MODELS) else 'call pygfuse.compile(conv)'


def _chosen(
    layers: dict[str, torch.nn.Module], include: Chosen | None, exclude: Chosen | None
) -> dict[str, torch.nn.Module]:
    """The layers that are included and not excluded."""
    known = layers
    for argument, chosen, keeps in (('include', include, True), ('exclude', exclude, False)):
        if chosen is not None:
            selection = Selection(argument, chosen)
            selection.check(known)
            layers = {name: layer for name, layer in layers.items() if selection.has(name, layer) is keeps}
    return layers


def _log(model: torch.nn.Module, layers: dict[str, torch.nn.Module]) -> None:
    """Tells how many layers of a model are fused, and what might be."""
    fused = sum(why_not(layer) is None for layer in layers.values())
    if not layers:
        kinds = ', '.join(_that_take_edges(model))
        hint = f'; pygfuse.fuse(model, include=...) compiles modules that take edges ({kinds})' if kinds else ''
        logger.warning('nothing was fused: the model has no message passing layers%s', hint)
    else:
        level = logging.INFO if fused else logging.WARNING
        logger.log(level, '%d of %d convolutions fused; see pygfuse.report(model)', fused, len(layers))


def _that_take_edges(model: torch.nn.Module) -> list[str]:
    """The names of the innermost classes whose ``forward`` takes edges."""
    found = [one for one in model.modules() if _may_gather(one) and takes_edges(type(one).forward)]
    outer = {id(one) for one in found for part in one.modules() if part is not one and any(part is f for f in found)}
    return list(dict.fromkeys(type(one).__name__ for one in found if id(one) not in outer))


def compile(conv: torch.nn.Module) -> torch.nn.Module:
    """Compiles a convolution, in place: its messages run as walks over the edges, forward and backward.

    What its ``message`` and ``aggregate`` compute is captured when the layer is first called. Its ``forward`` and
    ``update`` stay as they are. What has no fused form runs as before, and `report` says why.

    Any other module that takes an ``edge_index``, gathers by its rows (``x[edge_index[0]]``) and reduces to one or both
    (``index_add``, ``scatter_add``, ``scatter_reduce``, PyG's or ``torch_scatter``'s functions) is captured whole. One
    of its arguments is the edges: ``[2, E]``, two indices of E numbers in a tuple, or two arguments (``row`` and
    ``col``, ``src`` and ``dst``, or any two of as many numbers). Further arguments may be edges between the same nodes,
    if their names say so (``neg_edge_index``). In place of edges a sparse matrix may be given, and a module may hold
    either. Arguments may be within tuples, dicts, `torch_geometric.data.Data` and other objects. Features may have
    dimensions before that of nodes, ``[batch, nodes, channels]``.

    Args:
        conv: A layer of any class of `torch_geometric.nn.MessagePassing`, a `torch_geometric.nn.MetaLayer`, or a module
            with a ``forward`` of its own. One with a written form gets that.

    Returns:
        The same layer.

    Raises:
        TypeError: If it is none of these.

    Example:
        >>> import torch_geometric.nn as pyg
        >>> class Distance(pyg.MessagePassing):
        ...     def forward(self, x, edge_index):
        ...         return self.propagate(edge_index, x=x)
        ...
        ...     def message(self, x_i, x_j):
        ...         return (x_i - x_j).abs()
        >>> conv = compile(Distance())
        >>> conv(torch.tensor([[1.0], [5.0], [2.0]]), torch.tensor([[0, 1, 2], [1, 2, 1]])).tolist()
        [[0.0], [7.0], [3.0]]
        >>> class Sum(torch.nn.Module):
        ...     def forward(self, x, edge_index):
        ...         row, col = edge_index
        ...         return torch.zeros_like(x).index_add_(0, col, x[row])
        >>> compile(Sum())(torch.tensor([[1.0], [5.0], [2.0]]), torch.tensor([[0, 1, 2], [1, 2, 1]])).tolist()
        [[0.0], [3.0], [5.0]]
    """
    if not isinstance(conv, (*_LAYERS, Planned)) and not _may_gather(conv):
        raise TypeError(
            "Expected 'conv' to be a MessagePassing layer, a MetaLayer or a module with a forward of its own "
            f'(got {type(conv).__name__})'
        )
    if not isinstance(conv, (FusedConv, Planned)):
        _become(conv, lambda layer: _fused_class(layer, True))
    return conv


def unfuse(model: torch.nn.Module) -> torch.nn.Module:
    """Undoes `fuse` and `compile`: every fused layer becomes one of its own class again, in place.

    Args:
        model: Any module.

    Returns:
        The same model.

    Raises:
        TypeError: If `model` is no module.

    Example:
        >>> import torch_geometric.nn as pyg
        >>> model = pyg.Sequential('x, edge_index', [(pyg.GCNConv(8, 8), 'x, edge_index -> x')])
        >>> unfuse(fuse(model))[0].__class__ is pyg.GCNConv
        True
    """
    _check_module(model)
    for module in model.modules():
        _become(module, _plain_class)
    return model


def _fused_class(module: torch.nn.Module, compile: bool) -> type:
    """The class that a module becomes; its own where there is none."""
    kind = type(module)
    fused = FUSED_CLASSES.get(kind)
    has_choice = compile and fused is not None and issubclass(fused, FusedConv)
    if fused is not None and not (has_choice and fallback.why_not_reduce(module, fused.spec.reductions)):
        return fused
    if compile and kind in _OF_MODELS:
        return _OF_MODELS[kind]
    if not compile or isinstance(module, (FusedConv, Planned, torch_geometric.nn.MetaLayer)):
        return kind
    is_layer = isinstance(module, torch_geometric.nn.MessagePassing) and propagates(kind)
    return compiled_class(kind) if is_layer else compiled_module(kind)


def _may_gather(module: torch.nn.Module) -> bool:
    """Whether a module has a ``forward`` that somebody wrote, in which it may gather along edges."""
    if not isinstance(module, torch.nn.Module):
        return False
    forward = type(module).forward
    return isinstance(forward, types.FunctionType) and not (forward.__module__ or '').startswith('torch.')


def _plain_class(module: torch.nn.Module) -> type:
    kind = type(module)
    return _PLAIN_CLASSES.get(kind) or (kind.plain if isinstance(module, Planned) else kind)


def _check_module(model: torch.nn.Module) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"Expected 'model' to be a torch.nn.Module (got {type(model).__name__})")


def _become(module: torch.nn.Module, class_of: Callable[[torch.nn.Module], type]) -> None:
    """Gives a module the class that a function finds for it."""
    if isinstance(module, FusedConv):
        turn_back(module)
    kind = class_of(module)
    if kind is not type(module):
        if isinstance(module, (Planned, conv.MetaLayer)):
            module.forget_plans()
        if isinstance(module, Noted):
            del module.note
        takes_same = not isinstance(module, torch_geometric.nn.MessagePassing) or _takes_same(type(module), kind)
        module.__class__ = kind
        if not takes_same:
            _inspect_again(module)
        if has_template_of_all(kind):
            module._set_jittable_templates()


def _takes_same(kind: type, other: type) -> bool:
    """Whether the messages of two classes take the same arguments, which PyG looks at when it makes a layer."""
    first, second = ([*inspect.signature(each.message).parameters] for each in (kind, other))
    return first == second


def _inspect_again(conv: torch_geometric.nn.MessagePassing) -> None:
    """Has a layer know what the methods of its class take."""
    other = object.__new__(type(conv))
    torch_geometric.nn.MessagePassing.__init__(other, aggr=None)
    conv.__dict__.update({name: value for name, value in vars(other).items() if name in _OF_METHODS})


_OF_METHODS = 'inspector', '_user_args', '_fused_user_args', '_edge_user_args'
