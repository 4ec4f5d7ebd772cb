"""Products of a list (`pygfuse.codegen.product_list`) by one launch: linear maps of few rows, and their adjoints.

One kernel a type serves all shapes, so that no width compiles anything. Several rows are multiplied side by side, as
many channels as registers hold; a sum runs in its order, in pieces of `DEPTH` that are added up.

Where the loss reads few nodes, most rows of gradients are zero: groups of rows of the left factor that are zero are not
multiplied, unless the right factor holds what is not finite, which times zero is NaN.

Each part of the work is the same share of the rows of every result, product after product: one that reads rows of an
earlier result of as many rows, or adds to it, waits for no other part. Of a sum over many more rows than it has itself
it is a share of these (`pygfuse.cpu.products.depth_shares`).
"""

from __future__ import annotations

import array
import functools
from collections.abc import Callable

import numpy as np
import torch
from numba import types

from pygfuse.codegen.product_list import (
    ADDED_UP,
    BEFORE_NUMBERS,
    IN_PARTS,
    PLACE_OF_TABLE,
    TURNED,
    WORDS,
    ProductList,
    entries_of,
)
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.compilation.launch import Launch
from pygfuse.cpu.nodes.zero_rows import are_corners_zero, line_of, looks
from pygfuse.cpu.products.depth_shares import shares_of
from pygfuse.cpu.products.matrix_products import is_mkl_slow
from pygfuse.cpu.translation.functions import Function, inlined
from pygfuse.cpu.vectors import simd
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.memory import alignment, numbers_at, pointer_at, turner
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES, NUMPY_TYPES
from pygfuse.cpu.walks.edge_products import TOGETHER, registers_of_block, repeated
from pygfuse.cpu.walks.inlining import compiled

# rows of both factors of a sum over rows that are read again from a core's first cache
DEPTH = 64
# rows of a share, and channels, from which on a look for rows that are zero costs next to nothing
LEAST_ROWS, LEAST_WIDTH = 64, 8
# multiplications from which on several threads take less than one
MOST_OF_ONE = 2**22
# those of a thread's share, of which there are at least and at most so many
SHARE, LEAST_SHARES, MOST_SHARES = 2**22, 4, 64
# numbers that all parts wrote, from which on several threads add them up
MOST_ADDED_BY_ONE = 2**17
# from which on rounding and calls are worth another way than torch's
_LEAST_FASTER = 2**20
# channels up to which it is as fast as MKL with AVX-512; without, MKL is a fifth faster
_WIDEST = 128


def _body(dtype: torch.dtype) -> Callable:
    element, number = ELEMENT_TYPES[dtype], NUMPY_TYPES[dtype]
    lanes = simd.register_bytes() // alignment(element)
    wide = registers_of_block() * lanes
    line = line_of(element)
    are_zero, are_finite = looks(line)
    word_at, at = numbers_at(ELEMENT_TYPES[torch.int64]), numbers_at(element)

    @inlined
    def is_finite(words, i, begin, end):
        # rows of the right factor that may not be multiplied: each part looks at its own alone
        first, last, begins, ends = begin, end, 0, words[i + 3]
        if words[i] & TURNED:
            first, last, begins, ends = begins, ends, begin, end
        return are_finite(at(words[i + 7]), first, last, words[i + 8], begins, ends)

    block, rest = _multiplied(Layout(element, 1, wide), False, are_zero), _multiplied(line, True, are_zero)
    turn, add_up = _turned(element, lanes, wide), _added_up(line)

    def multiply(part, parts, address, count, numbers):
        entries, table = word_at(address), word_at(numbers)
        words = np.empty(count * WORDS, np.int64)
        for i in range(count * WORDS):
            words[i] = table[entries[2 * i]] + entries[2 * i + 1]
        for i in range(0, count * WORDS, WORDS):
            rows, depth, width = words[i + 1], words[i + 2], words[i + 3]
            out, out_step = at(words[i + 12]), words[i + 13]
            first, last, start, stop = 0, rows, 0, depth
            if words[i] & IN_PARTS:
                shares = words[i + 11]
                if part >= shares:
                    continue
                start, stop = depth * part // shares, depth * (part + 1) // shares
                out = pointer_at(out, part * rows * width)
            else:
                groups = (rows + TOGETHER - 1) // TOGETHER
                first = groups * part // parts * TOGETHER
                last = min(groups * (part + 1) // parts * TOGETHER, rows)
            if first >= last:
                continue
            if words[i] & ADDED_UP:
                add_up(
                    first, last, depth, width, at(words[i + 7]), words[i + 5], words[i + 8], words[i + 10],
                    at(words[i + 10]), words[i + 11], out, out_step,
                )  # fmt: skip
                continue
            left, right, right_step = at(words[i + 4]), at(words[i + 7]), words[i + 8]
            is_turned = words[i] & TURNED
            turned = np.empty(depth * width if is_turned else 1, number)
            if is_turned:
                turn(right, right_step, width, depth, turned)
                right = pointer_at(turned, 0)
            # rows, or the depth, of the left factor lie side by side
            is_worth = depth > 0 and width >= LEAST_WIDTH
            by_rows = is_worth and words[i + 6] == 1 and last - first >= LEAST_ROWS
            by_depth = is_worth and words[i + 6] != 1 and words[i + 5] == 1
            skips = by_rows and is_finite(words, i, 0, depth)
            bias, adds = words[i + 9], words[i + 10]
            addend, addend_step = at(adds), words[i + 11]
            begin = start
            while True:
                end, column = min(begin + DEPTH, stop), 0
                # the first piece writes the result
                looks = by_depth and begin > start and are_corners_zero(left, begin, end, words[i + 6], first, last)
                if looks and are_zero(left, begin, end, words[i + 6], first, last):
                    column = width if is_finite(words, i, begin, end) else 0
                while column < width:
                    panel = right
                    if is_turned:
                        begins = column // wide * wide
                        panel, right_step = pointer_at(right, begins * depth - begins), min(wide, width - begins)
                    if column + wide <= width:
                        block(
                            left, words[i + 5], words[i + 6], first, last, begin, end, panel, right_step, column, wide,
                            bias, at(bias), adds, addend, addend_step, out, out_step, skips,
                        )  # fmt: skip
                        column += wide
                    else:
                        rest(
                            left, words[i + 5], words[i + 6], first, last, begin, end, panel, right_step, column,
                            width - column, bias, at(bias), adds, addend, addend_step, out, out_step, skips,
                        )  # fmt: skip
                        column += lanes
                begin = end
                if begin >= stop:
                    break
                # what follows is added to what is there
                bias, adds, addend, addend_step = 0, 1, out, out_step

    return multiply


def _turned(element: types.Float, lanes: int, wide: int) -> Function:
    """``turn(values, step, rows, columns, out)``: the transpose, ``[columns, rows]``, by blocks of whole registers.

    It is written in panels of `wide` of its columns, each of which is one run of memory: of a wide matrix, whose rows
    begin where others do in a core's first cache, few stay there.
    """
    turn_block = turner(element, lanes)

    def turn(values, step, rows, columns, out):
        whole_rows, whole_columns = rows // lanes * lanes, columns // lanes * lanes
        for c in range(rows):
            panel = c // wide * wide
            width, place = min(wide, rows - panel), panel * columns + c - panel
            if c < whole_rows and c % lanes == 0:
                for d in range(0, whole_columns, lanes):
                    turn_block(values, c * step + d, step, out, place + d * width, width)
            for d in range(whole_columns if c < whole_rows else 0, columns):
                out[place + d * width] = values[c * step + d]

    return inlined(turn)


def _added_up(line: Layout) -> Function:
    """``add_up(first, last, count, width, matrices, row_step, step, adds, addend, addend_step, out, out_step)``: some
    rows of the sum of so many matrices, each `step` numbers from the one before."""
    load, store, full, lanes = line.load_some_edges, line.store_some_edges, line.edges_full, line.channels

    def add_up(first, last, count, width, matrices, row_step, step, adds, addend, addend_step, out, out_step):
        for row in range(first, last):
            for column in range(0, width, lanes):
                found = full(0.0)
                for k in range(count):
                    found = found + load(matrices, k * step + row * row_step + column, width - column)
                if adds != 0:
                    found = found + load(addend, row * addend_step + column, width - column)
                store(out, row * out_step + column, found, width - column)

    return inlined(add_up)


def _multiplied(block: Layout, is_some: bool, are_zero: Function) -> Function:
    """``multiply(left, ..., column, valid, bias, ..., skips)``: the block's channels of some rows, or `valid` of them.

    Where `skips` is true, groups of rows that are zero are not multiplied.
    """
    load, store = (
        ('load({}, {}, valid)', 'store({}, {}, {}, valid)') if is_some else ('load({}, {})', 'store({}, {}, {})')
    )

    rows = f'left, q, q + {TOGETHER}, row_step, begin, end'
    # each look is code, which takes time to compile: not of single rows
    look = [f'        if skips and are_corners_zero({rows}) and are_zero({rows}):', '            stop = begin']

    def of_rows(together: int) -> list[str]:
        return [
            *repeated('        row# = pointer_at(left, (q + #) * row_step)', together),
            *repeated('        sum# = begun', together),
            '        stop = end',
            *(look if together > 1 else []),
            '        for d in range(begin, stop):',
            f'            values = {load.format("right", "d * right_step + column")}',
            *repeated('            sum# = sum# + row#[d * column_step] * values', together),
            '        if adds != 0:',
            *repeated(f'            sum# = sum# + {load.format("addend", "(q + #) * addend_step + column")}', together),
            *repeated(f'        {store.format("out", "(q + #) * out_step + column", "sum#")}', together),
        ]

    text = [
        'def multiply(',
        '    left, row_step, column_step, first, last, begin, end, right, right_step, column, valid,',
        '    bias, biases, adds, addend, addend_step, out, out_step, skips,',
        '):',
        '    begun = full(0.0)',
        '    if bias != 0:',
        f'        begun = {load.format("biases", "column")}',
        f'    whole = first + (last - first) // {TOGETHER} * {TOGETHER}',
        f'    for q in range(first, whole, {TOGETHER}):',
        *of_rows(TOGETHER),
        '    for q in range(whole, last):',
        *of_rows(1),
        '    return',
    ]
    if is_some:
        scope = {'load': block.load_some_edges, 'store': block.store_some_edges, 'full': block.edges_full}
    else:
        scope = {'load': block.load_row, 'store': block.store_row, 'full': block.row_full}
    scope |= {'are_zero': are_zero, 'are_corners_zero': are_corners_zero}
    return compiled('\n'.join(text), pointer_at=pointer_at, **scope)


def is_faster(dtype: torch.dtype, rows: int, inputs: int, outputs: int) -> bool:
    """Whether `multiply` takes less time than torch's product and what goes with it, of so many rows and such a map."""
    if dtype not in (torch.float32, torch.float64) or rows * inputs * outputs < _LEAST_FASTER:
        return False
    return is_mkl_slow() or (simd.register_bytes() == 64 and max(inputs, outputs) <= _WIDEST)


@functools.cache
def _launch(dtype: torch.dtype) -> Launch:
    kernel = Kernel(_body(dtype), f'a list of products, {ELEMENT_TYPES[dtype]}', (str(simd.register_bytes()),))
    return kernel.untested((0, 0, 0, 0))


def multiply_listed(dtype: torch.dtype, listed: ProductList, block: tuple[int, ...], work: int) -> None:
    """Computes the products of a list that was written once.

    Args:
        dtype: As of `multiply`.
        listed: The list.
        block: The head of the list, and the numbers of its names.
        work: As of `multiply`.
    """
    if work >= MOST_OF_ONE and listed.may_be_dealt:
        multiply(dtype, listed.words(block[BEFORE_NUMBERS:]), work)
        return
    held = array.array('q', block)
    held[PLACE_OF_TABLE], _ = address, _ = held.buffer_info()
    if work < MOST_OF_ONE:
        _launch(dtype).alone(address)
    else:
        _launch_parts(_launch(dtype), held, _parts_of(work))


class OfList:
    """The launch of a list that was written once.

    Args:
        dtype, listed: As of `multiply_listed`.

    Attributes:
        address, most: As of `pygfuse.codegen.launch_lines.Runnable`.
    """

    def __init__(self, dtype: torch.dtype, listed: ProductList) -> None:
        self._dtype, self._listed = dtype, listed
        self.address, self.most = _launch(dtype).address, MOST_OF_ONE

    def run(self, block: array.array, work: int) -> None:
        """Computes the products of a block of the list."""
        multiply_listed(self._dtype, self._listed, tuple(block), work)


def multiply(dtype: torch.dtype, words: tuple[int, ...], work: int) -> None:
    """Computes the products of a list, one after another.

    Args:
        dtype: Of all matrices, float32 or float64.
        words: The list. A product that reads an earlier result as `left` or `addend` has as many rows; none reads one
            as `right`.
        work: The number of multiplications, which decides how many threads share them.
    """
    parts = _parts_of(work)
    shares = None if parts == 1 else shares_of(words, parts)
    if shares is None:
        _run(dtype, words, parts)
        return
    written = torch.empty(shares.size, dtype=dtype, device='cpu')
    dealt, sums = shares.lists(written.data_ptr(), dtype.itemsize)
    _run(dtype, dealt, parts)
    _run(dtype, sums, 1 if shares.size < MOST_ADDED_BY_ONE else LEAST_SHARES)


def _parts_of(work: int) -> int:
    return 1 if work < MOST_OF_ONE else min(MOST_SHARES, max(LEAST_SHARES, work // SHARE))


def _run(dtype: torch.dtype, words: tuple[int, ...], parts: int) -> None:
    entries = entries_of(words)
    block = array.array('q', (0, 0, 0, entries.buffer_info()[0], len(words) // WORDS, 0, 0))
    block[PLACE_OF_TABLE], _ = block.buffer_info()
    _launch_parts(_launch(dtype), block, parts)


def _launch_parts(launch: Launch, block: array.array, parts: int) -> None:
    block[1] = block[2] = parts
    launch.run(block, min(parts, torch.get_num_threads()))
