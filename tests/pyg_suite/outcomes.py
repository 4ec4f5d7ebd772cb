"""A plugin of pytest that seeds each test and writes what became of it to a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

_found: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption('--outcomes', type=Path, required=True, help='the file that outcomes by test are written to')
    parser.addoption('--torch-seed', type=int, default=0, help='of each test: many of PyG draw without one')


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    torch.manual_seed(request.config.getoption('--torch-seed'))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome != 'passed':
        _found[report.nodeid] = report.outcome


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == 'call' or report.outcome != 'passed':
        _found[report.nodeid] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.getoption('--outcomes').write_text(json.dumps(_found))
