"""The list of mutations fits the sources; `python -m tests.mutations.run` shows that the tests notice them."""

from __future__ import annotations

import shlex

import pytest

from tests.mutations.mutation import ROOT
from tests.mutations.mutations import MUTATIONS


@pytest.mark.parametrize('mutation', MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_is_changed_stands_there_once(mutation):
    assert mutation.source().read_text().count(mutation.text) == 1
    assert mutation.replacement not in ('', mutation.text) or mutation.text.strip()
    compile(mutation.source().read_text().replace(mutation.text, mutation.replacement), mutation.file, 'exec')


@pytest.mark.parametrize('mutation', MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_tests_that_must_notice_are_there(mutation):
    named = [part for part in shlex.split(mutation.tests) if part.startswith('tests/')]
    assert named
    assert all((ROOT / part).exists() for part in named)


def test_names_differ():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 50
