"""What this backend takes of numba-cuda: all other modules import it from here.

By its documentation `jit`, `compile`, `types`, `intrinsic` and `register_model` are what users may rely on. Not so

- ``datamodel.models.PrimitiveModel``: a value of Numba that is one value of LLVM;
- ``cudadecl.registry`` and ``cudaimpl.registry``, ``typing.signature`` and ``typing.templates.AbstractTemplate``: the
  meaning of operators on a lane's values;
- ``dispatcher.get_current_device``, which is asked while functions are compiled, see `compiling_for`;
- ``cudadrv.nvvm.compile_ir``, which gives LLVM's text and options to NVVM, see `rounding_products`;
- the calling convention ``'numba'`` of `compile`, the only one for kernels, "not considered stable".

Therefore ``pyproject.toml`` allows the release that was tested and its patches, and no others.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from types import SimpleNamespace

from numba.cuda import compile, dispatcher, jit, types
from numba.cuda.cudadecl import registry as typing_registry
from numba.cuda.cudadrv import nvvm
from numba.cuda.cudaimpl import registry as lowering_registry
from numba.cuda.datamodel.models import PrimitiveModel
from numba.cuda.extending import intrinsic, register_model
from numba.cuda.typing import signature
from numba.cuda.typing.templates import AbstractTemplate

__all__ = [
    'AbstractTemplate',
    'PrimitiveModel',
    'compile',
    'compiling_for',
    'intrinsic',
    'jit',
    'lowering_registry',
    'register_model',
    'rounding_products',
    'signature',
    'types',
    'typing_registry',
]

# of an instruction of LLVM that NVVM may fuse, what comes before the flag that allows it whatever the options say
_CONTRACTED = re.compile(r'(= f(?:add|sub|mul|div)(?: \w+)*?) contract\b')


@contextlib.contextmanager
def compiling_for(architecture: tuple[int, int]) -> Iterator[None]:
    """A ``with`` block in which functions that a kernel calls are compiled for an architecture, not for the current
    device, which may not be there."""
    before = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=architecture)
    try:
        yield
    finally:
        dispatcher.get_current_device = before


@contextlib.contextmanager
def rounding_products() -> Iterator[None]:
    """A ``with`` block in which each product is rounded before it is added: neither NVVM, which may fuse the two unless
    an option forbids it, nor the assembler, which may fuse what NVVM leaves without ``.rn``, makes them one
    instruction."""
    before = nvvm.compile_ir

    def compile_ir(texts: str | list[str], **options: object) -> bytes:
        texts = [texts] if isinstance(texts, str) else texts
        return before([_CONTRACTED.sub(r'\1', text) for text in texts], **options, fma=False)

    nvvm.compile_ir = compile_ir
    try:
        yield
    finally:
        nvvm.compile_ir = before
