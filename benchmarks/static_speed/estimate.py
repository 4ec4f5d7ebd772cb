"""What the figures of a kernel would allow at best on a device, beside one sparse-dense product: an estimate.

Nothing is measured. A walk takes as long as the slowest of: its bytes at the memory's published bandwidth, its
instructions at the rate at which multiprocessors issue them, and its exponentials and shuffles at theirs. All that
is gathered comes from memory, nothing from a cache; beginnings and ends of rows, waiting for loads, and edges that are
missing in a last turn are left out. The product (cuSPARSE's SpMM of the same width, 32-bit indices and a value for
each edge) is taken to need nothing but its bytes.
"""

from __future__ import annotations

import dataclasses

from static_speed.figures import OfEdge
from static_speed.occupancy import WARP

# lanes of a multiprocessor that begin an operation in each cycle: CUDA programming guide, throughput of instructions
ISSUED, SPECIAL, SHUFFLED = 4 * WARP, 16, 32
INDEX_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Device:
    """A device as its maker describes it.

    Args:
        name: Its name.
        multiprocessors: How many it has.
        gigahertz: Their highest clock.
        gigabytes_a_second: What its memory gives.
    """

    name: str
    multiprocessors: int
    gigahertz: float
    gigabytes_a_second: float


DEVICES = {
    'sm_80': Device('A100 SXM, 80 GB', 108, 1.41, 2039),
    'sm_90': Device('H100 SXM', 132, 1.98, 3350),
    'sm_100': Device('B200', 148, 1.965, 8000),
}


def picoseconds(edge: OfEdge, device: Device) -> dict[str, float]:
    """How long an edge takes at least, by what holds it up."""
    lanes_a_picosecond = device.multiprocessors * device.gigahertz / 1000
    return {
        'memory': 1000 * edge.bytes / device.gigabytes_a_second,
        'instructions': edge.instructions * WARP / ISSUED / lanes_a_picosecond,
        'exponentials': edge.special * WARP / SPECIAL / lanes_a_picosecond,
        'shuffles': edge.shuffles * WARP / SHUFFLED / lanes_a_picosecond,
    }


def product_picoseconds(row_bytes: int, item_bytes: int, device: Device) -> float:
    """How long an edge of a sparse-dense product takes at least."""
    return 1000 * (row_bytes + INDEX_BYTES + item_bytes) / device.gigabytes_a_second


def estimated(edge: OfEdge, row_bytes: int, item_bytes: int, device: Device) -> tuple[float, str]:
    """A walk's time over the product's, and what holds the walk up.

    Example:
        >>> edge = OfEdge(40.0, 1.0, 0.0, 264, 8, 128)
        >>> estimated(edge, 256, 4, DEVICES['sm_90'])
        (1.0, 'memory')
    """
    times = picoseconds(edge, device)
    slowest = max(times, key=times.get)
    return round(times[slowest] / product_picoseconds(row_bytes, item_bytes, device), 2), slowest
