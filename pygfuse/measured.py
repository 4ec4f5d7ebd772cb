"""Mappings that were measured to be best, remembered on disk by the shape of the graph and the device."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import platform
import tempfile
from pathlib import Path

import torch
from numba.core.registry import cpu_target

from pygfuse.cpu.cache import cache_directory
from pygfuse.csr import Csr
from pygfuse.mapping import Mapping


@dataclasses.dataclass(frozen=True)
class Shape:
    """What the choice of a mapping knows of a graph seen by rows."""

    num_rows: int
    num_edges: int
    max_degree: int

    @staticmethod
    def of(csr: Csr) -> Shape:
        """The shape of a graph's rows."""
        return Shape(csr.num_rows, csr.num_edges, csr.max_degree)


_generation = 0


def generation() -> int:
    """A number that changes when something is remembered or forgotten."""
    return _generation


def _changed() -> None:
    global _generation
    _generation += 1
    _load.cache_clear()


def _path() -> Path:
    return cache_directory() / 'mappings.json'


def device_name() -> str:
    """The processor and the number of threads: what a measurement holds for."""
    processor = cpu_target.target_context.codegen().magic_tuple()[1]
    return f'{platform.machine()} {processor}, {torch.get_num_threads()} threads'


def key_of(shape: Shape) -> str:
    """Graphs that differ by less than half in all their numbers share a measurement."""
    numbers = (shape.num_rows, shape.num_edges, shape.max_degree)
    return ' '.join(str(round(2 * math.log2(number + 1))) for number in numbers)


@functools.cache
def _load(path: Path) -> dict[str, dict[str, dict]]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def mapping_of(shape: Shape) -> Mapping | None:
    """The mapping remembered for graphs of this shape on this device, or None."""
    table = _load(_path())
    if not table:
        return None
    found = table.get(device_name(), {}).get(key_of(shape))
    try:
        return None if found is None else Mapping(**found)
    except (TypeError, ValueError):  # written by another version
        return None


def remember(shapes: list[Shape], mapping: Mapping) -> None:
    """Keeps a mapping for graphs of these shapes; in a folder that cannot be written to, for this process."""
    path = _path()
    _changed()
    table = _load(path)
    mine = table.setdefault(device_name(), {})
    mine.update({key_of(shape): dataclasses.asdict(mapping) for shape in shapes})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix='.partial')
        with os.fdopen(handle, 'w') as file:
            json.dump(table, file, indent=1, sort_keys=True)
        os.replace(temporary, path)
    except OSError:
        return


def forget() -> None:
    """Forgets all measurements, those on disk too."""
    _changed()
    _path().unlink(missing_ok=True)
