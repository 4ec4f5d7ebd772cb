"""What is known of a kernel's speed for one architecture before it ever runs."""

from __future__ import annotations

import dataclasses
import re

from pygfuse.codegen.arguments import Operands
from pygfuse.cuda.kernel import Kernel
from pygfuse.cuda.layout import Layout
from static_speed import traffic
from static_speed.assembler import disassembled, launched_form, named
from static_speed.disassembly import instructions
from static_speed.instruction import Instruction
from static_speed.loops import blocks_of, loads_in_flight, loop_over_edges, one_turn
from static_speed.occupancy import WARP, resident_warps


@dataclasses.dataclass(frozen=True)
class OfEdge:
    """What one edge takes, in full turns of the loop over edges: a warp's share, all of whose lanes have edges.

    Attributes:
        instructions: Of a warp, along the longest way through the loop.
        special: Those of them that compute exponentials, reciprocals and roots.
        shuffles: Those that exchange values between lanes.
        bytes: What it loads and stores.
        loads_in_flight: The most loads of a lane that are under way at once.
        bytes_in_flight: The most bytes of a lane.
    """

    instructions: float
    special: float
    shuffles: float
    bytes: int
    loads_in_flight: int
    bytes_in_flight: int


@dataclasses.dataclass(frozen=True)
class Figures:
    """What assembler and disassembler tell of a kernel.

    Attributes:
        registers: Of a thread.
        spills: Bytes that a thread spills, stores and loads.
        warps: That a multiprocessor holds at once.
        edge: What an edge takes; None of kernels that do not walk edges or have a loop within that over edges.
    """

    registers: int
    spills: int
    warps: int
    edge: OfEdge | None


def figures_of(kernel: Kernel, description: tuple, architecture: tuple[int, int]) -> Figures:
    """Compiles, assembles and disassembles a kernel.

    Args:
        kernel: The kernel.
        description: The types of its arguments.
        architecture: Compute capability, such as ``(9, 0)``.
    """
    text, found = launched_form(kernel, description, architecture)
    warps = resident_warps(named(architecture), found.registers, found.shared, kernel.block)
    walk = traffic.walk_of(kernel)
    edge = None
    if walk is not None and not has_products(description):
        turn = traffic.one_turn(text, walk, kernel.layout, description)
        edge = _of_edge(instructions(disassembled(found.code)), turn, kernel.layout)
    return Figures(found.registers, found.spills, warps, edge)


def _of_edge(code: list[Instruction], turn: traffic.Turn, layout: Layout) -> OfEdge | None:
    blocks = blocks_of(code)
    loop = loop_over_edges(blocks)
    if loop is None or not turn.loads:
        return None
    _, way = one_turn(blocks, loop)
    # the assembler may have taken several turns together
    turns = max(1, round(sum(one.loaded_bytes > 0 for one in way) / turn.loads))
    edges = turns * turn.edges * (WARP // layout.lanes)
    loads, in_flight = loads_in_flight(way)

    def share(*kinds: str) -> float:
        return round(sum(one.kind in kinds for one in way) / edges, 2)

    return OfEdge(
        instructions=round(len(way) / edges, 2),
        special=share('MUFU'),
        shuffles=share('SHFL'),
        bytes=turn.edge_bytes,
        loads_in_flight=loads,
        bytes_in_flight=in_flight,
    )


def has_products(description: tuple) -> bool:
    """Whether edges' channels are features times a weight, whose number decides how long an edge takes."""
    return any(isinstance(item, Operands) and item.edge_features for item in description)


def label(kernel: Kernel, description: tuple) -> str:
    """A name that no other kernel has: what it computes, on what."""
    operands = next((item for item in description if isinstance(item, Operands)), None)
    said = [kernel.name]
    if operands is not None:
        said += ['values of edges'] * bool(operands.edge_heads or operands.edge_scalars or operands.edge_rows)
        said += ['products of edges'] * bool(operands.edge_features)
    walk = traffic.walk_of(kernel)
    if walk is not None and dict(traffic.arrays_of(walk, description)).get('seed'):
        said.append('dropout')
    if walk is None and len(kernel.key) > 1:
        said += re.findall(r'\w+', kernel.key[1].replace('False', '').replace('True', 'softmax'))
    return ', '.join(said)
