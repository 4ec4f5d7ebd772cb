"""Numbers drawn from marks and keys: uniform, and independent as far as a test can tell."""

from __future__ import annotations

import pytest
import torch

from pygfuse.program.splitmix import drawn, keys, marks
from pygfuse.program.vocabulary import dropout_factor

EDGES, CHANNELS = 100_000, 32
CPU = torch.device('cpu')


@pytest.fixture(scope='module')
def numbers() -> torch.Tensor:
    torch.manual_seed(0)
    return drawn(marks(EDGES, CPU).unsqueeze(1), keys((CHANNELS,), CPU)).double()


def test_they_are_uniform(numbers):
    assert abs(float(numbers.mean()) - 0.5) < 5 * (1 / 12 / numbers.numel()) ** 0.5
    counts = torch.histc(numbers.float(), 64, 0.0, 1.0)
    expected = numbers.numel() / 64
    # of 63 degrees of freedom
    assert float(((counts - expected) ** 2 / expected).sum()) < 63 + 5 * 126**0.5
    assert float(((numbers.mean(dim=0) - 0.5) * (12 * EDGES) ** 0.5).abs().max()) < 5


def test_channels_and_edges_draw_apart(numbers):
    centred = (numbers - 0.5) * 12**0.5
    between = (centred.t() @ centred / EDGES).fill_diagonal_(0.0)
    assert float(between.abs().max()) < 5 / EDGES**0.5
    for distance in (1, 2, 3, 64, 4096):
        product = centred[distance:] * centred[:-distance]
        assert abs(float(product.mean())) < 5 / product.numel() ** 0.5
    # neighbours in both: of no channel is the next one a shift
    for distance in (1, 2):
        product = centred[distance:, 1:] * centred[:-distance, :-1]
        assert abs(float(product.mean())) < 5 / product.numel() ** 0.5


@pytest.mark.parametrize('first', [0, 2**22, 2**23 - 1000, 2**28])
def test_marks_of_many_edges_are_normal_numbers_that_differ(first):
    found = marks(first + 2000, CPU)[first:] if first < 2**24 else _marks_from(first, 2000)
    assert found.unique().numel() == 2000
    assert bool(found.isfinite().all())
    assert float(found.abs().min()) >= torch.finfo(torch.float32).tiny
    share = (drawn(found.unsqueeze(1), keys((CHANNELS,), CPU)) < 0.3).double().mean()
    assert abs(float(share) - 0.3) < 5 * (0.21 / 2000 / CHANNELS) ** 0.5


def _marks_from(first: int, count: int) -> torch.Tensor:
    """Those of later edges, without all before."""
    begin = int(marks(1, CPU).view(torch.int32))
    return torch.arange(begin + first, begin + first + count, dtype=torch.int32).view(torch.float32)


def test_marks_of_more_edges_are_those_of_others(monkeypatch):
    monkeypatch.setattr('pygfuse.program.splitmix.MOST_MARKS', 100)
    found = marks(250, CPU)
    assert torch.equal(found, marks(100, CPU)[torch.arange(250) % 100])


def test_keys_are_normal_numbers():
    found = keys((100_000,), CPU)
    assert bool(found.isfinite().all())
    assert float(found.min()) >= torch.finfo(torch.float32).tiny


def test_another_type_draws_the_same():
    some, key = marks(1000, CPU).unsqueeze(1), keys((CHANNELS,), CPU)
    assert torch.equal(drawn(some.double(), key.double()), drawn(some, key))


@pytest.mark.parametrize(('p', 'values'), [(0.0, {1.0}), (0.75, {0.0, 4.0}), (1.0, {0.0})])
def test_factors(p, values):
    found = dropout_factor(marks(100, CPU).unsqueeze(1), keys((8,), CPU), torch.full((8,), p))
    assert {*found.unique().tolist()} == values
