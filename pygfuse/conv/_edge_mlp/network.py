"""The network inside an EdgeConv, taken apart into stages that can be fused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.models.schnet import ShiftedSoftplus

from pygfuse._lib.hooks import LINEAR, has_hooks, is_plain
from pygfuse.ops import Edges
from pygfuse.ops.edge_mlp import Begin, EdgeStage, Map, Rectifier, normalised
from pygfuse.ops.edge_mlp.drops import DropsOfEdges
from pygfuse.program.activation import SELU, Activation


@dataclasses.dataclass(frozen=True, eq=False)
class Linear:
    """A linear map.

    Attributes:
        module: torch's or PyG's.
        name: Where it is, for errors.
    """

    module: torch.nn.Module
    name: str


@dataclasses.dataclass(frozen=True, eq=False)
class Norm:
    """A batch normalisation over edges.

    Attributes:
        module: torch's.
        name: Where it is, for errors.
        allow_single: Whether a single edge is normalised by the running statistics, as an option of PyG's says.
    """

    module: torch.nn.BatchNorm1d
    name: str
    allow_single: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Slope:
    """A PReLU.

    Attributes:
        weight: One slope, or one for each channel.
        name: Where it is, for errors.
    """

    weight: Tensor
    name: str


@dataclasses.dataclass(frozen=True)
class Dropout:
    """A dropout of values of edges.

    Attributes:
        probability: Of dropping one, more than 0.
    """

    probability: float


Stage = Linear | Norm | Slope | Dropout | Activation


class UnsupportedNetwork(Exception):
    """A network cannot be taken apart; the text says why."""


_NOTHING = (torch.nn.Identity,)
_ACTIVATIONS = {
    torch.nn.ReLU: lambda module: Activation('relu'),
    torch.nn.LeakyReLU: lambda module: Activation('leaky_relu', (float(module.negative_slope),)),
    torch.nn.ELU: lambda module: Activation('elu', (float(module.alpha), 1.0)),
    torch.nn.SELU: lambda module: Activation('elu', SELU),
    torch.nn.SiLU: lambda module: Activation('silu'),
    torch.nn.GELU: lambda module: Activation('gelu' if module.approximate == 'none' else 'gelu_tanh'),
    torch.nn.Tanh: lambda module: Activation('tanh'),
    torch.nn.Sigmoid: lambda module: Activation('sigmoid'),
    ShiftedSoftplus: lambda module: Activation('shifted_softplus', (float(module.shift),)),
    torch.nn.Softplus: lambda module: Activation('softplus', (float(module.beta), float(module.threshold))),
}
_FUNCTIONS = {
    torch.relu: Activation('relu'),
    F.relu: Activation('relu'),
    F.elu: Activation('elu', (1.0, 1.0)),
    F.selu: Activation('elu', SELU),
    F.leaky_relu: Activation('leaky_relu', (0.01,)),
    F.silu: Activation('silu'),
    F.gelu: Activation('gelu'),
    torch.tanh: Activation('tanh'),
    torch.sigmoid: Activation('sigmoid'),
    F.softplus: Activation('softplus', (1.0, 20.0)),
}


def stages_of(nn: object) -> list[Stage]:
    """The stages of a network, in order.

    Args:
        nn: A linear map; a `torch.nn.Sequential` of linear maps, batch normalisations, activations and dropouts; or
            PyG's `MLP`.

    Raises:
        UnsupportedNetwork: If it is something else; the text says what.

    Example:
        >>> network = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
        >>> [type(stage).__name__ for stage in stages_of(network)]
        ['Linear', 'Norm', 'Activation']
    """
    stages = list(_taken_apart(nn, 'nn'))
    if not stages or not isinstance(stages[0], Linear):
        raise UnsupportedNetwork('nn does not begin with a Linear')
    return stages


def activation_of(act: object, name: str) -> Activation | Slope | None:
    """An activation by itself; None for one that does nothing.

    Args:
        act: A module, a function of torch or None.
        name: What it is called, for errors.

    Raises:
        UnsupportedNetwork: If it is something else; the text says what.

    Example:
        >>> activation_of(torch.nn.ELU(0.5), 'act')
        Activation(name='elu', numbers=(0.5, 1.0))
    """
    stages = list(_activation(act, name))
    if len(stages) > 1 or not all(isinstance(stage, (Activation, Slope)) for stage in stages):
        raise UnsupportedNetwork(f'{name} is a {type(act).__name__}')
    return stages[0] if stages else None


def _taken_apart(module: object, name: str) -> Iterator[Stage]:
    if not isinstance(module, torch.nn.Module):
        raise UnsupportedNetwork(f'{name} is no module')
    kind = type(module)
    # a lazy layer hooks itself until its first call
    if kind in LINEAR and isinstance(module.weight, torch.nn.UninitializedParameter):
        raise UnsupportedNetwork(f'{name} has no parameters before its first call')
    _check_untouched(module, name)
    if kind is torch.nn.Sequential:
        # not named_children(), which has a module that comes twice once
        for key, child in module._modules.items():
            yield from _taken_apart(child, f'{name}.{key}')
    elif kind is torch_geometric.nn.MLP:
        yield from _of_mlp(module, name)
    elif kind in LINEAR:
        yield Linear(module, name)
    elif kind is torch.nn.BatchNorm1d:
        yield Norm(module, name)
    elif kind is torch_geometric.nn.BatchNorm:
        _check_untouched(module.module, f'{name}.module')
        yield Norm(module.module, name, module.allow_single_element)
    elif kind is torch.nn.PReLU:
        yield Slope(module.weight, name)
    elif kind in _ACTIVATIONS:
        yield _ACTIVATIONS[kind](module)
    elif kind is torch.nn.Dropout:
        yield from _dropout(module.p, module)
    elif kind not in _NOTHING:
        raise UnsupportedNetwork(f'{name} is a {kind.__name__}')


def _of_mlp(mlp: torch_geometric.nn.MLP, name: str) -> Iterator[Stage]:
    if mlp.supports_norm_batch:
        raise UnsupportedNetwork(f'{name} normalises by batch')
    # a last map has no norm; no `zip`: that of the compiler of torch 2.9 is strict
    for i, norm in enumerate(mlp.norms):
        yield from _taken_apart(mlp.lins[i], f'{name}.lins.{i}')
        if mlp.act_first:
            yield from _activation(mlp.act, f'{name}.act')
        yield from _taken_apart(norm, f'{name}.norms.{i}')
        if not mlp.act_first:
            yield from _activation(mlp.act, f'{name}.act')
        yield from _dropout(mlp.dropout[i], mlp)
    if mlp.plain_last:
        yield from _taken_apart(mlp.lins[-1], f'{name}.lins.{len(mlp.lins) - 1}')
        yield from _dropout(mlp.dropout[-1], mlp)


def _activation(act: object, name: str) -> Iterator[Stage]:
    if act is None:
        return
    if isinstance(act, torch.nn.Module):
        yield from _taken_apart(act, name)
        return
    try:
        yield _FUNCTIONS[act]
    except (KeyError, TypeError):
        raise UnsupportedNetwork(f'{name} is {getattr(act, "__name__", act)!r}') from None


def is_dropping(module: torch.nn.Module) -> bool:
    """Whether a module drops values by itself, where it stands in a network.

    Example:
        >>> is_dropping(torch.nn.Dropout(0.5)), is_dropping(torch.nn.Dropout(0.5).eval())
        (True, False)
    """
    if not module.training:
        return False
    if type(module) is torch_geometric.nn.MLP:
        return max(module.dropout) > 0.0
    return type(module) is torch.nn.Dropout and module.p > 0.0


def _dropout(probability: float, module: torch.nn.Module) -> Iterator[Dropout]:
    if module.training and probability > 0.0:
        yield Dropout(float(probability))


def _check_untouched(module: torch.nn.Module, name: str) -> None:
    if has_hooks(module):
        raise UnsupportedNetwork(f'a hook is registered on {name}')
    if 'forward' in module.__dict__:
        raise UnsupportedNetwork(f'forward of {name} is overridden')


def on_chunks(begin: Begin, stages: list[Stage], edges: Edges) -> list[EdgeStage]:
    """Stages behind the first as they run on chunks of edges."""
    found: list[EdgeStage] = [begin]
    width = begin.width
    drops = DropsOfEdges(edges.num_edges, begin.first)
    for stage in stages:
        if isinstance(stage, Dropout):
            found.append(drops.stage(width, stage.probability))
        elif isinstance(stage, Norm):
            found = normalised(found, edges, stage.module, stage.allow_single)
        elif isinstance(stage, Linear):
            found.append(Map(stage.module.weight, stage.module.bias))
            width = stage.module.weight.shape[0]
        else:
            found.append(Rectifier(stage.weight.expand(width)) if isinstance(stage, Slope) else stage)
    return found


def check_widths(stages: list[Stage]) -> None:
    """Raises a ValueError that names the first stage that takes another number of features than comes into it.

    Args:
        stages: As of `stages_of`; how many features the first takes is not looked at.

    Example:
        >>> check_widths(stages_of(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.PReLU(4))))
        Traceback (most recent call last):
        ValueError: Expected 'nn.1' (PReLU) to take 8 features, as many as come into it (got 4)
    """
    width = stages[0].module.weight.shape[0]
    for stage in stages[1:]:
        if isinstance(stage, (Activation, Dropout)):
            continue
        kind = 'PReLU' if isinstance(stage, Slope) else type(stage.module).__name__
        for taken in _widths_of(stage):
            if taken != width:
                raise ValueError(
                    f"Expected '{stage.name}' ({kind}) to take {width} features, as many as come into it (got {taken})"
                )
        if isinstance(stage, Linear):
            width = stage.module.weight.shape[0]


def _widths_of(stage: Linear | Norm | Slope) -> list[int]:
    """How many features each tensor of a stage is for, but those that are for any number."""
    if isinstance(stage, Linear):
        return [stage.module.weight.shape[1]]
    if isinstance(stage, Slope):
        return [len(stage.weight)] if len(stage.weight) > 1 else []
    module = stage.module
    tensors = (module.weight, module.bias, module.running_mean, module.running_var)
    return [len(tensor) for tensor in tensors if tensor is not None]


def tensors_of_stages(stages: list[Stage]) -> dict[str, Tensor]:
    """The parameters and running statistics of the stages, by a name that tells them apart."""
    found: dict[str, Tensor] = {}
    for i, stage in enumerate(stages):
        if isinstance(stage, Slope):
            found[f'slope {i} of nn'] = stage.weight
        elif not isinstance(stage, (Activation, Dropout)):
            for name, tensor in (*stage.module.named_parameters(), *stage.module.named_buffers()):
                if name != 'num_batches_tracked':
                    found[f'{name} {i} of nn'] = tensor
    return found


def kind_of_stages(stages: list[Stage]) -> tuple[tuple, tuple] | None:
    """What checks of the stages depend on, by identity and by value; None where that is not so little.

    Example:
        >>> linear = torch.nn.Linear(6, 4, bias=False)
        >>> kind_of_stages(stages_of(linear)) == ((linear,), (torch.float32, torch.device('cpu'), (4, 6)))
        True
    """
    modules: list[torch.nn.Module] = []
    values: list[object] = []
    for stage in stages:
        if isinstance(stage, (Activation, Dropout)):
            values.append(stage)
            continue
        if isinstance(stage, Linear):
            modules.append(stage.module)
            tensors = stage.module._parameters.values()
        elif isinstance(stage, Slope):
            tensors = (stage.weight,)
        else:
            return None
        for tensor in tensors:
            if tensor is None:
                continue
            if not is_plain(tensor):
                return None
            values += tensor.dtype, tensor.device, tensor.shape
    return tuple(modules), tuple(values)
