"""Whether somebody traces, transforms or intercepts operators here, so that they have to be operators."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from pygfuse.ops.within_torch.batched import is_batched

# torch's own classes of tensors
PLAIN = {Tensor, Parameter}
# asked several times in each call
_num_modes, _get_trace = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state
_are_transforms_active = torch._C._are_functorch_transforms_active


def is_watched(tensors: Collection[Tensor]) -> bool:
    """Whether operators have to be operators here: somebody traces, transforms or intercepts them."""
    if is_intercepted():
        return True
    return not are_plain(tensors)


def is_intercepted() -> bool:
    """Whether somebody traces, transforms or intercepts operators here, whatever the tensors."""
    return torch.compiler.is_compiling() or is_transformed()


def is_transformed() -> bool:
    """Whether somebody transforms or intercepts operators here, or traces them but for torch.compile."""
    return _num_modes() > 0 or _are_transforms_active() or forward_ad._current_level >= 0 or _get_trace() is not None


def is_plain_gradient(grad: Tensor) -> bool:
    """Whether a kernel can read a gradient, and nobody traces, transforms or intercepts what is done with it."""
    is_own = type(grad) is Tensor and not torch.compiler.is_compiling() and not is_transformed()
    return is_own and not is_batched(grad)


def of_no_own_class(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors without classes that only intercept functions of torch, as which they were taken before.

    torch leaves such a class out in backward, so that a checkpoint would not compute again what it has computed.
    """
    if are_plain(tensors):
        return tensors
    dispatch = Tensor.__torch_dispatch__
    return [tensor.as_subclass(Tensor) if type(tensor).__torch_dispatch__ is dispatch else tensor for tensor in tensors]


def are_plain(tensors: Collection[Tensor]) -> bool:
    """Whether tensors are of no class but torch's own."""
    return PLAIN.issuperset(map(type, tensors))


def are_plain_on_cpu(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors are torch's own, of one type and on a CPU, and nobody intercepts what is done with them."""
    first = tensors[0]
    if first.device.type != 'cpu' or any(tensor.dtype is not first.dtype for tensor in tensors):
        return False
    return all(tensor.layout is torch.strided for tensor in tensors) and not is_watched(tensors)
