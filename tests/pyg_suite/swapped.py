"""A plugin of pytest that puts fused classes into PyG's place before it collects tests."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch.package
import torch_geometric.explain
import torch_geometric.loader
import torch_geometric.nn  # noqa: F401

from pygfuse.swap import FUSED_CLASSES


def pytest_configure() -> None:
    """Every name of a class of PyG's, in every module of PyG's, becomes one of the fused class."""
    modules = [module for name, module in sys.modules.items() if name.partition('.')[0] == 'torch_geometric']
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in FUSED_CLASSES:
                setattr(module, name, FUSED_CLASSES[value])
    # as docs/differences.md says
    torch.package.PackageExporter = functools.partial(_exporter, torch.package.PackageExporter)


def _exporter(kind: type, *arguments: Any) -> torch.package.PackageExporter:
    """An exporter that leaves pygfuse outside, as tests tell it to leave PyG."""
    exporter = kind(*arguments)
    exporter.extern('pygfuse.**')
    return exporter
