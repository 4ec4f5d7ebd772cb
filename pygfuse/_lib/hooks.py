"""Whether anybody watches or changes the calls of a module, which must then be called as it is."""

from __future__ import annotations

import torch
import torch_geometric.nn
from torch.nn import Module
from torch.nn.modules import module as every_module


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
    if type(module).forward not in (torch.nn.Linear.forward, torch_geometric.nn.Linear.forward):
        return f'{name} is no Linear but a {type(module).__name__}'
    if 'forward' in module.__dict__:
        return f'forward of {name} is overridden'
    return f'a hook is registered on {name}' if has_hooks(module) else None
