"""Kernels of a few instructions over two tensors, as text of PTX."""

from __future__ import annotations

from tests.support.ptx import Program

# threads of a block
BLOCK = 64
_KERNEL = """
.shared .align 16 .b8 numbers[{shared_bytes}];
.visible .entry kernel(
.param .u64 kernel_param_0,
.param .u64 kernel_param_1
)
.maxntid {block}
{{
ld.param.u64 %rd1, [kernel_param_0];
ld.param.u64 %rd2, [kernel_param_1];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, {item_bytes};
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
{text}
ret;
}}
"""


def kernel_of(text: str, item_bytes: int) -> Program:
    """A kernel of these instructions.

    They find the tensors in ``%rd1`` and ``%rd2``, the number of the thread in ``%r1``, and in ``%rd3``, ``%rd4`` and
    ``%rd5`` its offset and its places in the tensors; ``numbers`` is shared memory of an item a thread.

    Args:
        text: The instructions.
        item_bytes: Bytes of an item of either tensor.
    """
    return Program(_KERNEL.format(block=BLOCK, item_bytes=item_bytes, shared_bytes=BLOCK * item_bytes, text=text))
