"""From a body to machine code: needs numba-cuda, but neither a GPU nor a driver.

A body is a function ``body(*arguments)`` in the subset of Python that Numba compiles. Tensors arrive in it as
`pygfuse.cuda.memory.Memory`, tuples of tensors as tuples, numbers as int64 or float64, None as None. The kernel's
parameters are 64-bit words, passed by value: nothing is copied to the device for a launch.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable

from pygfuse.cuda.arguments import KINDS, WIDE
from pygfuse.cuda.memory import Memory, float_of
from pygfuse.cuda.numba_cuda import compile, compiling_for, intrinsic, jit, rounding_products, types

_lock = threading.Lock()


def _entry(description: tuple, body: Callable) -> tuple[Callable, int]:
    """The kernel, whose parameters are words, and their number."""
    scope: dict[str, object] = {'body': jit(device=True)(body), 'float_of': float_of}
    count = 0

    def read(kind: object) -> str:
        nonlocal count
        if isinstance(kind, tuple):
            items = ''.join(read(item) + ', ' for item in kind)
            if not hasattr(kind, '_fields'):
                return f'({items})'
            scope[type(kind).__name__] = type(kind)
            return f'{type(kind).__name__}({items})'
        if kind == 'NoneType':
            return 'None'
        word, count = f'w{count}', count + 1
        if kind == 'int':
            return word
        if kind == 'float':
            return f'float_of({word})'
        return f'{kind}_at({word})'

    arguments = ', '.join([read(kind) for kind in description])
    for kind in KINDS.values():
        scope[f'{kind}_at'] = _memory_maker(Memory(kind))
        scope[f'{WIDE}{kind}_at'] = _memory_maker(Memory(kind, is_wide=True))
    header = ', '.join(f'w{i}' for i in range(count))
    exec(f'def entry({header}):\n    body({arguments})\n', scope)
    return scope['entry'], count


def _memory_maker(made: Memory) -> Callable:
    @intrinsic
    def at(typingctx, address):
        return made(address), lambda context, builder, signature, arguments: arguments[0]

    return at


def to_machine_code(text: str, architecture: tuple[int, int]) -> bytes:
    """PTX assembled for an architecture, by the linker of CUDA's toolkit: a driver may be older than the toolkit."""
    from cuda.bindings import nvjitlink

    linker = nvjitlink.create(1, [f'-arch=sm_{architecture[0]}{architecture[1]}'])
    try:
        source = text.encode()
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, source, len(source), 'pygfuse')
        nvjitlink.complete(linker)
        code = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, code)
    finally:
        nvjitlink.destroy(linker)
    return bytes(code)


def to_ptx(
    body: Callable,
    description: tuple,
    architecture: tuple[int, int],
    threads: int,
    resident_blocks: int,
    fuses_products: bool = True,
) -> tuple[str, str]:
    """The PTX of a body for arguments of these types.

    Args:
        body: The body.
        description: `describe` of each argument.
        architecture: Compute capability, such as ``(9, 0)``.
        threads: Of a block.
        resident_blocks: Blocks for whose registers a multiprocessor must have room at once.
        fuses_products: Whether a product and a sum may become one instruction.

    Returns:
        The text, and the name of the kernel in it.
    """
    entry, count = _entry(description, body)
    with _lock, compiling_for(architecture), contextlib.nullcontext() if fuses_products else rounding_products():
        text, _ = compile(
            entry,
            types.void(*[types.int64] * count),
            device=False,
            abi='numba',
            cc=architecture,
            output='ptx',
            launch_bounds=(threads, resident_blocks),
        )
    text = text if isinstance(text, str) else text.decode()
    (name,) = re.findall(r'\.entry\s+([\w$]+)', text)
    return text, name
