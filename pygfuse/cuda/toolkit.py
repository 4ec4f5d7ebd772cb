"""Whether the parts of CUDA's toolkit that are installed fit each other."""

from __future__ import annotations

import re

# the version of PTX that a release of CUDA 12 reads; before 12.6, and since 13, the minor versions are the same
_OF_CUDA_12 = {6: 5, 7: 6, 8: 7, 9: 8}


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


def check_assembler(text: str, release: tuple[int, int]) -> None:
    """Raises a RuntimeError that says what to install if an assembler cannot read a text.

    Args:
        text: PTX.
        release: The release of CUDA that nvJitLink belongs to.
    """
    version = version_of(text)
    if version <= readable_by(release):
        return
    major, minor = release
    # packages of CUDA 12 are named after it, those of CUDA 13 are not
    suffix, compiler = ('-cu12', 'nvidia-cuda-nvcc-cu12') if major == 12 else ('', 'nvidia-nvvm')
    raise RuntimeError(
        f'CUDA {major}.{minor} cannot assemble what the compiler wrote: nvidia-nvjitlink{suffix} {major}.{minor} reads '
        f'PTX {_dotted(readable_by(release))}, {compiler} wrote PTX {_dotted(version)}. Install both of one release: '
        f"pip install '{compiler}=={major}.{minor}.*' 'nvidia-nvjitlink{suffix}=={major}.{minor}.*'"
    )


def _dotted(version: tuple[int, int]) -> str:
    return '{}.{}'.format(*version)
