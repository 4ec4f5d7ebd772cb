from __future__ import annotations

import gc
import importlib
import importlib.util
import os
from types import ModuleType

import pytest
import torch

from tests.support.limits import AT_ONCE, BY_PYG

pytest.register_assert_rewrite('tests.support.parity')


@pytest.fixture(scope='session', autouse=True)
def usual_layers_first() -> None:
    from tests.support.cases import make_usual_layers  # once assertions of what it imports are rewritten

    make_usual_layers()


@pytest.fixture(autouse=True)
def _rows_are_always_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """On graphs as small as those of tests, `pygfuse.active` would compute all rows from the second block on."""
    monkeypatch.setattr('pygfuse.partial.rows.nodes.COST_OF_NODE', 0)


@pytest.fixture(autouse=True)
def _edges_are_many(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """As few as those of tests would all have a row at once, be a list or run by PyG, which tests of that ask for."""
    module = importlib.import_module('pygfuse.mapping.few_edges')
    limits = {name: getattr(module, name) for name in (*AT_ONCE, *BY_PYG, 'MOST_LISTED')}
    for name in limits:
        monkeypatch.setattr(module, name, 0)
    return limits


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch, _edges_are_many: dict[str, int]) -> None:
    """Few edges have a row at once, as for users; none runs by PyG."""
    for name in AT_ONCE:
        monkeypatch.setattr(f'pygfuse.mapping.few_edges.{name}', _edges_are_many[name])


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch, _edges_are_many: dict[str, int]) -> None:
    """Few edges of a sparse matrix are taken as a list, as for users."""
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_LISTED', _edges_are_many['MOST_LISTED'])


@pytest.fixture
def by_pyg(monkeypatch: pytest.MonkeyPatch, _edges_are_many: dict[str, int], at_once: None, listed: None) -> None:
    """Few edges run as for users, by PyG where that takes less."""
    for name in BY_PYG:
        monkeypatch.setattr(f'pygfuse.mapping.few_edges.{name}', _edges_are_many[name])


@pytest.fixture(scope='session')
def needs_torch_sparse() -> ModuleType:
    """The module torch_sparse. Where it is missing the test is skipped, and fails if CI is set."""
    try:
        importlib.import_module('torch_scatter')
        return importlib.import_module('torch_sparse')
    except (ImportError, OSError) as error:  # OSError: built for another torch
        reason = f'needs torch_scatter and torch_sparse ({error})'
    if os.environ.get('CI', '').lower() in ('1', 'true'):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def needs_sampler(request: pytest.FixtureRequest) -> None:
    """What PyG samples neighbourhoods with: pyg-lib, or torch_sparse, for which `needs_torch_sparse` answers."""
    if importlib.util.find_spec('pyg_lib') is None:
        request.getfixturevalue('needs_torch_sparse')


def pytest_collection_finish() -> None:
    """Leaves what was imported to no later round of the garbage collector, which took a tenth of all time."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker('cuda'):
            item.add_marker(pytest.mark.skip(reason='needs an NVIDIA GPU'))
