"""What kernels' bodies may say, against Python itself."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.translation.functions import inlined
from pygfuse.cpu.translation.statements import TranslationError

NUMBERS = [-7, -3, -1, 0, 1, 2, 5, 8]


def run(body, *arguments):
    Kernel(body, f'test of {body.__name__}', (str(arguments),))(1, *arguments)


def integers(part, x, y, out):
    for i in range(len(x)):
        a, b = x[i], y[i]
        at = 8 * i
        out[at], out[at + 1], out[at + 2], out[at + 3] = a + b, a - b, a * b, a // b
        out[at + 4], out[at + 5], out[at + 6], out[at + 7] = a % b, min(a, b, 3), max(a, b), a << (b & 3) >> 1


def test_integers_are_those_of_python():
    pairs = [(a, b) for a in NUMBERS for b in NUMBERS if b]
    x, y = torch.tensor(pairs, dtype=torch.int32).T.contiguous()
    out, expected = torch.zeros(2, len(pairs) * 8, dtype=torch.int64)
    run(integers, x, y, out)
    integers(0, x.tolist(), y.tolist(), expected)
    assert torch.equal(out, expected)


def divided(part, x, out):
    out[0], out[1] = x // 0, x % (x - x)


def test_integers_over_zero_are_zero():
    out = torch.ones(2, dtype=torch.int64)
    run(divided, 5, out)
    assert out.tolist() == [0, 0]


def compared(part, x, y, out):
    for i in range(len(x)):
        a, b = x[i], y[i]
        out[5 * i] = a < b
        out[5 * i + 1] = (a == b) + 2 * (a != b) + 4 * (a >= b)
        out[5 * i + 2] = -1 < a <= b < 7
        out[5 * i + 3] = not (a > 1 and b > 1) or a == 5
        out[5 * i + 4] = 3 if a > b else (2 if a < b else 1)


@pytest.mark.parametrize('dtype', [torch.int32, torch.float32, torch.float64])
def test_comparisons_are_those_of_python(dtype):
    x, y = torch.tensor([(a, b) for a in NUMBERS for b in NUMBERS], dtype=dtype).T.contiguous()
    if dtype.is_floating_point:
        x[3] = y[9] = float('nan')
    out, expected = torch.zeros(2, len(x) * 5, dtype=torch.int64)
    run(compared, x, y, out)
    compared(0, x.tolist(), y.tolist(), expected)
    assert torch.equal(out, expected)


def guarded(part, x, place, out):
    out[0] = place < len(x) and x[place] > 0
    out[1] = place >= len(x) or x[place] > 0


def test_what_is_decided_is_not_read():
    out = torch.full((2,), 7)
    # the place is in no memory
    run(guarded, torch.ones(2), 1 << 60, out)
    assert out.tolist() == [0, 1]


@inlined
def _first_above(x, limit):
    for i in range(len(x)):
        if x[i] > limit:
            return i, x[i]
    return -1, 0.0


def searched(part, x, out):
    for k in range(3):
        place, value = _first_above(x, 10 * k)
        if place < 0:
            continue
        out[2 * k], out[2 * k + 1] = place, value
    i = 0
    while True:
        if x[i] > 15:
            break
        i += 1
    out[6] = i


def test_results_from_several_places_and_loops_that_end_early():
    out = torch.full((7,), -5.0)
    run(searched, torch.tensor([0.0, 4.0, 12.5, 19.0]), out)
    assert out.tolist() == [1.0, 4.0, 2.0, 12.5, -5.0, -5.0, 3.0]


def looped(part, n, step, out):
    count = 0
    for i in range(n, -1, -2):
        out[count] = i
        count += 1
    for i in range(1, n, step):
        out[count] = i
        count += 1
    for i in (n, 2 * n):
        out[count] = i
        count += 1


def test_loops():
    out, expected = torch.full((2, 20), -1)
    run(looped, 7, 3, out)
    looped(0, 7, 3, expected)
    assert torch.equal(out, expected)


def swapped(part, x, y, use, out):
    if use is None:
        x, y = y, x
    first, second = x, y
    for _ in range(3):
        first, second = second, first
    out[0], out[1], out[2] = first[0], len(first), second[0]


@pytest.mark.parametrize('use', [None, 1])
def test_arrays_and_what_is_none(use):
    x, y, out, expected = torch.ones(3), torch.full((5,), 2.0), torch.zeros(3), torch.zeros(3)
    run(swapped, x, y, use, out)
    swapped(0, x, y, use, expected)
    assert torch.equal(out, expected)


def branched(part, use, out):
    if use is None:
        out[0] = 1
    elif use > 1:
        out[0] = 2
    else:
        out[0] = 3
    if use is not None:
        out[1] = use
    else:
        out[1] = -1
    out[2] = 5 if use is None else 6


@pytest.mark.parametrize('use', [None, 1, 4])
def test_branches_of_what_is_known(use):
    out, expected = torch.zeros(2, 3, dtype=torch.int64)
    run(branched, use, out)
    branched(0, use, expected)
    assert torch.equal(out, expected)


def allocated(part, n, out):
    for size in range(1, n):
        room, other = np.empty(size, np.int64), np.empty(n, np.int32)
        for i in range(size):
            room[i] = i * part
        other[0] = room[size - 1]
        out[part] += other[0]


def test_memory_is_given_back():
    out = torch.zeros(64, dtype=torch.int64)
    kernel = Kernel(allocated, 'test of memory')
    expected = torch.arange(64) * sum(range(299))
    resident = []
    for _ in range(20):
        out.zero_()
        kernel(64, 300, out)
        assert torch.equal(out, expected)
        pages = int(Path('/proc/self/statm').read_text().split()[1])
        resident.append(pages * os.sysconf('SC_PAGE_SIZE'))
    # each call allocates some 45 MB
    assert resident[-1] - resident[0] < 100e6


def _with_keyword(part, out):
    out[0] = min(out[0], key=1)


def _with_other_type(part, out):
    x = 0
    x = out[0]
    out[0] = x


def _with_plain_function(part, out):
    out[0] = run(out)


def _with_mixed_signs(part, out):
    out[0] = np.uint64(3) + part


def _with_lambda(part, out):
    x = lambda: 0  # noqa: E731
    out[0] = x


@pytest.mark.parametrize(
    ('body', 'reason'),
    [
        (_with_keyword, 'no arguments by name'),
        (_with_other_type, r'Expected int64, as which the variable began \(got float32\)'),
        (_with_plain_function, 'has to be marked as inlined'),
        (_with_mixed_signs, 'integers that all have a sign or all have none'),
        (_with_lambda, 'a kernel has no Lambda'),
    ],
)
def test_what_is_not_there_is_refused_where_it_stands(body, reason):
    line = body.__code__.co_firstlineno + 1 + (body is _with_other_type)
    with pytest.raises(TranslationError, match=rf'test_translation\.py:{line}: (?s:.*){reason}'):
        run(body, torch.zeros(1))


def test_a_source_that_was_changed_is_refused(tmp_path, monkeypatch):
    (tmp_path / 'changing.py').write_text('def body(part, out):\n    out[0] = 1\n')
    monkeypatch.syspath_prepend(tmp_path)
    import changing

    (tmp_path / 'changing.py').write_text('def other(part, x, out):\n    out[0] = 2\n    x[0] = 2\n')
    with pytest.raises(ValueError, match='was changed since this process read it'):
        run(changing.body, torch.zeros(1))
