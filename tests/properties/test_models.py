"""Models of several layers, trained within ``torch.compile``."""

from __future__ import annotations

import pytest

from tests.properties.models import fault_of


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(4))
def test_random_models_are_trained_as_pygs_are(seed):
    assert fault_of(seed, 'aot_eager') is None


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(107, 109))
def test_inductor_trains_them_so_too(seed):
    assert fault_of(seed, 'inductor') is None
