"""States in which a layer may be when it is called."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.fsdp import fully_shard
from torch.nn import Linear, Module
from torch.nn.utils import prune
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import MeanAggregation

import pygfuse
from tests.support.states import (
    REPLACED,
    STATES,
    WEIGHTS,
    MessagePassingMixin,
    Mixin,
    maps,
    own_class,
    parametrized,
    places,
    through_a_file,
)

Change = Callable[[Module, Callable[[Module], Any]], Module | None]


@dataclasses.dataclass(frozen=True)
class State:
    """What is done to a layer.

    Attributes:
        change: Takes the layer and a function that calls a layer with a case's arguments; may give another module.
        narrow: Whether it is done in float32, before the layer gets the type of the case: random numbers and
            iterations then are the same in all types.
        swapped: Whether the fused layer is PyG's, swapped, and not of its own constructor.
    """

    change: Change = lambda conv, call: None
    narrow: bool = False
    swapped: bool = False


class Noisy(Module):
    """Other values in each evaluation, the same in all types."""

    def forward(self, x):
        return x * (0.5 + torch.rand(x.shape, dtype=torch.float64)).to(x.dtype)


class Wrapped(Module):
    """A layer in a module that has no methods of PyG's."""

    def __init__(self, conv: Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, *arguments, **named):
        return self.conv(*arguments, **named)


def _masked(conv: Module, call: Callable) -> None:
    edge_index = call.edge_index()
    mask = torch.rand(edge_index.shape[1], generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    dtype = next((parameter.dtype for parameter in conv.parameters()), torch.float32)
    set_masks(conv, mask.to(dtype), edge_index, apply_sigmoid=False)


def _explained_before(conv: Module, call: Callable) -> None:
    _masked(conv, call)
    call(conv)
    clear_masks(conv)


def _explained_copy(conv: Module, call: Callable) -> Module:
    _masked(copy.deepcopy(conv), call)
    return copy.deepcopy(conv)


def _there_and_back(conv: Module, call: Callable) -> Module:
    return pygfuse.fuse(copy.deepcopy(pygfuse.unfuse(conv))) if hasattr(conv, 'note') else copy.deepcopy(conv)


def _every_weight(kind: str) -> Change:
    def change(conv: Module, call: Callable) -> None:
        for _, module, name in list(places(conv)):
            parameter = getattr(module, name)
            if parameter.dim() == 2 and module is not conv:
                WEIGHTS[kind](module, name)

    return change


def _own_parameters_pruned(conv: Module, call: Callable) -> None:
    for name, parameter in list(conv.named_parameters(recurse=False)):
        if parameter.dim() > 0:
            prune.random_unstructured(conv, name, 0.4)


def _every_map(kind: str) -> Change:
    def change(conv: Module, call: Callable) -> None:
        for name in maps(conv):
            setattr(conv, name, REPLACED[kind](getattr(conv, name)))

    return change


def _one_map(kind: str) -> Change:
    def change(conv: Module, call: Callable) -> None:
        for name in maps(conv)[:1]:
            setattr(conv, name, REPLACED[kind](getattr(conv, name)))

    return change


def _message_hooked(conv: Module, call: Callable) -> None:
    conv.register_message_forward_hook(lambda module, given, out: 2 * out)


def _propagate_hooked(conv: Module, call: Callable) -> None:
    conv.register_propagate_forward_pre_hook(lambda module, given: given)


def _mean_instead(conv: Module, call: Callable) -> None:
    conv.aggr, conv.aggr_module = 'mean', MeanAggregation()


def _without_bias(conv: Module, call: Callable) -> None:
    if isinstance(getattr(conv, 'bias', None), torch.Tensor):
        conv.bias = None


def _other_slope(conv: Module, call: Callable) -> None:
    for name, value in (('negative_slope', 0.7), ('eps', 0.7), ('improved', True)):
        if isinstance(getattr(conv, name, None), (float, bool)):
            setattr(conv, name, value)


def _tied(conv: Module, call: Callable) -> None:
    """Two maps of one shape share their weight."""
    linear = [module for module in conv.modules() if isinstance(module, Linear)]
    for one, other in itertools.pairwise(linear):
        if one.weight.shape == other.weight.shape:
            other.weight = one.weight


def _stepped(conv: Module, call: Callable) -> None:
    """After a step of an optimizer."""
    parameters = [parameter for parameter in conv.parameters() if parameter.requires_grad]
    if not parameters:
        return
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    out = call(conv)
    sum((parameter * 0.1).sum() for parameter in parameters).backward()
    optimizer.step()
    optimizer.zero_grad()
    del out


def _sharded(conv: Module, call: Callable) -> Module:
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)
    mesh = torch.distributed.device_mesh.init_device_mesh('cpu', (1,))
    return fully_shard(conv, mesh=mesh)


def _plain(change: Callable[[Module], Module | None]) -> State:
    return State(lambda conv, call: change(conv), narrow=True)


CHANGED: dict[str, State] = {
    'new': State(),
    'swapped': State(swapped=True),
    **{name: _plain(change) for name, change in STATES.items() if name not in ('a copy of a copy', 'frozen')},
    'frozen': State(lambda conv, call: conv.requires_grad_(False)),
    'swapped, copied': State(lambda conv, call: copy.deepcopy(conv), swapped=True),
    'swapped, from a file': State(lambda conv, call: through_a_file(conv), swapped=True),
    'there and back': State(_there_and_back, swapped=True),
    'wrapped': State(lambda conv, call: Wrapped(conv)),
    'a subclass': State(lambda conv, call: own_class(conv), narrow=True),
    'a mixin before': State(lambda conv, call: own_class(conv, Mixin), narrow=True),
    "a mixin of PyG's class before": State(lambda conv, call: own_class(conv, MessagePassingMixin), narrow=True),
    'explained': State(_masked),
    'explained before': State(_explained_before),
    'explained before, copied': State(_explained_copy),
    'random parameters': State(lambda conv, call: parametrized(conv, lambda name: Noisy())),
    **{kind: State(_every_weight(kind), narrow=True) for kind in WEIGHTS},
    'own parameters pruned': State(_own_parameters_pruned, narrow=True),
    **{f'all maps: {kind}': State(_every_map(kind), narrow=True) for kind in ('with a bias', 'without a bias')},
    **{
        # numbers that are no parameters keep their type
        f'one map: {kind}': State(_one_map(kind), narrow=kind != 'methods for parameters')
        for kind in REPLACED
        if 'bias' not in kind
    },
    'message hooked': State(_message_hooked),
    'propagate hooked': State(_propagate_hooked),
    'mean instead': State(_mean_instead),
    'without bias': State(_without_bias),
    'attributes changed': State(_other_slope),
    'tied maps': State(_tied),
    'stepped': State(_stepped),
    'sharded': State(_sharded),
    'not to be fused': State(lambda conv, call: setattr(conv, 'fuse', False)),
}
