"""The globals of files, and other dicts, as something whose values are guarded."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import types
from typing import Any

_HELD = (dict, argparse.Namespace, types.SimpleNamespace)


def holds_settings(found: Any) -> bool:
    """Whether something holds settings by name: a dict, a namespace, or an object of a data class."""
    if isinstance(found, _HELD):
        return True
    # one that is called, or gives attributes that it does not hold, is more than that
    is_data = dataclasses.is_dataclass(found) and not isinstance(found, type) and not callable(found)
    return is_data and type(found).__getattribute__ is object.__getattribute__ and not hasattr(found, '__getattr__')


class Namespace:
    """A dict, as a file's globals are one, whose values are read as attributes."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        return self._namespace.get(name)


class Keys:
    """The keys of a dict, in their order."""

    def __init__(self, found: dict[Any, Any]) -> None:
        self._found = found

    @property
    def names(self) -> tuple:
        return tuple(self._found)


def file_of(owner: Any) -> types.ModuleType | None:
    """The imported file that holds the globals which something stands for, if it does."""
    if not isinstance(owner, Namespace):
        return None
    found = sys.modules.get(owner.__name__)
    return found if found is not None and vars(found) is owner._namespace else None
