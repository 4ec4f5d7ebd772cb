import importlib.util

import pytest
import torch

from pygfuse._lib import backends


@pytest.fixture(autouse=True)
def _forget():
    backends._has_numba_cuda.cache_clear()
    yield
    backends._has_numba_cuda.cache_clear()


def test_cuda_without_its_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(ValueError, match=r"'cuda:0'.*pip install 'pygfuse\[cuda1[23]\]'"):
        backends.backend_of(torch.device('cuda:0'))


def test_other_devices_have_no_backend():
    with pytest.raises(ValueError, match="'mps' has no fused kernels"):
        backends.backend_of(torch.device('mps'))


@pytest.mark.parametrize('kind', ['cpu', 'cuda'])
def test_backends_have_the_same_functions(kind, monkeypatch):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: True)
    backend = backends.backend_of(torch.device(kind))
    assert all(callable(getattr(backend, name)) for name in ('forward', 'backward', 'weights', 'dropout_factors'))
    sorting = backends.sorting_of(torch.device(kind))
    assert all(callable(getattr(sorting, name)) for name in ('sort_by_target', 'transpose', 'inverted'))
    levels = backends.hag_walks_of(torch.device(kind))
    assert all(callable(getattr(levels, name)) for name in ('sums', 'extremes', 'extremes_backward'))
    search = backends.row_search_of(torch.device(kind))
    assert all(callable(getattr(search, name)) for name in ('active_rows', 'kept_rows'))
    if kind == 'cpu':
        assert all(callable(getattr(search, name)) for name in ('active_share', 'among_zeros', 'distances'))
    assert search.SYNCHRONISES is (kind == 'cuda')
