"""Whether anybody watches the calls of a module, which must then be called as it is."""

from __future__ import annotations

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
