"""What the documents say of the package's files is so."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]
# functions that the walk of a call names, and files that a text names
STEP = re.compile(r'([\w/]+\.py): (\w+)')
FILE = re.compile(r'`([\w/]+\.py)`')
FOLDERS = (ROOT, ROOT / 'pygfuse', ROOT / 'pygfuse' / 'cuda', ROOT / 'pygfuse' / 'cpu')

STEPS = STEP.findall((ROOT / 'docs' / 'architecture.md').read_text())


@pytest.mark.parametrize(('file', 'name'), STEPS)
def test_the_walk_of_a_call_names_functions_that_exist(file, name):
    tree = ast.parse((ROOT / 'pygfuse' / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_there_is_a_walk():
    assert len(STEPS) > 20


@pytest.mark.parametrize('document', DOCUMENTS, ids=lambda path: path.name)
def test_files_that_a_document_names_exist(document):
    named = set(FILE.findall(document.read_text()))
    assert [file for file in sorted(named) if not any((folder / file).is_file() for folder in FOLDERS)] == []


def test_the_root_holds_what_a_user_imports():
    assert sorted(path.name for path in (ROOT / 'pygfuse').iterdir() if path.is_file()) == [
        '__init__.py',
        '__main__.py',
        'memory.py',
        'py.typed',
        'reporting.py',
        'swap.py',
    ]


def test_no_module_is_long():
    lines = {path: len(path.read_text().splitlines()) for path in (ROOT / 'pygfuse').rglob('*.py')}
    assert [str(path) for path, count in lines.items() if count > 400] == []
