"""The adjoint of a maximum finds again which edges attain it: products are rounded in all its kernels alike."""

import importlib
import os
import re
from collections import Counter
from pathlib import Path

import pytest
import torch

from pygfuse.call.gradient import Gradient
from pygfuse.cuda import backend, kernels
from pygfuse.cuda.arguments import describe
from pygfuse.cuda.kernel import Kernel
from pygfuse.program.program import EdgeProgram, Operand
from pygfuse.program.vocabulary import sum_channels, tanh
from tests.support.comparison import check, random_call, random_graph

if os.environ.get('CI', '').lower() not in ('1', 'true'):
    pytest.importorskip('numba_cuda')
from tests.support.interpreter import forget_kernels

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'
OPERANDS = {
    'x': Operand('source', 'channels'),
    'y': Operand('target', 'channels'),
    'p': Operand('parameter', 'channels'),
}


def program(name, message, score=None):
    return EdgeProgram(f'test_extreme_{name}', OPERANDS, message, score)


# the product of what belongs to the target is one of a row in forward, and one of an edge along the transpose
SHIFTED = program('shifted', lambda x, y, p: x + y * p)
SCORED = program('scored', lambda weight, x: weight * x, lambda x, y, p: tanh(sum_channels(x * y * p)))
PLAINLY_SCORED = program('plainly_scored', lambda weight, x, y: weight * x + y, lambda x, y, p: sum_channels(x * y * p))


@pytest.mark.usefixtures('interpreted')
@pytest.mark.parametrize(
    ('chosen', 'reduce', 'shape'),
    [
        (SHIFTED, 'max', (1, 8)),
        pytest.param(SHIFTED, 'min', (2, 4), marks=pytest.mark.slow),
        pytest.param(SCORED, 'max', (2, 4), marks=pytest.mark.slow),
        # a head's channels in several vectors of each lane, all of one walk
        pytest.param(SCORED, 'max', (1, 260), marks=pytest.mark.slow),
    ],
)
def test_an_extreme_is_found_again(chosen, reduce, shape):
    check(backend, random_call(chosen, random_graph(6, 5, 60), *shape, torch.float32, reduce=reduce), 1e-4)


@pytest.fixture
def compiled(monkeypatch):
    """Gives the PTX of all kernels of a call for an architecture, by what they compute."""

    def texts(chosen, reduce, architecture):
        found = {}

        class Noted(Kernel):
            def __call__(self, device, blocks, tiles, *arguments):
                text, _ = self.ptx(tuple(describe(argument) for argument in arguments), architecture)
                found[self.name.split(',')[0].removeprefix(f'{chosen.name} ')] = text

        monkeypatch.setattr(kernels, 'Kernel', Noted)
        forget_kernels()
        call = random_call(chosen, random_graph(6, 5, 60), 1, 8, torch.float32, reduce=reduce)
        out, statistics = backend.forward(call)
        backend.backward(Gradient(call, out, statistics, torch.zeros_like(out), list(call.tensors)))
        if chosen.score is not None:
            backend.weights(call, statistics)
        return {name: text for name, text in found.items() if name in WALKS}

    yield texts
    forget_kernels()


WALKS = ('forward', 'backward by source', 'backward by target', 'weights')
ARCHITECTURES = [(8, 0), (9, 0), (10, 0)]


def arithmetic(text):
    """How often each instruction that a product or a sum may be occurs, of one number or of a pair."""
    return Counter(re.findall(r'\b((?:add|sub|mul|fma|mad)(?:\.\w+)*?\.f(?:32x2|32|64))\s', text))


@pytest.mark.parametrize('architecture', [pytest.param(ARCHITECTURES[0], marks=pytest.mark.slow), ARCHITECTURES[2]])
def test_products_of_an_extreme_are_rounded(compiled, architecture):
    texts = compiled(PLAINLY_SCORED, 'max', architecture)
    assert set(texts) == set(WALKS)
    for name, text in texts.items():
        found = arithmetic(text)
        assert sum(count for opcode, count in found.items() if opcode.startswith('mul.rn')) > 0
        # without .rn an assembler may fuse them
        assert {opcode for opcode in found if '.rn' not in opcode} == set(), name
        assert {opcode for opcode in found if opcode.startswith(('fma', 'mad'))} == set(), name


@pytest.mark.slow
def test_products_of_sums_are_fused(compiled):
    found = arithmetic(compiled(PLAINLY_SCORED, 'sum', (9, 0))['forward'])
    assert found['fma.rn.f32'] > 0


@pytest.mark.slow
@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_a_function_of_the_library_is_the_same_in_all_kernels(compiled, architecture):
    texts = compiled(SCORED, 'max', architecture)
    for text in texts.values():
        assert {opcode for opcode in arithmetic(text) if '.r' not in opcode} == set()
    # both score, of as many edges: what the library's hyperbolic tangent fuses, it fuses in either
    fused = [arithmetic(texts[name])['fma.rn.f32'] for name in ('forward', 'weights')]
    assert fused[0] == fused[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_no_assembler_fuses_products_of_an_extreme(compiled, architecture, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    assembler = importlib.import_module('static_speed.assembler')

    def fused(reduce):
        texts = compiled(PLAINLY_SCORED, reduce, architecture).values()
        codes = (assembler.disassembled(assembler.assembled(text, architecture).code) for text in texts)
        return [len(re.findall(r'\bFFMA2?\b', code)) for code in codes]

    try:
        of_sums = fused('sum')
    except FileNotFoundError as missing:
        pytest.skip(f'needs {missing.filename}')
    assert max(of_sums) > 0
    assert fused('max') == [0] * len(of_sums)
