"""Whether the parts of CUDA's toolkit that are installed fit each other."""

from __future__ import annotations

import functools
import re

# the version of PTX that a release of CUDA 12 reads; before 12.6, and since 13, the minor versions are the same
_OF_CUDA_12 = {6: 5, 7: 6, 8: 7, 9: 8}
# a module in NVVM's form of LLVM's text; the layout is the only one that it takes
_EMPTY = """target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-\
v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
!nvvmir.version = !{{!0}}
!0 = !{{i32 {major}, i32 {minor}}}
"""


def readable_by(release: tuple[int, int]) -> tuple[int, int]:
    """The newest PTX that the assembler of a release of CUDA reads.

    Example:
        >>> readable_by((12, 9)), readable_by((13, 1))
        ((8, 8), (9, 1))
    """
    major, minor = release
    return major - 4, _OF_CUDA_12.get(minor, minor) if major == 12 else minor


def version_of(text: str) -> tuple[int, int]:
    """The version of PTX in which a text is written.

    Example:
        >>> version_of('.version 9.1\\n.target sm_90')
        (9, 1)
    """
    major, minor = re.search(r'^\s*\.version\s+(\d+)\.(\d+)', text, re.MULTILINE).groups()
    return int(major), int(minor)


def written_by_compiler() -> tuple[int, int]:
    """The version of PTX that the compiler that is installed writes: that of a module without functions."""
    from cuda.bindings import nvvm

    major, minor, *_ = nvvm.ir_version()
    text = _EMPTY.format(major=major, minor=minor).encode()
    program = nvvm.create_program()
    try:
        nvvm.add_module_to_program(program, text, len(text), 'pygfuse')
        nvvm.compile_program(program, 0, [])
        written = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, written)
    finally:
        nvvm.destroy_program(program)
    return version_of(written.decode())


@functools.cache
def check() -> None:
    """Raises a RuntimeError that says what to install if the assembler cannot read what the compiler writes."""
    from cuda.bindings import nvjitlink

    check_assembler(nvjitlink.version(), written_by_compiler())


def check_assembler(release: tuple[int, int], version: tuple[int, int]) -> None:
    """`check` of a release of CUDA that nvJitLink belongs to and the version of PTX that the compiler writes."""
    if version <= readable_by(release):
        return
    major, minor = release
    # packages of CUDA 12 are named after it, those of CUDA 13 are not
    suffix, compiler = ('-cu12', 'nvidia-cuda-nvcc-cu12') if major == 12 else ('', 'nvidia-nvvm')
    raise RuntimeError(
        f'CUDA {major}.{minor} cannot assemble what the compiler writes: nvidia-nvjitlink{suffix} {major}.{minor} '
        f'reads PTX {_dotted(readable_by(release))}, {compiler} writes PTX {_dotted(version)}. Install both of one '
        'release: '
        f"pip install '{compiler}=={major}.{minor}.*' 'nvidia-nvjitlink{suffix}=={major}.{minor}.*'"
    )


def _dotted(version: tuple[int, int]) -> str:
    return '{}.{}'.format(*version)
