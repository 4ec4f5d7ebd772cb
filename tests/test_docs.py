from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
from types import ModuleType

import pytest
import torch

import pygfuse
import pygfuse.conv
import pygfuse.memory
import pygfuse.transforms

MODULES = ['pygfuse', *(found.name for found in pkgutil.walk_packages(pygfuse.__path__, 'pygfuse.'))]


@pytest.mark.parametrize('name', MODULES)
def test_examples_in_docstrings(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        if not name.startswith('pygfuse.cuda.') or importlib.util.find_spec('numba_cuda') is not None:
            raise
        pytest.skip('needs numba-cuda')
    torch.manual_seed(0)
    result = doctest.testmod(
        module, extraglobs={'torch': torch}, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert result.failed == 0


@pytest.mark.parametrize(
    'module', [pygfuse, pygfuse.conv, pygfuse.memory, pygfuse.transforms], ids=lambda m: m.__name__
)
def test_public_functions_have_examples(module):
    public = {name: getattr(module, name) for name in module.__all__}
    functions = {name: value for name, value in public.items() if not isinstance(value, ModuleType)}
    assert [name for name, value in functions.items() if '>>>' not in value.__doc__] == []
