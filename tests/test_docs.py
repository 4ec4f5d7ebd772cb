from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
import torch

import pygfuse

# what the compiler of the CUDA target is made of
NEED_NUMBA_CUDA = [f'pygfuse.cuda.{name}' for name in ('compilation', 'instructions', 'lanes', 'memory')]
MODULES = ['pygfuse', *(found.name for found in pkgutil.walk_packages(pygfuse.__path__, 'pygfuse.'))]


@pytest.mark.parametrize('name', MODULES)
def test_examples_in_docstrings(name):
    if name in NEED_NUMBA_CUDA:
        pytest.importorskip('numba_cuda')
    module = importlib.import_module(name)
    torch.manual_seed(0)
    result = doctest.testmod(
        module, extraglobs={'torch': torch}, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert result.failed == 0


@pytest.mark.parametrize('name', ['fuse', 'knn', 'knn_graph', 'report'])
def test_public_functions_have_examples(name):
    assert '>>>' in getattr(pygfuse, name).__doc__
