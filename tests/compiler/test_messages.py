"""Random messages and modules give the values and gradients of their own code, or are refused; `run.py` tries more."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.compiler.outcomes import outcome


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31))
def test_random_messages(seed):
    outcome(seed)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
@example(154)
@example(700297)
@example(710048)
def test_random_modules(seed):
    outcome(seed, of_modules=True)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
def test_random_modules_of_copies(seed):
    outcome(seed, of_copies=True)


@pytest.mark.slow
@pytest.mark.parametrize('of_modules', [False, True])
def test_most_of_them_are_compiled(of_modules):
    found = [outcome(seed, of_modules=of_modules) for seed in range(60)]
    asked = [reason for reason in found if reason != 'PyG does not run it either']
    assert sum(reason is None for reason in asked) > (0.7 if of_modules else 0.8) * len(asked)
    assert len(asked) > 30


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(20000, 20020))
def test_random_messages_in_kernels(seed):
    outcome(seed, with_kernels=True)
    outcome(seed, with_kernels=True, of_modules=True)
    outcome(seed, with_kernels=True, of_copies=True)


def test_some_of_copies_are_compiled():
    found = [outcome(seed, of_copies=True) for seed in range(40)]
    assert sum(reason is None for reason in found) > 10
