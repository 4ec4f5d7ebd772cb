"""The assembler and the disassembler of CUDA's toolkit: they run without a GPU."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import subprocess
import tempfile

from pygfuse.cuda.kernel import FEWEST_BLOCKS, Kernel


@dataclasses.dataclass(frozen=True)
class Assembled:
    """What the assembler says of a kernel.

    Attributes:
        registers: Of a thread.
        shared: Bytes of shared memory of a block.
        spills: Bytes that a thread spills, stores and loads.
        code: The machine code, as a cubin.
    """

    registers: int
    shared: int
    spills: int
    code: bytes


def tool(name: str) -> str:
    """The path of a program of the wheels ``nvidia-cuda-*``; without them its name, as of an installed toolkit."""
    import nvidia

    found = [path for folder in nvidia.__path__ for path in glob.glob(f'{folder}/*/bin/{name}')]
    return found[0] if found else name


def named(architecture: tuple[int, int]) -> str:
    """What the assembler calls a compute capability.

    Example:
        >>> named((10, 0))
        'sm_100'
    """
    return f'sm_{architecture[0]}{architecture[1]}'


def assembled(text: str, architecture: tuple[int, int]) -> Assembled:
    """PTX as ptxas assembles it.

    Args:
        text: Of one kernel.
        architecture: Compute capability, such as ``(9, 0)``.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, 'kernel.ptx'), os.path.join(folder, 'kernel.cubin')
        with open(source, 'w') as file:
            file.write(text)
        said = _run('ptxas', f'-arch={named(architecture)}', '-v', source, '-o', target).stderr
        with open(target, 'rb') as file:
            code = file.read()
    shared = re.search(r'(\d+) bytes smem', said)
    return Assembled(
        registers=int(re.search(r'Used (\d+) registers', said).group(1)),
        shared=int(shared.group(1)) if shared else 0,
        spills=sum(map(int, re.findall(r'(\d+) bytes spill', said))),
        code=code,
    )


def launched_form(kernel: Kernel, description: tuple, architecture: tuple[int, int]) -> tuple[str, Assembled]:
    """The PTX of a kernel as it is launched, with fewer blocks at once where it would spill, and what becomes of it."""
    for blocks in (kernel.resident_blocks, FEWEST_BLOCKS):
        text, _ = kernel.ptx(description, architecture, blocks)
        found = assembled(text, architecture)
        if not found.spills:
            break
    return text, found


def disassembled(code: bytes) -> str:
    """Machine code as nvdisasm writes it."""
    with tempfile.NamedTemporaryFile(suffix='.cubin') as file:
        file.write(code)
        file.flush()
        return _run('nvdisasm', '-c', file.name).stdout


def _run(name: str, *arguments: str) -> subprocess.CompletedProcess:
    done = subprocess.run([tool(name), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f'{name} failed: {done.stderr}')
    return done
