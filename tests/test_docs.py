from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
import torch

import pygfuse

MODULES = ['pygfuse', *(found.name for found in pkgutil.walk_packages(pygfuse.__path__, 'pygfuse.'))]


@pytest.mark.parametrize('name', MODULES)
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    torch.manual_seed(0)
    result = doctest.testmod(
        module, extraglobs={'torch': torch}, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert result.failed == 0


@pytest.mark.parametrize('name', ['fuse', 'knn', 'knn_graph', 'report'])
def test_public_functions_have_examples(name):
    assert '>>>' in getattr(pygfuse, name).__doc__
