"""The benchmarks, one a file, each registered by its file's name."""

from __future__ import annotations

import pkgutil


def modules() -> dict[str, str]:
    """By name, the module of each benchmark."""
    return {found.name: f'{__name__}.{found.name}' for found in pkgutil.iter_modules(__path__)}
