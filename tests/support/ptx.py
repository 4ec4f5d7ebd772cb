"""The text of PTX: its instructions, and what those of arithmetic compute.

It knows what the walks compile to and nothing else. What an assembler is free to do is drawn anew for each text.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.contraction import contracted

REGISTERS = {
    '%temp': np.uint32,  # in doubles taken apart
    '%p': np.bool_,
    '%rs': np.uint16,
    '%h': np.uint16,
    '%rd': np.uint64,
    '%r': np.uint32,
    '%fd': np.float64,
    '%f': np.float32,
}
TYPES = {
    'u8': np.uint8, 'u16': np.uint16, 'u32': np.uint32, 'u64': np.uint64, 's16': np.int16, 's32': np.int32,
    's64': np.int64, 'b16': np.uint16, 'b32': np.uint32, 'b64': np.uint64, 'f16': np.float16, 'f32': np.float32,
    'f64': np.float64, 'pred': np.bool_,
}  # fmt: skip
COMPARISONS = {
    'eq': np.equal, 'ne': np.not_equal, 'lt': np.less, 'le': np.less_equal, 'gt': np.greater, 'ge': np.greater_equal,
    'lo': np.less, 'ls': np.less_equal, 'hi': np.greater, 'hs': np.greater_equal,
}  # fmt: skip
# what a comparison becomes if it is to be true of NaN
UNORDERED = {'equ': 'eq', 'neu': 'ne', 'ltu': 'lt', 'leu': 'le', 'gtu': 'gt', 'geu': 'ge'}

# conversions to integral values
INTEGRAL = {'rni': np.rint, 'rzi': np.trunc, 'rmi': np.floor, 'rpi': np.ceil}


class Program:
    """A kernel.

    Args:
        text: PTX with one entry.

    Attributes:
        text: The PTX.
        name: Of the entry.
        parameters: How many there are.
        threads: The threads of a block that it is compiled for.
        instructions: Each as ``(predicate, opcode, operands)``.
        labels: The instruction at each of them.
        shared: Where each array of shared memory begins.
        shared_bytes: How much of it there is.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        begin = text.index('{', text.index('.entry'))
        header, body = text[text.index('.entry') : begin], text[begin + 1 : text.rindex('}')]
        self.name = re.match(r'\.entry\s+([\w$]+)', header).group(1)
        self.parameters = len(re.findall(r'\.param\s+\.[bu]64', header))
        self.threads = int(re.search(r'\.maxntid\s+(\d+)', header).group(1))
        self.shared, self.shared_bytes = _laid_out(text)
        self.instructions: list[tuple[str | None, str, list[str]]] = []
        self.labels: dict[str, int] = {}
        for line in body.split('\n'):
            line = line.split('//')[0].strip()
            if re.fullmatch(r'[$\w]+:', line):
                self.labels[line[:-1]] = len(self.instructions)
            elif line and not line.startswith('.') and line not in '{}':
                self.instructions.append(_parsed(line))
        self.instructions = contracted(self.instructions, np.random.default_rng(zlib.crc32(text.encode())))
        self.joins = {*self.labels.values()}


def _laid_out(text: str) -> tuple[dict[str, int], int]:
    """The places of arrays in shared memory, and its size."""
    places, size = {}, 0
    for align, name, length in re.findall(r'\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]', text):
        places[name] = -(-size // int(align)) * int(align)
        size = places[name] + int(length)
    return places, size


def _parsed(line: str) -> tuple[str | None, str, list[str]]:
    match = re.fullmatch(r'(?:@(!?%p\d+)\s+)?([a-z0-9_.]+)\s*(.*?)\s*;', line)
    assert match, f'not an instruction: {line}'
    predicate, opcode, rest = match.groups()
    operands = [operand.strip() for operand in re.findall(r'\{[^}]*\}|\[[^\]]*\]|[^,\s]+', rest)]
    return predicate, opcode, operands


def number(operand: str, kind: type) -> Any:
    if operand.startswith('0f'):
        return np.array(int(operand[2:], 16), dtype=np.uint32).view(np.float32).astype(kind)
    if operand.startswith('0d'):
        return np.array(int(operand[2:], 16), dtype=np.uint64).view(np.float64).astype(kind)
    if kind == np.bool_:
        return bool(int(operand))
    size = np.dtype(kind).itemsize
    return np.array(int(operand, 0) & ((1 << 8 * size) - 1), dtype=f'u{size}').view(kind)


def _rounded(flags: list[str], exact: np.ndarray, kind: np.dtype) -> np.ndarray:
    """A float64 result in its type, rounded as the flags say."""
    result = exact.astype(kind)
    if 'rm' in flags:
        return np.where(result.astype(np.float64) > exact, np.nextafter(result, kind.type(-np.inf)), result)
    if 'rz' in flags:
        beyond = np.abs(result.astype(np.float64)) > np.abs(exact)
        return np.where(beyond, np.nextafter(result, kind.type(0)), result)
    return result


def _floating(function: Callable) -> Callable:
    """Computes float32 in float64 and rounds once, so that a multiply-add is fused."""

    @functools.wraps(function)
    def computed(flags: list[str], *values: np.ndarray) -> np.ndarray:
        kind = values[0].dtype
        if kind.kind != 'f':
            return function(*values)
        return _rounded(flags, function(*(value.astype(np.float64) for value in values)), kind)

    return computed


def _multiplied(flags: list[str], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if 'wide' in flags:
        wider = {np.dtype(np.uint32): np.uint64, np.dtype(np.int32): np.int64}[x.dtype]
        return x.astype(wider) * y.astype(wider)
    return _floating(lambda a, b: a * b)(flags, x, y)


def _divided(flags: list[str], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == 'f':
        return _floating(lambda a, b: a / b)(flags, x, y)
    safe = np.where(y == 0, y.dtype.type(1), y)
    quotient = np.abs(x) // np.abs(safe)
    return np.where((x < 0) != (safe < 0), -quotient, quotient).astype(x.dtype) if x.dtype.kind == 'i' else x // safe


def _shifted(left: bool) -> Callable:
    def shift(flags: list[str], x: np.ndarray, y: np.ndarray) -> np.ndarray:
        distance = y.astype(np.uint64).astype(x.dtype)
        return x << distance if left else x >> distance

    return shift


def _plain(function: Callable) -> Callable:
    return lambda flags, *values: function(*values)


ARITHMETIC: dict[str, Callable] = {
    'add': _floating(lambda x, y: x + y),
    'sub': _floating(lambda x, y: x - y),
    'mul': _multiplied,
    'mad': _floating(lambda x, y, z: x * y + z),
    'fma': _floating(lambda x, y, z: x * y + z),
    # what `contracted` makes of differences
    'fms': _floating(lambda x, y, z: x * y - z),
    'fnma': _floating(lambda x, y, z: z - x * y),
    'div': _divided,
    'rcp': _floating(lambda x: 1.0 / x),
    'sqrt': _floating(np.sqrt),
    'ex2': _floating(np.exp2),
    'lg2': _floating(np.log2),
    'neg': _plain(lambda x: -x if x.dtype.kind != 'u' else (~x + x.dtype.type(1))),
    'abs': _plain(np.abs),
    'min': _plain(np.minimum),
    'max': _plain(np.maximum),
    'copysign': _plain(lambda sign, x: np.copysign(x, sign)),
    'and': _plain(lambda x, y: x & y),
    'or': _plain(lambda x, y: x | y),
    'xor': _plain(lambda x, y: x ^ y),
    'not': _plain(lambda x: ~x),
    'shl': _shifted(True),
    'shr': _shifted(False),
}
