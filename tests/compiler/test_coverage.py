from __future__ import annotations

import re

import pygfuse
from tests.compiler import coverage


def test_the_tables_are_those_of_today(needs_torch_sparse):
    assert coverage.DATA.read_text() == coverage.as_json(), 'run python -m tests.compiler.coverage'
    assert coverage.PAGE.read_text() == coverage.as_page(), 'run python -m tests.compiler.coverage'


def test_every_class_of_pyg_is_in_it():
    assert len(list(pygfuse.supported())) == len(coverage.classes()) == 57


def test_this_many_run_fused():
    rows = list(pygfuse.supported())
    assert sum(row.form in coverage.FUSED for row in rows) >= 49
    assert all(row.reason for row in rows if row.form not in coverage.FUSED)
    assert str(pygfuse.supported()).endswith('of 57 classes run fused')


def test_other_pages_name_the_same_number():
    (count,) = re.findall(r"^(\d+) of PyG's 57", coverage.PAGE.read_text(), re.MULTILINE)
    for page in (coverage.ROOT / 'README.md', coverage.ROOT / 'docs' / 'index.md'):
        assert set(re.findall(r"(\d+) of PyG's 57", page.read_text())) == {count}, page.name
