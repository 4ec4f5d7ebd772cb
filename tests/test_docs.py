from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

import pygfuse
import pygfuse.conv
import pygfuse.distributed
import pygfuse.memory
import pygfuse.transforms

ROOT = Path(__file__).parent.parent
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
    'module',
    [pygfuse, pygfuse.conv, pygfuse.distributed, pygfuse.memory, pygfuse.transforms],
    ids=lambda m: m.__name__,
)
def test_public_functions_have_examples(module):
    public = {name: getattr(module, name) for name in module.__all__}
    functions = {name: value for name, value in public.items() if not isinstance(value, ModuleType)}
    assert [name for name, value in functions.items() if '>>>' not in value.__doc__] == []


def test_the_tests_that_works_with_names_are_there():
    text = (ROOT / 'docs' / 'works-with.md').read_text()
    named = re.findall(r'`(tests/[\w/]+\.py)::(\w+)`', text)
    assert len(named) == text.count('tests/')
    for path, name in named:
        assert re.search(rf'^def {name}\(', (ROOT / path).read_text(), re.MULTILINE), (path, name)
