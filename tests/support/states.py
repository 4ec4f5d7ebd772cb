"""What is done to layers after construction: copied, loaded, hooked, parametrized, averaged, their maps replaced."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import Module
from torch.nn.utils import parametrizations, parametrize, prune
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import Aggregation


def through_a_file(conv: Module) -> Module:
    file = io.BytesIO()
    torch.save(conv, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def assigned(conv: Module) -> None:
    state = {name: 1.5 * value.detach() for name, value in conv.state_dict().items()}
    conv.load_state_dict(state, assign=True)


def averaged(conv: Module) -> Module:
    model = torch.optim.swa_utils.AveragedModel(conv, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    model.update_parameters(conv)
    model.update_parameters(conv.apply(scaled))
    return model


def scaled(module: Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters(recurse=False):
            parameter.mul_(1.25)


def hooked(conv: Module) -> None:
    conv.register_forward_pre_hook(lambda module, given, named: (given, named), with_kwargs=True)
    conv.register_forward_hook(lambda module, given, out: 2 * out)
    conv.register_state_dict_pre_hook(lambda *given: None)


def hooked_backward(conv: Module) -> None:
    conv.register_full_backward_hook(lambda module, of_inputs, of_outputs: None)
    conv.register_full_backward_pre_hook(lambda module, of_outputs: tuple(3 * grad for grad in of_outputs))


def partly_frozen(conv: Module) -> None:
    for parameter in list(conv.parameters())[::2]:
        parameter.requires_grad_(False)


STATES: dict[str, Callable[[Module], Module | None]] = {
    'a copy': copy.deepcopy,
    'a copy of a copy': lambda conv: copy.deepcopy(copy.deepcopy(conv)),
    'from a file': through_a_file,
    'assigned parameters': assigned,
    'an average': averaged,
    'applied': lambda conv: conv.apply(scaled),
    'shared memory': lambda conv: conv.share_memory(),
    'to half and back': lambda conv: conv.half().double(),
    'hooks': hooked,
    'hooks of the backward pass': hooked_backward,
    'frozen': lambda conv: conv.requires_grad_(False),
    'partly frozen': partly_frozen,
    'inference': lambda conv: conv.eval(),
}


class Mixin:
    """Something before the fused class in the order of resolution, without methods of PyG's."""


class MessagePassingMixin(MessagePassing):
    """The same, of PyG's base class."""


def own_class(conv: Any, *before: type) -> Module:
    """A layer of a subclass, with the parameters of another."""
    kind = type(conv)
    own = type(f'Own{kind.__name__}', (*before, kind), {'__module__': f'{__name__}.{len(before)}'})
    twin = copy.copy(conv)
    twin.__class__ = own
    return copy.deepcopy(twin)


class Noisy(Module):
    """Other values in each evaluation."""

    def forward(self, x):
        return x * (0.5 + torch.rand_like(x))


def places(conv: Module) -> Iterator[tuple[str, Module, str]]:
    """Every parameter with the module that has it."""
    for prefix, module in list(conv.named_modules()):
        for name, _ in list(module.named_parameters(recurse=False)):
            yield f'{prefix}.{name}', module, name


def parametrized(conv: Module, make: Callable[[str], Module]) -> None:
    for full, module, name in list(places(conv)):
        parametrize.register_parametrization(module, name, make(full))


WEIGHTS = {
    'weight_norm': parametrizations.weight_norm,
    'spectral_norm': parametrizations.spectral_norm,
    'orthogonal': parametrizations.orthogonal,
    'the old weight_norm': torch.nn.utils.weight_norm,
    'the old spectral_norm': torch.nn.utils.spectral_norm,
    'pruning': lambda module, name: prune.random_unstructured(module, name, 0.4),
}


class Adapter(Module):
    """A low-rank map beside another map, which has no weight of its own."""

    def __init__(self, base: Module) -> None:
        super().__init__()
        self.base, weight = base, base.weight
        self.down = torch.nn.Parameter(torch.randn(2, weight.shape[1], dtype=weight.dtype))
        self.up = torch.nn.Parameter(torch.randn(weight.shape[0], 2, dtype=weight.dtype))

    def forward(self, x):
        return self.base(x) + x @ self.down.t() @ self.up.t()


class Quantized(torch.nn.Linear):
    """A linear map of another class, whose weight is stored otherwise."""

    def __init__(self, base: Module) -> None:
        super().__init__(base.weight.shape[1], base.weight.shape[0], bias=base.bias is not None)
        self.scale = base.weight.detach().abs().max() / 127
        values = (base.weight.detach() / self.scale).round().to(torch.int8)
        self.weight = torch.nn.Parameter(values, requires_grad=False)
        self.bias = base.bias

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight.to(x.dtype) * self.scale, self.bias)


class DynamicallyQuantized(Module):
    """A linear map whose `weight` and `bias` are methods, as those of torch.ao."""

    def __init__(self, base: Module) -> None:
        super().__init__()
        self.values = [base.weight.detach(), None if base.bias is None else base.bias.detach()]

    def weight(self):
        return self.values[0]

    def bias(self):
        return self.values[1]

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight(), self.bias())


class OwnTensor(torch.Tensor):
    """A class of tensors."""


def of_another_tensor(base: Module) -> Module:
    base.weight = torch.nn.Parameter(base.weight.detach().as_subclass(OwnTensor))
    return base


def plain_linear(base: Module, bias: bool) -> Module:
    torch.manual_seed(3)
    return torch.nn.Linear(base.weight.shape[1], base.weight.shape[0], bias, dtype=base.weight.dtype)


REPLACED: dict[str, Callable[[Module], Module]] = {
    'an adapter': Adapter,
    'a quantized map': Quantized,
    'methods for parameters': DynamicallyQuantized,
    'a class of tensors': of_another_tensor,
    'a sequence': lambda base: torch.nn.Sequential(base, torch.nn.Tanh()),
    'with a bias': lambda base: plain_linear(base, True),
    'without a bias': lambda base: plain_linear(base, False),
}


def maps(conv: Module) -> list[str]:
    """The names of the linear maps of a layer."""
    return [
        name
        for name, module in conv.named_children()
        if isinstance(getattr(module, 'weight', None), torch.Tensor) and not isinstance(module, Aggregation)
    ]
