"""The code in the documents runs, block after block."""

import importlib
import re
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.usefixtures('by_pyg')
DOCS = Path(__file__).parents[1] / 'docs'
BLOCK = re.compile(r'^```python\n(.*?)^```', re.MULTILINE | re.DOTALL)
# these show one line each in a setting of the reader's, with data that are not here
FRAGMENTS = {'cuda.md', 'group-sizes.md', 'hags.md'}
PAGES = {str(page.relative_to(DOCS)): BLOCK.findall(page.read_text()) for page in sorted(DOCS.rglob('*.md'))}
WITH_CODE = [name for name, blocks in PAGES.items() if blocks and name not in FRAGMENTS]


def test_there_are_pages_with_code():
    assert len(WITH_CODE) > 8
    assert all(PAGES[name] for name in FRAGMENTS)


@pytest.mark.parametrize('name', WITH_CODE)
def test_code_of_a_page(name, tmp_path, monkeypatch):
    # a module of its own: PyG reads the sources of classes
    module = re.sub(r'\W', '_', name.removesuffix('.md')) + '_page'
    (tmp_path / f'{module}.py').write_text('\n'.join(PAGES[name]))
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    importlib.import_module(module)
