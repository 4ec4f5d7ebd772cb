"""Modules that earlier versions had: pickles name classes by them."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

# the module in which each class is now; names that are packages now re-export theirs
FORMER_NAMES = {
    'pygfuse.conv._planned': {'_blank': 'pygfuse.conv._compiled.planned'},
    'pygfuse.csr': {'Csr': 'pygfuse.graph.csr'},
    'pygfuse.execution_path': {'Activity': 'pygfuse._lib.note'},
    'pygfuse.prefix_tree': {'PrefixTree': 'pygfuse.hag.prefix_tree'},
    'pygfuse.tuning': {'Tuning': 'pygfuse.tune.autotune'},
}


class _FormerModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        module = FORMER_NAMES[self.__name__].get(name)
        if module is None:
            raise AttributeError(f'module {self.__name__!r} has no attribute {name!r}')
        return getattr(importlib.import_module(module), name)


def register() -> None:
    """Lets pickles of earlier versions find their classes."""
    for name in FORMER_NAMES:
        sys.modules[name] = _FormerModule(name, 'What pickles of earlier versions find here.')
