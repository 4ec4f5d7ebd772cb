"""The code in the guides runs, block after block."""

import importlib
import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[1] / 'docs'
BLOCK = re.compile(r'^```python\n(.*?)^```', re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize('name', ['adding-a-conv.md', 'guides/compile.md', 'guides/data.md', 'guides/distributed.md'])
def test_code_of_a_guide(name, tmp_path, monkeypatch):
    blocks = BLOCK.findall((DOCS / name).read_text())
    assert blocks
    # a module of its own: PyG reads the sources of classes
    module = re.sub(r'\W', '_', name.removesuffix('.md')) + '_guide'
    (tmp_path / f'{module}.py').write_text('\n'.join(blocks))
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    importlib.import_module(module)
