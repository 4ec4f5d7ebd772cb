"""``python -m pygfuse``: versions, threads, devices and the folder of compiled kernels, for reports of faults."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform

import torch

from pygfuse._lib import backends
from pygfuse._lib import disk as cache
from pygfuse._lib.private_files import why_not_kept

_PACKAGES = ('pygfuse', 'torch', 'torch_geometric', 'numba', 'llvmlite', 'numba-cuda', 'torch_scatter', 'torch_sparse')


def run(options: argparse.Namespace) -> int:
    """Prints what is installed, and what the device and the folder of compiled kernels are like.

    Returns:
        The exit status.
    """
    lines = [('python', f'{platform.python_version()}, {platform.system()} {platform.machine()}')]
    lines += [(name, _version(name)) for name in _PACKAGES]
    lines += [('threads', f'{torch.get_num_threads()} of {os.cpu_count()} processors'), ('cuda', _cuda())]
    folder = cache.cache_directory()
    failure = why_not_kept(folder)
    kept = f'{len(cache.kernels(folder)):,} kernels' if failure is None else f'nothing is kept: {failure}'
    lines.append(('cache', f'{folder}, {kept}'))
    width = max(len(name) for name, _ in lines)
    print('\n'.join(f'{name:<{width}}  {value}' for name, value in lines))
    return 0


def _version(name: str) -> str:
    if name == 'torch':
        return torch.__version__  # with the build, which the package's metadata leave out
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return 'not installed'


def _cuda() -> str:
    """The GPUs, or what is missing for them."""
    if not torch.cuda.is_available():
        built = 'torch sees no GPU' if torch.version.cuda else 'this torch is built without CUDA'
        return f'no: {built}'
    names = ', '.join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    missing = backends.why_not('cuda')
    return f'{names} (CUDA {torch.version.cuda})' if missing is None else f'{names}, but {missing}'
