"""What one turn of the loop over edges loads and stores, array by array, from a kernel's PTX.

PTX still says which parameter an address comes from. Lanes that hold the same head load the same value, so the bytes of
an edge follow from what an array holds (a row, a value per head, a number) and not from the widths of loads.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pygfuse.cuda.kernel import Kernel
from pygfuse.cuda.layout import ITEM_BYTES, Layout
from pygfuse.cuda.walks.arguments import BACKWARD, FORWARD, WEIGHTS
from static_speed.instruction import Instruction
from static_speed.loops import EDGES_DEPTH, blocks_of, loop_over_edges, loops_of
from static_speed.ptx_text import instructions

WALKS = {'forward': FORWARD, 'backward': BACKWARD, 'weights': WEIGHTS}
ROWS = ('gathered_channels', 'edge_rows', 'grad_out', 'out', 'grad_edge_rows')
HEADS = ('gathered_heads', 'edge_heads', 'normalisers', 'delta', 'grad_edges', 'grad_passed', 'result')
NUMBERS = ('gathered', 'edge_id', 'edge_scalars', 'grad_edge_scalars')
INDICES = ('gathered', 'edge_id')
_ITEM_BYTES = {**ITEM_BYTES, 'int32': 4, 'int64': 8}

_ADDRESS, _PARAMETER = re.compile(r'\[(%rd\d+)'), re.compile(r'_param_(\d+)\]')
_DEFINED = re.compile(r'^(%rd\d+),\s*(.*)')


@dataclasses.dataclass(frozen=True)
class Turn:
    """One turn of the loop over edges, of one lane.

    Attributes:
        edges: Edges that a lane takes part in.
        loads: Loads of global memory.
        edge_bytes: Bytes that an edge loads and stores, each array's once.
    """

    edges: int
    loads: int
    edge_bytes: int


def walk_of(kernel: Kernel) -> str | None:
    """Which of `WALKS` a kernel is, by its name."""
    return next((walk for walk in WALKS if f' {walk}' in kernel.name), None)


def arrays_of(walk: str, description: tuple) -> list[tuple[str, str]]:
    """For each parameter of a walk's kernel, its name and the type of its items."""

    def leaves(name: str, kind: object) -> Iterator[tuple[str, str]]:
        if isinstance(kind, tuple):
            for field, item in zip(getattr(kind, '_fields', [name] * len(kind)), kind, strict=True):
                yield from leaves(field, item)
        elif kind != 'NoneType':
            yield name, kind

    named = zip(WALKS[walk].names, description, strict=True)
    return [leaf for name, kind in named for leaf in leaves(name, kind)]


def one_turn(text: str, walk: str, layout: Layout, description: tuple) -> Turn:
    """What a turn of the loop over edges does that has most loads (others take what is left of a row).

    Args:
        text: The kernel's PTX.
        walk: One of `WALKS`.
        layout: The kernel's.
        description: The types of its arguments.
    """
    code, arrays = instructions(text), arrays_of(walk, description)
    blocks, base_of = blocks_of(code), _bases(code)
    loop = loop_over_edges(blocks)
    accesses = [
        one
        for number in (loop.blocks if loop is not None else ())
        for one in blocks[number].instructions
        if one.name.startswith(('ld.global', 'st.global'))
    ]
    parameters = [base_of(_ADDRESS.search(one.operands).group(1)) for one in accesses]
    times = Counter(arrays[parameter][0] for parameter in parameters if parameter is not None)
    return Turn(
        edges=next((times[name] for name in INDICES if times[name]), layout.batch),
        loads=sum(one.loaded_bytes > 0 for one in accesses),
        edge_bytes=sum(_bytes(*arrays[parameter], layout) for parameter in {*parameters} - {None}),
    )


def widest_load(text: str, walk: str | None, description: tuple) -> int:
    """Bytes of the widest load in the loops over edges, other than of indices; 0 if there is none.

    Args:
        text: The kernel's PTX.
        walk: One of `WALKS`; None for a kernel that is none of them, all of whose loads are counted.
        description: The types of its arguments.
    """
    code = instructions(text)
    blocks, base_of = blocks_of(code), _bases(code)
    arrays = [] if walk is None else arrays_of(walk, description)
    indices = {number for number, (name, _) in enumerate(arrays) if name in INDICES}
    loads = [
        one
        for loop in loops_of(blocks)
        if loop.depth >= EDGES_DEPTH
        for number in loop.blocks
        for one in blocks[number].instructions
        if one.loaded_bytes
    ]
    return max(
        (one.loaded_bytes for one in loads if base_of(_ADDRESS.search(one.operands).group(1)) not in indices), default=0
    )


def _bytes(name: str, kind: str, layout: Layout) -> int:
    """The bytes that an edge has in an array; sums of parameters are written once in many edges."""
    # maximum and reciprocal of the total lie side by side
    heads = layout.heads * (2 if name == 'normalisers' else 1)
    values = layout.heads * layout.channels if name in ROWS else heads if name in HEADS else int(name in NUMBERS)
    return _ITEM_BYTES.get(kind, 0) * values


def _bases(code: Sequence[Instruction]) -> Callable[[str], int | None]:
    """``base(register)``: the number of the parameter that an address comes from; None if several may be."""
    definitions: dict[str, list[tuple[str, str]]] = {}
    for one in code:
        match = _DEFINED.match(one.operands)
        if match:
            definitions.setdefault(match.group(1), []).append((one.name, match.group(2)))

    def parameters(register: str, seen: set[str]) -> set[int]:
        found: set[int] = set()
        for name, rest in definitions.get(register, ()) if register not in seen else ():
            seen.add(register)
            sources = re.findall(r'%rd\d+', rest)
            if name.startswith('ld.param'):
                found.add(int(_PARAMETER.search(rest).group(1)))
            elif name.startswith('mad'):
                # a product and what it is added to
                found |= parameters(sources[-1], seen)
            elif name.startswith(('add', 'mov', 'cvta', 'selp')):
                found |= set().union(*(parameters(source, seen) for source in sources))
        return found

    def base(register: str) -> int | None:
        found = parameters(register, set())
        return found.pop() if len(found) == 1 else None

    return base
