"""The loops of a kernel, as PTX or as machine code, and what one turn of the loop over edges takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from static_speed.disassembly import loaded_registers, named_registers
from static_speed.instruction import Instruction

# a walk is a loop over parts, in it one over rows, in it one over edges
EDGES_DEPTH = 3


@dataclasses.dataclass(frozen=True)
class Block:
    """Instructions that are carried out one after another, and the numbers of the blocks that may follow."""

    instructions: tuple[Instruction, ...]
    followers: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop with one entry.

    Attributes:
        entry: Number of its first block.
        blocks: Numbers of its blocks.
        depth: 1 for a loop that lies in no other.
    """

    entry: int
    blocks: frozenset[int]
    depth: int


def blocks_of(instructions: Sequence[Instruction]) -> list[Block]:
    """A kernel's blocks, in the order of its instructions; what is called is not among anybody's followers."""
    starts = {0, *(one.target for one in instructions if one.target is not None)}
    starts |= {i + 1 for i, one in enumerate(instructions) if one.target is not None or not one.goes_on}
    starts = sorted(start for start in starts if start < len(instructions))
    number = {start: i for i, start in enumerate(starts)}
    blocks = []
    for start, end in zip(starts, [*starts[1:], len(instructions)], strict=True):
        last = instructions[end - 1]
        followers = [number[end]] if last.goes_on and end in number else []
        followers += [] if last.target is None else [number[last.target]]
        blocks.append(Block(tuple(instructions[start:end]), tuple(dict.fromkeys(followers))))
    return blocks


def _dominators(blocks: Sequence[Block]) -> dict[int, set[int]]:
    """Of each block that is reached from the first: those that lie on every way to it, itself among them."""
    reached, waiting = {0}, [0]
    while waiting:
        new = set(blocks[waiting.pop()].followers) - reached
        reached |= new
        waiting += new
    before = {i: [j for j in reached if i in blocks[j].followers] for i in reached}
    found = {i: {0} if i == 0 else set(reached) for i in reached}
    changed = True
    while changed:
        changed = False
        for i in sorted(reached - {0}):
            now = {i} | set.intersection(*(found[j] for j in before[i]))
            changed, found[i] = changed or now != found[i], now
    return found


def loops_of(blocks: Sequence[Block]) -> list[Loop]:
    """The loops, outer ones first."""
    dominators, bodies = _dominators(blocks), {}
    for i, above in dominators.items():
        for entry in above.intersection(blocks[i].followers):
            body, waiting = bodies.setdefault(entry, {entry}), [i]
            while waiting:
                block = waiting.pop()
                if block not in body:
                    body.add(block)
                    waiting += [j for j in dominators if block in blocks[j].followers]
    found = [
        Loop(entry, frozenset(body), sum(entry in other for other in bodies.values())) for entry, body in bodies.items()
    ]
    return sorted(found, key=lambda loop: (loop.depth, loop.entry))


def loop_over_edges(blocks: Sequence[Block]) -> Loop | None:
    """Of the loops within one over rows within one over parts, that which loads most; None if none loads."""

    def loaded(loop: Loop) -> int:
        return sum(one.loaded_bytes for number in loop.blocks for one in blocks[number].instructions)

    found = max((loop for loop in loops_of(blocks) if loop.depth == EDGES_DEPTH), key=loaded, default=None)
    return found if found is not None and loaded(found) else None


def one_turn(blocks: Sequence[Block], loop: Loop) -> tuple[list[Instruction], list[Instruction]]:
    """The instructions of the shortest and of the longest way through a loop; loops within it are run through once.

    They differ where a branch leaves something out: sums that are rarely rescaled, what is behind the end of a row.
    """
    order = _in_order(blocks, loop)
    ways: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {loop.entry: ((loop.entry,), (loop.entry,))}
    ends = []
    place = {number: i for i, number in enumerate(order)}

    def length(way: tuple[int, ...]) -> int:
        return sum(len(blocks[number].instructions) for number in way)

    for number in order:
        for follower in blocks[number].followers:
            if follower == loop.entry:
                ends.append(ways[number])
            elif follower in loop.blocks and place[follower] > place[number]:
                new = [(*way, follower) for way in ways[number]]
                known = ways.get(follower, new)
                ways[follower] = min(known[0], new[0], key=length), max(known[1], new[1], key=length)
    shortest, longest = min((way for way, _ in ends), key=length), max((way for _, way in ends), key=length)
    return tuple([one for number in way for one in blocks[number].instructions] for way in (shortest, longest))


def _in_order(blocks: Sequence[Block], loop: Loop) -> list[int]:
    """The blocks of a loop, each behind those that lead to it without another turn."""
    seen, order = set(), []

    def visit(number: int) -> None:
        seen.add(number)
        for follower in blocks[number].followers:
            if follower in loop.blocks and follower not in seen:
                visit(follower)
        order.append(number)

    visit(loop.entry)
    return order[::-1]


def loads_in_flight(instructions: Sequence[Instruction]) -> tuple[int, int]:
    """The most loads, and bytes of a lane, that are under way at once: begun, and not yet waited for.

    An instruction that names a register which a load fills waits for that load.
    """
    waiting: list[Instruction] = []
    most, most_bytes = 0, 0
    for one in instructions:
        waiting = [load for load in waiting if not loaded_registers(load) & named_registers(one)]
        if one.loaded_bytes:
            waiting.append(one)
            most, most_bytes = max(most, len(waiting)), max(most_bytes, sum(load.loaded_bytes for load in waiting))
    return most, most_bytes
