"""Whether anybody watches or changes the calls of a module, which must then be called as it is."""

from __future__ import annotations

import torch
import torch_geometric.nn
from torch import Tensor
from torch.nn import Module, Parameter, UninitializedParameter
from torch.nn.modules import module as every_module

# classes whose forward is a product with a weight, and a bias
LINEAR = (torch.nn.Linear, torch_geometric.nn.Linear)
_PLAIN = (Tensor, Parameter, UninitializedParameter)
_FORWARDS = tuple(kind.forward for kind in LINEAR)


def has_hooks(module: Module) -> bool:
    """Whether a call of the module runs a hook: one of its own, or one that is registered for all modules.

    Example:
        >>> import torch
        >>> linear = torch.nn.Linear(2, 2)
        >>> has_hooks(linear)
        False
        >>> handle = torch.nn.modules.module.register_module_forward_hook(lambda *arguments: None)
        >>> has_hooks(linear)
        True
        >>> handle.remove()
    """
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or every_module._global_forward_hooks
        or every_module._global_forward_pre_hooks
        or every_module._global_backward_hooks
        or every_module._global_backward_pre_hooks
    )


def some_parameter(module: Module, name: str = 'weight') -> Tensor | None:
    """A parameter as the module stores it, for its type and device: a parametrization is not evaluated.

    Args:
        module: Any module.
        name: The parameter that is meant; where the module stores no numbers of this name, its first ones stand for it.

    Example:
        >>> linear = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(2, 3))
        >>> some_parameter(linear) is linear.parametrizations.weight.original
        False
        >>> some_parameter(linear) is linear.bias
        True
        >>> some_parameter(torch.nn.Identity()) is None
        True
    """
    found = module._parameters.get(name)
    if found is not None and found.is_floating_point():
        return found
    return next((parameter for parameter in module.parameters() if parameter.is_floating_point()), None)


def why_not_linear(module: Module, name: str) -> str | None:
    """The reason, if any, for which a call of a module is not a linear map by its weight and bias.

    Args:
        module: Any module.
        name: Its name, for the reason.

    Example:
        >>> why_not_linear(torch.nn.Linear(2, 2), 'lin') is None
        True
        >>> why_not_linear(torch.nn.Dropout(), 'lin')
        'lin is no Linear but a Dropout'
    """
    # a class of one's own may add a low-rank map, say; a parametrised one only computes its weight
    if type(module).forward not in _FORWARDS:
        return f'{name} is no Linear but a {type(module).__name__}'
    reason = why_not_as_it_is(module, name)
    if reason is None and not torch.compiler.is_compiling():
        weight = module._parameters.get('weight')
        if not is_plain(weight):
            return f'the weight of {name} is a {type(weight).__name__}'
    return reason


def why_not_as_it_is(module: Module, name: str) -> str | None:
    """The reason, if any, for which a call of a module is more than the forward of its class.

    Args:
        module: Any module.
        name: Its name, for the reason.
    """
    if 'forward' in module.__dict__:
        return f'forward of {name} is overridden'
    return f'a hook is registered on {name}' if has_hooks(module) else None


def weight_and_bias(module: Module) -> tuple[Tensor, Tensor | None] | None:
    """The weight ``[out, in]`` and the bias ``[out]`` or None of a module that is a linear map and nothing else, as it
    stores them; None of others.

    Args:
        module: Any module.

    Example:
        >>> weight, bias = weight_and_bias(torch.nn.Linear(2, 3))
        >>> weight.shape, bias.shape
        (torch.Size([3, 2]), torch.Size([3]))
        >>> weight_and_bias(torch.nn.Dropout()) is None
        True
    """
    parameters = module._parameters
    if type(module) not in LINEAR or 'forward' in module.__dict__ or has_hooks(module):
        return None
    # what is no parameter may be any attribute
    weight = parameters.get('weight') if 'bias' in parameters else None
    return (weight, parameters['bias']) if type(weight) in _PLAIN else None


def is_plain(weight: Tensor | None) -> bool:
    """Whether a parameter is an ordinary tensor, not one of a class that computes in ways of its own."""
    return weight is None or type(weight) in _PLAIN


def width_of(linear: Module | None) -> int | None:
    """How many features a linear map takes, as it says itself (reading its weight may compute it); None without one,
    -1 if it does not say."""
    return None if linear is None else getattr(linear, 'in_channels', getattr(linear, 'in_features', -1))
