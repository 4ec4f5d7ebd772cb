"""Mappings that were measured to be best, remembered on disk by the shape of the graph and the device."""

from __future__ import annotations

import dataclasses
import math

from pygfuse._lib.device_table import DeviceTable
from pygfuse.graph.csr import Csr
from pygfuse.mapping.mapping import Mapping


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


TABLE = DeviceTable('mappings.json')


def key_of(shape: Shape) -> str:
    """Graphs that differ by less than half in all their numbers share a measurement."""
    numbers = (shape.num_rows, shape.num_edges, shape.max_degree)
    return ' '.join(str(round(2 * math.log2(number + 1))) for number in numbers)


def mapping_of(shape: Shape) -> Mapping | None:
    """The mapping remembered for graphs of this shape on this device, or None."""
    found = None if TABLE.is_empty() else TABLE.get(key_of(shape))
    try:
        return None if found is None else Mapping(**found)
    except (TypeError, ValueError):  # written by another version
        return None


def remember(shapes: list[Shape], mapping: Mapping) -> None:
    """Keeps a mapping for graphs of these shapes; in a folder that cannot be written to, for this process."""
    TABLE.remember({key_of(shape): dataclasses.asdict(mapping) for shape in shapes})


def forget() -> None:
    """Forgets all measurements, those on disk too."""
    TABLE.forget()
