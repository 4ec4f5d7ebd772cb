"""What was measured on this device, remembered on disk beside the compiled kernels."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numba.core.registry import cpu_target

from pygfuse._lib.disk import cache_directory
from pygfuse._lib.private_files import read, write


def device_name() -> str:
    """The processor and the number of threads: what a measurement holds for."""
    processor = cpu_target.target_context.codegen().magic_tuple()[1]
    return f'{platform.machine()} {processor}, {torch.get_num_threads()} threads'


class DeviceTable:
    """Values by key and device, in a JSON file in the folder of compiled kernels.

    Args:
        name: The file's name.

    Attributes:
        generation: A number that changes when something is remembered or forgotten.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        # by folder
        self._read: dict[Path, dict[str, dict[str, Any]]] = {}
        self._unwritten: dict[str, dict[str, Any]] = {}
        self._is_empty: bool | None = None

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return cache_directory() / self.name

    def reload(self) -> None:
        """Has the file read anew."""
        self.generation += 1
        self._read.clear()
        self._is_empty = None

    def _load(self) -> dict[str, dict[str, Any]]:
        folder = cache_directory()
        if folder not in self._read:
            try:
                found = json.loads(read(self.path) or b'{}')
            except ValueError:
                found = {}
            self._read[folder] = found if isinstance(found, dict) else {}
            for device, values in self._unwritten.items():
                self._read[folder].setdefault(device, {}).update(values)
        found = self._read[folder]
        self._is_empty = not found
        return found

    def is_empty(self) -> bool:
        """Whether nothing is remembered in the folder that was last read: then no key need be made up."""
        if self._is_empty is None:
            self._load()
        return self._is_empty

    def get(self, key: str) -> Any | None:
        """The value remembered for this device, or None."""
        return self._load().get(device_name(), {}).get(key)

    def remember(self, values: Mapping[str, Any]) -> None:
        """Keeps values for this device; in a folder that cannot be written to, for this process."""
        self._unwritten.setdefault(device_name(), {}).update(values)
        self.reload()
        if write(self.path, json.dumps(self._load(), indent=1, sort_keys=True).encode()):
            self._unwritten.clear()

    def forget(self) -> None:
        """Forgets all, what is on disk too."""
        self._unwritten.clear()
        self.reload()
        self.path.unlink(missing_ok=True)
