"""How many warps a multiprocessor holds at once, from what a kernel takes and what the architecture has.

The limits are those of the CUDA programming guide's table of compute capabilities; registers are given out as
`cuda_occupancy.h` of the toolkit does, which `tests/bench/test_static_speed.py` compares with.
"""

from __future__ import annotations

import dataclasses

WARP = 32
# registers are given to a warp in units, from the share of the multiprocessor's partition that the warp belongs to
REGISTERS_UNIT, PARTITIONS = 256, 4
# shared memory is given to a block in units, and each block takes some for the system
SHARED_UNIT, SHARED_OF_SYSTEM = 128, 1024


@dataclasses.dataclass(frozen=True)
class Multiprocessor:
    """What a multiprocessor of one architecture has.

    Args:
        warps: Warps at once.
        blocks: Blocks at once.
        registers: Registers of 32 bits.
        shared: Bytes of shared memory, those of the system included.
    """

    warps: int
    blocks: int
    registers: int
    shared: int


MULTIPROCESSORS = {
    'sm_80': Multiprocessor(warps=64, blocks=32, registers=65536, shared=164 * 1024),
    'sm_90': Multiprocessor(warps=64, blocks=32, registers=65536, shared=228 * 1024),
    'sm_100': Multiprocessor(warps=64, blocks=32, registers=65536, shared=228 * 1024),
}


def resident_warps(architecture: str, registers: int, shared: int, threads: int) -> int:
    """Warps that a multiprocessor holds at once of a kernel.

    Args:
        architecture: Such as ``'sm_90'``.
        registers: Of a thread.
        shared: Bytes of shared memory of a block, without those of the system.
        threads: Of a block.

    Example:
        >>> resident_warps('sm_90', 32, 0, 128), resident_warps('sm_90', 96, 0, 128)
        (64, 20)
    """
    has, warps = MULTIPROCESSORS[architecture], _rounded_up(threads, WARP) // WARP
    of_warp = _rounded_up(registers * WARP, REGISTERS_UNIT)
    of_block = _rounded_up(shared + SHARED_OF_SYSTEM, SHARED_UNIT)
    by_registers = has.registers // PARTITIONS // of_warp * PARTITIONS // warps
    return warps * min(has.warps // warps, has.blocks, by_registers, has.shared // of_block)


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
