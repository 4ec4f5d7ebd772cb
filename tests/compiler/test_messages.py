"""Random message functions give PyG's values and gradients, or are refused; `run.py` tries more of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.messages import outcome


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31))
def test_random_messages(seed):
    outcome(seed)


def test_most_of_them_are_compiled():
    assert sum(outcome(seed) is None for seed in range(60)) > 48


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(20000, 20020))
def test_random_messages_in_kernels(seed):
    outcome(seed, with_kernels=True)
