from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
import re
import sys
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
pytestmark = pytest.mark.usefixtures('by_pyg')
MODULES = ['pygfuse', *(found.name for found in pkgutil.walk_packages(pygfuse.__path__, 'pygfuse.'))]
# layers, in their examples
DEFINES_CLASSES = ('pygfuse.swap',)


@pytest.mark.parametrize('name', MODULES)
def test_examples_in_docstrings(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        if not name.startswith('pygfuse.cuda.') or importlib.util.find_spec('numba_cuda') is not None:
            raise
        pytest.skip('needs numba-cuda')
    if name in DEFINES_CLASSES and sys.version_info >= (3, 13):
        pytest.skip('PyG reads the source of a class, which Python no longer finds in a docstring')
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


# what `pygfuse.conv` and `pygfuse.transforms` hold has pages of their own
PACKAGES = (
    'pygfuse',
    *(f'pygfuse.{name}' for name in ('conv', 'distributed', 'memory', 'ops', 'program', 'transforms')),
)
LINK = re.compile(r'\]\((?!https?://|#)([^)#\s]+)')


@pytest.mark.parametrize('package', PACKAGES)
def test_the_reference_has_all_that_is_public(package):
    pages = '\n'.join(page.read_text() for page in (ROOT / 'docs' / 'reference').glob('*.md'))
    named = re.findall(rf'^::: {re.escape(package)}\.(\w+)$', pages, re.MULTILINE)
    public = [name for name in importlib.import_module(package).__all__ if f'{package}.{name}' not in PACKAGES]
    assert sorted(named) == sorted(public)


@pytest.mark.parametrize(
    'page', [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_somewhere(page):
    linked = LINK.findall(page.read_text())
    assert [link for link in linked if not (page.parent / link).exists()] == []


def test_the_site_has_every_page():
    said = (ROOT / 'mkdocs.yml').read_text()
    pages = {str(page.relative_to(ROOT / 'docs')) for page in (ROOT / 'docs').rglob('*.md')}
    assert {page for page in pages if not re.search(rf'[ ]{re.escape(page)}$', said, re.MULTILINE)} == set()
