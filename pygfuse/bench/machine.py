"""Where figures were taken: the processor, its cores and threads, and the versions of what ran."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import torch

PACKAGES = ('torch', 'torch_geometric', 'numba', 'pygfuse')


def processor() -> str:
    """The processor's name, as the system says it."""
    cpuinfo = Path('/proc/cpuinfo')
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return names[0] if names else platform.processor() or platform.machine()


def machine(*more_packages: str) -> dict[str, str | int]:
    """Processor, cores, threads, and versions of Python and of packages; a package that is not there is left out."""
    found: dict[str, str | int] = {
        'processor': processor(),
        'cores': os.cpu_count() or 1,
        'threads': torch.get_num_threads(),
        'python': platform.python_version(),
    }
    if torch.cuda.is_available():
        found['gpu'] = torch.cuda.get_device_name()
    for name in (*PACKAGES, *more_packages):
        version = _version(name)
        if version is not None:
            found[name] = version
    return found


def _version(name: str) -> str | None:
    if name == 'torch':
        return torch.__version__  # with the build, which the package's metadata leave out
    if name == 'pygfuse':
        import pygfuse  # the one that runs, installed or not

        return pygfuse.__version__
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def described(machine: dict[str, str | int]) -> str:
    """One line for people."""
    versions = [f'{name} {machine[name]}' for name in machine if name not in ('processor', 'cores', 'threads', 'gpu')]
    devices = f'{machine["processor"]}, {machine["threads"]} threads of {machine["cores"]} cores'
    return f'{devices}{", " * ("gpu" in machine)}{machine.get("gpu", "")}; {", ".join(versions)}'
