"""The code in the guides runs, block after block."""

import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[1] / 'docs'
BLOCK = re.compile(r'^```python\n(.*?)^```', re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize('name', ['adding-a-conv.md'])
def test_code_of_a_guide(name):
    torch.manual_seed(0)
    blocks = BLOCK.findall((DOCS / name).read_text())
    assert blocks
    scope = {'__name__': 'guide'}
    for block in blocks:
        exec(compile(block, str(DOCS / name), 'exec'), scope)
