from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

from pygfuse.call.call import Dropout
from pygfuse.codegen import philox as philox_words
from pygfuse.codegen.philox import threshold_and_scale
from pygfuse.cpu import random
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.random import dropout_edges, dropout_factors
from pygfuse.cpu.vectors.layout import Layout
from pygfuse.cpu.vectors.numbers import ELEMENT_TYPES

WORD = 2**32
# what machine code of kernels of this file follows from, too
SOURCES = tuple(map(inspect.getsource, (random, philox_words)))
# of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", for Philox-4x32 with seven rounds:
# counter, key, result
KNOWN_ANSWERS = [
    ([0, 0, 0, 0], [0, 0], [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]),
    (
        [0xFFFFFFFF] * 4,
        [0xFFFFFFFF] * 2,
        [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662],
    ),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A],
    ),
]


def philox(counter, key, rounds: int = 7) -> list:
    """Philox-4x32 in NumPy, on words of any shape."""
    a, b, c, d = (np.asarray(word, dtype=np.uint64) for word in counter)
    first, second = (int(word) for word in key)
    for _ in range(rounds):
        low, high = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (
            (high >> np.uint64(32)) ^ b ^ np.uint64(first),
            high & np.uint64(WORD - 1),
            (low >> np.uint64(32)) ^ d ^ np.uint64(second),
            low & np.uint64(WORD - 1),
        )
        first, second = (first + 0x9E3779B9) % WORD, (second + 0xBB67AE85) % WORD
    return [a, b, c, d]


@pytest.mark.parametrize(('counter', 'key', 'result'), KNOWN_ANSWERS)
def test_the_reference_gives_the_published_answers(counter, key, result):
    assert [int(word) for word in philox(counter, key)] == result


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('heads', [1, 2, 3, 4, 5, 6, 8, 12, 17])
@pytest.mark.parametrize(('p', 'seed'), [(0.5, 0), (0.1, 2**62 + 12345), (0.9, 0xFFFFFFFF)])
def test_factors_are_drawn_by_philox(p, seed, heads, dtype):
    rows = 4999  # more than one part, and a ragged end
    found = dropout_factors(rows, heads, Dropout(p, seed), dtype)
    edge, head = np.meshgrid(np.arange(rows), np.arange(heads), indexing='ij')
    blocks = philox([edge, np.zeros_like(edge), head // 4, np.zeros_like(edge)], [seed % WORD, seed >> 32])
    words = np.choose(head % 4, blocks)
    expected = np.where(words >= round(p * WORD), 1 / (1 - p), 0.0)
    torch.testing.assert_close(found.double(), torch.from_numpy(expected), rtol=1e-7, atol=0)


@pytest.mark.parametrize('held', [1, 2, 3, 4, 6, 8, 12])
def test_tiles_of_heads_draw_what_the_whole_row_draws(held):
    rows, heads, dropout = 1001, 24, Dropout(0.5, 2**40 + 5)
    layout = Layout(ELEMENT_TYPES[torch.float32], held, 1)
    draw, store, step = dropout_edges(layout), layout.store_some_edges, layout.step

    def factors(part, rows, held, seed, threshold, scale, result):
        for q in range(0, rows, step):
            found = draw(seed, threshold, scale, None, q, rows, part * held)
            store(result, (part * rows + q) * held, found, rows - q)

    result = torch.empty(heads // held, rows, held)
    drawn = dropout.seed, *threshold_and_scale(dropout.probability)
    Kernel(factors, 'factors of tiles', (str(layout.edges), *SOURCES))(heads // held, rows, held, *drawn, result)
    expected = dropout_factors(rows, heads, dropout, torch.float32)
    assert torch.equal(result.transpose(0, 1).flatten(1), expected)


@pytest.mark.parametrize('heads', [1, 4])
def test_numbers_of_edges_beyond_32_bits(heads):
    edge_id, seed, p = torch.tensor([3, 3 + 2**32, 2**62 + 5, 5, 2**31 + 7]).repeat(20), 2**61 + 9, 0.5
    layout = Layout(ELEMENT_TYPES[torch.float32], heads, 1)
    draw, store, step = dropout_edges(layout), layout.store_some_edges, layout.step

    def factors(part, edge_id, heads, seed, threshold, scale, result):
        rows = len(edge_id)
        for q in range(0, rows, step):
            store(result, q * heads, draw(seed, threshold, scale, edge_id, q, rows, 0), rows - q)

    result = torch.empty(len(edge_id), heads)
    given = edge_id, heads, seed, *threshold_and_scale(p)
    Kernel(factors, 'factors of numbered edges', (str(layout.edges), *SOURCES))(1, *given, result)
    edge, head = np.meshgrid(edge_id.numpy(), np.arange(heads), indexing='ij')
    blocks = philox([edge % WORD, edge >> 32, head // 4, np.zeros_like(edge)], [seed % WORD, seed >> 32])
    expected = np.where(np.choose(head % 4, blocks) >= WORD // 2, 2.0, 0.0)
    assert result.tolist() == expected.tolist()


@pytest.mark.parametrize('p', [0.1, 0.5, 0.9])
def test_frequency(p):
    found = dropout_factors(100_000, 4, Dropout(p, 7), torch.float32)
    zeros = (found == 0).double()
    deviation = (p * (1 - p) / found.numel()) ** 0.5
    assert abs(float(zeros.mean()) - p) < 5 * deviation
    # neighbouring heads and edges are independent
    for first, second in ((zeros[:, 0], zeros[:, 1]), (zeros[:-1, 0], zeros[1:, 0])):
        both = float((first * second).mean())
        assert abs(both - p * p) < 5 * (p * p * (1 - p * p) / len(first)) ** 0.5


def test_seeds_differ():
    draws = [dropout_factors(1000, 1, Dropout(0.5, seed), torch.float32) for seed in (0, 1, 2**32, 2**33)]
    for i, first in enumerate(draws):
        assert all(not torch.equal(first, second) for second in draws[i + 1 :])


def test_the_ends_of_the_range():
    assert threshold_and_scale(0.0) == (0, 1.0)
    assert threshold_and_scale(0.5) == (2**31, 2.0)
    assert threshold_and_scale(1.0)[1] == 0.0
    assert not dropout_factors(100, 2, Dropout(1.0, 0), torch.float32).any()
    # hardly anything is kept, and what is kept is finite
    almost = dropout_factors(100, 2, Dropout(1 - 1e-12, 0), torch.float64)
    assert bool(almost.isfinite().all())


def test_no_rows():
    assert dropout_factors(0, 4, Dropout(0.5, 0), torch.float32).shape == (0, 4)
