"""Lines of Python, written out once for a kind of call, in which launches that follow one another are one call.

Of few rows and edges, a kernel takes less time than what Python does around it.
"""

from __future__ import annotations

import array
import collections
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import torch

Words = Sequence[str | int]
# the size of what lies where something else does
_NOTHING = '0'


class Runnable(Protocol):
    """What a backend runs a block by.

    Attributes:
        address: Of the compiled function.
        most: The number of multiplications from which on a team of threads shares them; None where the calling thread
            always runs it.
    """

    address: int
    most: int | None

    def run(self, block: array.array, work: int) -> None:
        """Runs a block of so many multiplications by itself."""


class Entry(NamedTuple):
    """A launch among the lines.

    Attributes:
        launch: What runs it.
        words: Its block of 64-bit words, as expressions.
        addresses: Words that are the address of another word of the block: the places of both.
        work: The number of multiplications, an expression.
        behind: Lines that run when it has run; ``{0}`` stands for the word at the place `told`.
        told: A place in the block.
    """

    launch: Runnable
    words: Words
    addresses: tuple[tuple[int, int], ...] = ()
    work: str = '0'
    behind: tuple[str, ...] = ()
    told: int = 0


def told_by(launch: Runnable, words: Words, name: str, refuse: str) -> Entry:
    """A launch that tells a number, which has a name from then on.

    Args:
        launch, words: As of `Entry`; the word that is this name is the address where the number is written.
        name: The name.
        refuse: The name of what is called where the number is negative.
    """
    words = list(words)
    place = words.index(name)
    words[place] = '0'
    # it is in the block, where it is read when the launch has run
    behind = f'{name} = {{0}}', f'if {name} < 0: {refuse}()'
    return Entry(launch, [*words, '0'], ((place, len(words)),), behind=behind, told=len(words))


class InTurn(Protocol):
    """Launches that a backend runs one after another.

    Attributes:
        head: The words that stand in a block before those of the launches.
        alone: ``alone(block)``: runs a block on the calling thread.
    """

    head: tuple[int, ...]
    alone: Callable[[array.array], None]

    def run(self, block: array.array, work: tuple[int, ...]) -> None:
        """Runs each launch of a block by itself, given the multiplications of each."""


class LaunchLines:
    """Lines as they are written.

    Args:
        in_turn: Makes of launches that follow one another what runs them, or None where lines have no launches.
        like: The name of a tensor of the type and device of what memory is reserved for.
        number_bytes: Bytes of one of its numbers.

    Attributes:
        like: As above.
        rooms: The memory that was reserved, by the name of the tensor that has it: the names of what lies in it, one
            behind the other, and how many numbers that is.
    """

    def __init__(
        self, in_turn: Callable[[Sequence[Entry]], InTurn] | None, like: str = '', number_bytes: int = 0
    ) -> None:
        self._in_turn, self.like, self._number_bytes = in_turn, like, number_bytes
        self._lines: list[str] = []
        self._entries: list[Entry] = []
        self._scope: dict[str, object] = {}
        self._ready: set[str] = set()
        self._reserved: dict[str, list[tuple[str, str]]] = {}
        self._addresses: dict[str | int, str] = {}
        self.rooms: dict[str, list[tuple[str, str]]] = {}

    def say(self, line: str) -> None:
        """Writes a line, which runs behind all that was written before."""
        self.wait()
        self._lines.append(line)

    def prepare(self, line: str) -> None:
        """Writes a line that reads no result of the launches before it, and runs before them."""
        self._lines.append(line)

    def once(self, *lines: str) -> None:
        """Prepares lines, of which none is written twice."""
        for line in lines:
            if line not in self._ready:
                self._ready.add(line)
                self.prepare(line)

    def reserve(self, name: str, size: str, room: str = 'rows') -> None:
        """Reserves memory for what only launches read and write: its name stands for no tensor.

        Args:
            name: The name, as whose address ``name.data_ptr()`` is taken.
            size: How many numbers it has, an expression.
            room: What lies in rooms of one name is allocated at once; ``'zeros'`` holds zeros.
        """
        self._reserved.setdefault(room, []).append((name, size))
        self._addresses[f'{name}.data_ptr()'] = f'at_{name}'

    def rename(self, name: str, other: str) -> None:
        """Has a name stand for what another stands for."""
        if not self.is_reserved(other):
            self.prepare(f'{name} = {other}')
            return
        self._addresses[f'{name}.data_ptr()'] = f'at_{name}'
        for contents in [*self._reserved.values(), *self.rooms.values()]:
            place = next((place for place, (there, _) in enumerate(contents) if there == other), None)
            if place is not None:
                contents.insert(place, (name, _NOTHING))

    def place(self, room: str, contents: Sequence[tuple[str, str]]) -> None:
        """Has names stand for what lies in a room, contiguous, of other lines, as these had it in `rooms`."""
        address = f'{room}.data_ptr()'
        for name, size in contents:
            self._addresses[f'{name}.data_ptr()'] = own = f'at_{name}'
            self._lines.append(f'{own} = {address}')
            address = own if size is _NOTHING else f'{own} + {self._number_bytes} * {size}'

    def is_reserved(self, name: str) -> bool:
        """Whether a name stands for memory in a room."""
        return f'{name}.data_ptr()' in self._addresses

    def launch(self, entry: Entry) -> None:
        """Writes a launch, which runs behind those written before."""
        words = [self._addresses.get(word, word) for word in entry.words]
        self._entries.append(entry._replace(words=words))

    def knows(self, name: str, value: object) -> str:
        """Has a name stand for an object, and returns it."""
        self._scope[name] = value
        return name

    def keep(self, value: object) -> None:
        """Keeps an object as long as the lines."""
        self.knows(f'object_{len(self._scope)}', value)

    def wait(self) -> None:
        """Has the launches that follow begin once those before have run."""
        entries, self._entries = self._entries, []
        if not entries:
            return
        for room, contents in self._reserved.items():
            name, total = f'{room}_{len(self.rooms)}', ' + '.join(size for _, size in contents if size is not _NOTHING)
            fill = 'new_zeros' if room == 'zeros' else 'new_empty'
            self._lines.append(f'{name} = {self.like}.{fill}({total})')
            self.rooms[name] = contents
            self.place(name, contents)
        self._reserved = {}
        runner, number = self._in_turn(entries), len(self._scope)
        block, name = f'block_{number}', self.knows(f'launches_{number}', runner)
        words = [*runner.head, *(word for entry in entries for word in entry.words)]
        self._fill(block, words)
        together = f'{self.knows(f"alone_{number}", runner.alone)}({block})'
        works = ''.join(f'{entry.work}, ' for entry in entries)
        by_itself = f'{name}.run({block}, ({works}))'
        limits = [f'{entry.work} < {entry.launch.most}' for entry in entries if entry.launch.most is not None]
        self._lines.append(f'{together} if {" and ".join(limits)} else {by_itself}' if limits else together)
        first = len(runner.head)
        for entry in entries:
            self._lines += [line.format(f'{block}[{first + entry.told}]') for line in entry.behind]
            first += len(entry.words)

    def _fill(self, block: str, words: Words) -> None:
        """Writes a block, of which numbers that are known are copied."""
        known = {place: int(word) for place, word in enumerate(words) if str(word).lstrip('-').isdigit()}
        template = array.array('q', [known.get(place, 0) for place in range(len(words))])
        self._lines.append(f'{block} = {self.knows(f"of_{block}", template)}[:]')
        others = [(place, str(word)) for place, word in enumerate(words) if place not in known]
        met = collections.Counter(word for _, word in others)
        for word in [word for word, count in met.items() if count > 1 and not word.isidentifier()]:
            own = f'{block}_{len(self._lines)}'
            self._lines.append(f'{own} = {word}')
            others = [(place, own if other == word else other) for place, other in others]
        self._lines += [f'{block}[{place}] = {word}' for place, word in others]

    def function(self, arguments: str, result: str, names: Mapping[str, object] = MappingProxyType({})) -> Callable:
        """``function(arguments)``: all that was written, and what it returns.

        Args:
            arguments: The names of its arguments.
            result: What it returns, an expression.
            names: What other names stand for.
        """
        self.wait()
        text = ''.join(f'    {line}\n' for line in [*self._lines, f'return {result}'])
        scope = {'empty_like': torch.empty_like, 'zeros_like': torch.zeros_like, **self._scope, **names}
        exec(f'def function({arguments}):\n{text}', scope)
        return scope['function']
