"""What a lane of a warp can do, in plain Python for numba's CUDA simulator: stands for `pygfuse.cuda.instructions`.

The simulator runs every CUDA thread as a thread of Python, but knows no vectors and no shuffles. Here a lane's values
are small NumPy arrays, memory is a tensor of the CPU, and a shuffle is an exchange through a list with a barrier for
the lanes of a team. The walks above it are the ones that are compiled for a GPU.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numba import cuda
from numba.cuda.simulator.kernel import BlockThread
from scipy.special import erfcx

from pygfuse.codegen.philox import KEY_STEPS, MULTIPLIERS, ROUNDS
from pygfuse.cuda.layout import Layout
from pygfuse.program import vocabulary

# a lost lane must not hang the tests
PATIENCE = 600.0
# teams of a block: more than one, so that they do not all keep step
TEAMS = 2


def _is_alive(thread: BlockThread) -> bool:
    thread.join(0.05)
    return threading.Thread.is_alive(thread)


# the simulator asks its threads in a busy loop whether they live, and takes most of the time from them
BlockThread.is_alive = _is_alive

WORDS: dict[str, Callable] = {
    'add': operator.add,
    'sub': operator.sub,
    'mul': operator.mul,
    'div': operator.truediv,
    'neg': operator.neg,
    'exp': np.exp,
    'expm1': np.expm1,
    'log': np.log,
    'sqrt': np.sqrt,
    'sigmoid': lambda x: 1.0 / (1.0 + np.exp(-x)),
    'tanh': np.tanh,
    'tail': lambda x: np.exp(-np.abs(x)),
    'log1p': np.log1p,
    'normal_tail': lambda x: 0.5 * erfcx(np.abs(x) * math.sqrt(0.5)),
    'sigmoid_slope': lambda x: 0.25 / np.cosh(0.5 * x) ** 2,
    'sech_squared': lambda x: 1.0 / np.cosh(x) ** 2,
    'softplus': lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    'positive': lambda x, then, otherwise: np.where(x > 0, then, otherwise),
    'equal': lambda x, y, then, otherwise: np.where(x == y, then, otherwise),
    'maximum': np.maximum,
    'relu': lambda x: np.where(x <= 0, np.zeros_like(x), x),
    'leaky_relu': lambda x, negative_slope: np.where(x > 0, x, x * negative_slope),
    'dropout_factor': lambda *numbers: vocabulary.dropout_factor(*map(torch.as_tensor, numbers)).numpy(),
}


class LaneValue:
    """A lane's part of a row (``[registers * vector]``) or its heads (``[head values]``)."""

    def __init__(self, layout: Layout, numbers: np.ndarray, is_row: bool) -> None:
        self.layout, self.numbers, self.is_row = layout, numbers.astype(layout.compute), is_row

    def record_word(self, word: str, arguments: Sequence[Any]) -> LaneValue:
        layout = self.layout
        is_row = any(isinstance(argument, LaneValue) and argument.is_row for argument in arguments)
        with np.errstate(all='ignore'):
            numbers = WORDS[word](*(spread(argument, layout, is_row) for argument in arguments))
        return LaneValue(layout, numbers, is_row)

    def __add__(self, other):
        return self.record_word('add', (self, other))

    def __sub__(self, other):
        return self.record_word('sub', (self, other))

    def __mul__(self, other):
        return self.record_word('mul', (self, other))

    def __truediv__(self, other):
        return self.record_word('div', (self, other))

    def __radd__(self, other):
        return self.record_word('add', (other, self))

    def __rsub__(self, other):
        return self.record_word('sub', (other, self))

    def __rmul__(self, other):
        return self.record_word('mul', (other, self))

    def __rtruediv__(self, other):
        return self.record_word('div', (other, self))

    def __neg__(self):
        return self.record_word('neg', (self,))


def spread(value: Any, layout: Layout, is_row: bool) -> np.ndarray:
    """The numbers of a value, of heads in the form of a row where one is wanted."""
    count = layout.values if is_row else layout.head_values
    if not isinstance(value, LaneValue):
        return np.full(count, value, dtype=layout.compute)
    if is_row and not value.is_row:
        return np.repeat(value.numbers, layout.per_head * layout.vector)
    assert is_row == value.is_row
    return value.numbers


class Exchange:
    """Where the lanes of one team pass values: two sides in turn, so that one barrier is enough."""

    def __init__(self, lanes: int) -> None:
        self.barrier = threading.Barrier(lanes, timeout=PATIENCE)
        self.sides = [[None] * lanes, [None] * lanes]
        self.turns = [0] * lanes

    def swap(self, lane: int, distance: int, value: Any) -> Any:
        side = self.sides[self.turns[lane] % 2]
        self.turns[lane] += 1
        side[lane] = value
        self.barrier.wait()
        return side[lane ^ distance]


def _each(function: Callable, *values: Any) -> Any:
    """`function` of the items of tuples, side by side, or of the values themselves."""
    if isinstance(values[0], tuple):
        return tuple(function(*items) for items in zip(*values, strict=True))
    return function(*values)


class Lanes:
    """The instructions of one kernel's lanes.

    Args:
        layout: Which lane holds what.
        grid: Blocks in two directions.
    """

    def __init__(self, layout: Layout, grid: tuple[int, int]) -> None:
        self.layout, self.grid = layout, grid
        self.exchanges: dict[tuple, Exchange] = {}
        self.lock = threading.Lock()

    @staticmethod
    def inlined(function: Callable) -> Callable:
        return function

    def compiled(self, text: str, **scope: object) -> Callable:
        names = {**vocabulary.WORDS, 'sum_channels': self.sum_channels, **scope}
        exec(text, names)
        return names[text.split('(')[0].removeprefix('def ')]

    # Threads

    @staticmethod
    def _thread() -> Any:
        return threading.current_thread()

    @property
    def _lane(self) -> int:
        return self._thread().threadIdx.x % self.layout.lanes

    def team_number(self) -> int:
        thread = self._thread()
        return (thread.blockIdx.x * TEAMS * self.layout.team + thread.threadIdx.x) // self.layout.team

    def team_count(self) -> int:
        return self.grid[0] * TEAMS

    def tile_number(self) -> int:
        return self._thread().blockIdx.y

    def subteam_number(self) -> int:
        return self._thread().threadIdx.x % self.layout.team // self.layout.lanes

    def shuffle(self, value: Any, distance: int) -> Any:
        thread = self._thread()
        key = (thread.blockIdx.x, thread.blockIdx.y, thread.threadIdx.x // self.layout.team)
        with self.lock:
            exchange = self.exchanges.setdefault(key, Exchange(self.layout.team))
        return exchange.swap(thread.threadIdx.x % self.layout.team, distance, value)

    # Memory

    @staticmethod
    def place_at(memory: torch.Tensor | None, position: int) -> int:
        return position if memory is None else int(memory.view(-1)[position])

    def _vectors(self):
        """Of each vector of this lane: its head, where in the row it begins, and whether it is there."""
        layout, lane = self.layout, self._lane
        for register in range(layout.registers):
            value, part = divmod(register, layout.per_head)
            head = value * layout.heads_side_by_side + lane // layout.lanes_per_head
            within = part * layout.lanes + lane % layout.lanes_per_head
            there = head < layout.heads and within < layout.vectors_per_head
            yield head, head * layout.channels + within * layout.vector, there

    def load_row(self, memory: Any, offset: int) -> Any:
        def load(tensor: torch.Tensor) -> LaneValue:
            flat, size, numbers = tensor.view(-1), self.layout.vector, []
            for _, at, there in self._vectors():
                assert not there or (offset + at) % size == 0, 'a load that is not aligned'
                numbers += flat[offset + at : offset + at + size].tolist() if there else [0.0] * size
            return LaneValue(self.layout, np.array(numbers), True)

        return _each(load, memory)

    def load_heads(self, memory: Any, offset: int) -> Any:
        def load(tensor: torch.Tensor) -> LaneValue:
            flat = tensor.view(-1)
            numbers = [float(flat[offset + (head if head < self.layout.heads else 0)]) for head in self._heads()]
            return LaneValue(self.layout, np.array(numbers), False)

        return _each(load, memory)

    def _heads(self) -> list[int]:
        return [head for head, _, _ in self._vectors()][:: self.layout.per_head]

    reload_row, reload_heads = load_row, load_heads

    @staticmethod
    def load_number(memory: torch.Tensor, offset: int) -> float:
        return float(memory.view(-1)[offset])

    def load_scalars(self, memories: tuple, offset: int) -> tuple:
        return tuple(self.heads_full(self.load_number(memory, offset)) for memory in memories)

    def store_row(self, memory: Any, offset: int, row: Any, when: bool) -> None:
        def store(tensor: torch.Tensor, value: Any) -> None:
            flat, size = tensor.view(-1), self.layout.vector
            numbers = torch.from_numpy(spread(value, self.layout, True))
            for register, (_, at, there) in enumerate(self._vectors()):
                if there and when:
                    flat[offset + at : offset + at + size] = numbers[register * size : (register + 1) * size]

        _each(store, memory, row)

    def store_heads(self, memory: Any, offset: int, heads: Any, when: bool) -> None:
        def store(tensor: torch.Tensor, value: Any) -> None:
            for head, number in zip(self._heads(), spread(value, self.layout, False), strict=True):
                if when and self._owns(head):
                    tensor.view(-1)[offset + head] = float(number)

        _each(store, memory, heads)

    def add_row(self, memory: Any, offset: int, row: Any) -> None:
        self.store_row(memory, offset, self.add_tuples(self.reload_row(memory, offset), row), True)

    def add_heads(self, memory: Any, offset: int, heads: Any) -> None:
        self.store_heads(memory, offset, self.add_tuples(self.reload_heads(memory, offset), heads), True)

    def put_row(self, memory: Any, offset: int, row: Any) -> None:
        self.store_row(memory, offset, row, self.subteam_number() == 0)

    def put_heads(self, memory: Any, offset: int, heads: Any) -> None:
        self.store_heads(memory, offset, heads, self.subteam_number() == 0)

    def _owns(self, head: int) -> bool:
        return head < self.layout.heads and self._lane % self.layout.lanes_per_head == 0

    def store_number(self, memory: torch.Tensor, offset: int, number: float, when: bool) -> None:
        if when and self._lane == 0:
            memory.view(-1)[offset] = float(number)

    # Values

    def row_full(self, value: float) -> LaneValue:
        return LaneValue(self.layout, np.full(self.layout.values, value), True)

    def heads_full(self, value: float) -> LaneValue:
        return LaneValue(self.layout, np.full(self.layout.head_values, value), False)

    @staticmethod
    def choose(condition: bool, a: LaneValue, b: Any) -> LaneValue:
        return a if condition else LaneValue(a.layout, spread(b, a.layout, a.is_row), a.is_row)

    def rounded(self, value: LaneValue) -> LaneValue:
        narrow = torch.from_numpy(value.numbers).to(getattr(torch, self.layout.element))
        return LaneValue(self.layout, narrow.double().numpy(), True)

    @staticmethod
    def above(score: LaneValue, top: LaneValue) -> LaneValue:
        return score - top

    def kept(self, condition: bool, value: tuple) -> tuple:
        return tuple(self.choose(condition, item, 0.0) for item in value)

    @staticmethod
    def any_above(value: LaneValue, limit: LaneValue) -> bool:
        return bool((value.numbers > limit.numbers).any())

    @staticmethod
    def add_tuples(a: tuple, b: tuple) -> tuple:
        return tuple(x + y for x, y in zip(a, b, strict=True))

    @staticmethod
    def copies(length: int) -> Callable:
        return lambda value: (value,) * length

    def spread(self, names: Sequence[str], used: Sequence[str]) -> Callable:
        return self._filled(self.row_full(0.0), names, used)

    def spread_heads(self, names: Sequence[str], used: Sequence[str]) -> Callable:
        return self._filled(self.heads_full(0.0), names, used)

    @staticmethod
    def _filled(zero: LaneValue, names: Sequence[str], used: Sequence[str]) -> Callable:
        def fill(found: tuple) -> tuple:
            items = dict(zip(used, found, strict=True))
            return tuple(zero + items.get(name, 0.0) for name in names)

        return fill

    # Sums

    def own_channels(self, row: LaneValue) -> LaneValue:
        sums = self._vector_sums(row).reshape(self.layout.head_values, self.layout.per_head)
        return LaneValue(self.layout, sums.sum(axis=1), False)

    def own_values(self, row: LaneValue) -> float:
        return self._vector_sums(row).sum()

    def _vector_sums(self, row: LaneValue) -> np.ndarray:
        there = np.array([there for _, _, there in self._vectors()])
        sums = spread(row, self.layout, True).reshape(self.layout.registers, self.layout.vector).sum(axis=1)
        return np.where(there, sums, 0.0)

    def own_heads(self, heads: LaneValue) -> float:
        numbers = spread(heads, self.layout, False)
        return sum(number for head, number in zip(self._heads(), numbers, strict=True) if self._owns(head))

    def _butterfly(self, value: Any, begin: int, end: int, combine: Callable = operator.add) -> Any:
        while begin < end:
            value, begin = combine(value, self.shuffle(value, begin)), 2 * begin
        return value

    def sum_channels(self, row: LaneValue) -> LaneValue:
        return self._butterfly(self.own_channels(row), 1, self.layout.lanes_per_head)

    def sum_lanes(self, number: float) -> float:
        return self._butterfly(number, 1, self.layout.lanes)

    def sum_subteams(self, value: LaneValue) -> LaneValue:
        return self._butterfly(value, self.layout.lanes, self.layout.team)

    def max_subteams(self, value: LaneValue) -> LaneValue:
        return self._butterfly(value, self.layout.lanes, self.layout.team, vocabulary.maximum)

    def sum_subteams_of(self, length: int) -> Callable:
        return lambda values: tuple(self.sum_subteams(value) for value in values)

    # Random numbers

    def dropout(self, seed: int, threshold: int, scale: float, edge: int, head: int) -> LaneValue:
        drawn = [_word(edge, head + mine, seed) for mine in self._heads()]
        return LaneValue(self.layout, np.array([scale if word >= threshold else 0.0 for word in drawn]), False)


def _word(edge: int, head: int, seed: int) -> int:
    """The word of Philox-4x32 that is a head's."""
    low = 0xFFFFFFFF
    a, b, c, d = edge & low, edge >> 32, (head & low) >> 2, 0
    first, second = seed & low, (seed >> 32) & low
    for _ in range(ROUNDS):
        product, other = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (other >> 32) ^ b ^ first, other & low, (product >> 32) ^ d ^ second, product & low
        first, second = (first + KEY_STEPS[0]) & low, (second + KEY_STEPS[1]) & low
    return (a, b, c, d)[head & 3]


class Memory:
    """Hands a tensor through the simulator, which would copy an array."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _items(function: Callable, items: tuple) -> tuple:
    """A tuple of `function` of each item, named if `items` is."""
    found = tuple(map(function, items))
    return type(items)(*found) if hasattr(items, '_fields') else found


def _seen(argument: Any) -> Any:
    """An argument as a body sees it."""
    if isinstance(argument, Memory):
        return argument.tensor
    return _items(_seen, argument) if isinstance(argument, tuple) else argument


def _hidden(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return Memory(argument)
    return _items(_hidden, argument) if isinstance(argument, tuple) else argument


class SimulatedKernel:
    """Stands for `pygfuse.cuda.kernel.Kernel`: tensors are on the CPU, threads are the simulator's."""

    def __init__(self, make_body: Callable, layout: Layout, name: str, *machine_code: Any) -> None:
        self.make_body, self.layout, self.name = make_body, layout, name
        self.block = TEAMS * layout.team

    def blocks(self, teams: int) -> int:
        return max(1, -(-teams // TEAMS))

    def __call__(self, device: torch.device, blocks: int, tiles: int, *arguments: Any) -> None:
        body = self.make_body(Lanes(self.layout, (blocks, tiles)))

        def entry(*hidden):
            body(*(_seen(argument) for argument in hidden))

        cuda.jit(entry)[(blocks, tiles), self.block](*(_hidden(argument) for argument in arguments))
