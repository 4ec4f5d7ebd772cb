"""The arguments of a launch: their types, and what the block of 64-bit words that is passed looks like."""

from __future__ import annotations

import torch

from pygfuse.codegen.packing import Form

KINDS = {
    torch.float32: 'float32',
    torch.float64: 'float64',
    torch.float16: 'float16',
    torch.bfloat16: 'bfloat16',
    torch.int32: 'int32',
    torch.int64: 'int64',
}

# a tensor of more items takes offsets of 64 bits
MOST_ITEMS = 2**31
WIDE = 'wide_'

# what `cuLaunchKernel` takes in place of an array of addresses: CU_LAUNCH_PARAM_BUFFER_POINTER and the address of the
# parameters, CU_LAUNCH_PARAM_BUFFER_SIZE and that of their size, CU_LAUNCH_PARAM_END; then size and parameters
WIDE_PARAMETERS = Form((), ('1', '0', '2', '0', '0', '0'), '{0}.data_ptr(), ')
PARAMETERS = WIDE_PARAMETERS._replace(refused=f'{{0}}.numel() > {MOST_ITEMS}')


def describe(argument: object, wide: bool = False) -> object:
    """The hashable type of one argument: what a specialisation of a kernel is keyed on.

    Args:
        argument: A tensor, a tuple of arguments, a number or None.
        wide: Whether tensors may have more than `MOST_ITEMS` items.
    """
    if isinstance(argument, torch.Tensor):
        return (WIDE if wide else '') + KINDS[argument.dtype]
    if isinstance(argument, tuple):
        items = tuple(describe(item, wide) for item in argument)
        return type(argument)(*items) if hasattr(argument, '_fields') else items
    return type(argument).__name__


def is_wide(argument: object) -> bool:
    """Whether a tensor of the argument has more than `MOST_ITEMS` items."""
    if isinstance(argument, torch.Tensor):
        return argument.numel() > MOST_ITEMS
    return isinstance(argument, tuple) and any(map(is_wide, argument))
