"""The globals of files, and other dicts, as something whose values are guarded."""

from __future__ import annotations

import sys
import types
from typing import Any


class Namespace:
    """A dict, as a file's globals are one, whose values are read as attributes."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        return self._namespace.get(name)


def file_of(owner: Any) -> types.ModuleType | None:
    """The imported file that holds the globals which something stands for, if it does."""
    if not isinstance(owner, Namespace):
        return None
    found = sys.modules.get(owner.__name__)
    return found if found is not None and vars(found) is owner._namespace else None
