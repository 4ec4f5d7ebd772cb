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
        'distributed.py',
        'memory.py',
        'py.typed',
        'reporting.py',
        'swap.py',
    ]


def test_no_module_is_long():
    lines = {path: len(path.read_text().splitlines()) for path in (ROOT / 'pygfuse').rglob('*.py')}
    assert [str(path) for path, count in lines.items() if count > 400] == []


def test_types_are_asked_for_in_tuples():
    """``isinstance(x, A | B)`` is a break in a graph of the compiler of torch 2.9."""
    for path in (ROOT / 'pygfuse').rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'isinstance':
                assert not isinstance(node.args[1], ast.BinOp), f'{path.relative_to(ROOT)}:{node.lineno}'


def test_the_picture_of_the_house_has_the_layers_that_are_checked():
    layers = re.search(r'^layers = \[\n(.*?)^\]', (ROOT / 'pyproject.toml').read_text(), re.MULTILINE | re.DOTALL)[1]
    checked = [re.findall(r'[\w.]+', line) for line in re.findall(r'"(.+)"', layers)]
    drawn = re.findall(r'y="(\d+)" class="n">([\w.]+)<', (ROOT / 'docs' / 'house.svg').read_text())
    place = {name: int(height) for height, name in drawn}
    # parts of one package are one room
    rooms = [
        {next((room for room in place if f'{name}.'.startswith(f'{room}.')), None) for name in row} for row in checked
    ]
    # `__main__` is no room
    assert set().union(*rooms) == {*place, None}
    lowest = [max(place[room] for room in row if room is not None) for row in rooms]
    assert lowest == sorted(lowest)


# what makes an object that keeps something for as long as the process lives
KEEPERS = ('set', 'count', 'deque', 'Lock', 'RLock', 'ContextVar', 'WeakValueDictionary', 'WeakKeyDictionary')
KEEPERS += ('IdentityCache', 'DeviceTable', 'Memo', 'OrderedDict', 'defaultdict')
LISTED = re.compile(r'^\| (`\w+/.*?) \|', flags=re.MULTILINE)


def _keeps(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).split('.')[-1] in KEEPERS
    return (isinstance(value, ast.Dict) and not value.keys) or (isinstance(value, ast.List) and not value.elts)


def _globals_of(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    constants = [(f'{kind.name}.', node) for kind in tree.body if isinstance(kind, ast.ClassDef) for node in kind.body]
    found = []
    for prefix, node in (*(('', node) for node in tree.body), *constants):
        of_class = prefix and isinstance(node, ast.AnnAssign) and 'ClassVar' not in ast.unparse(node.annotation)
        if isinstance(node, ast.Assign | ast.AnnAssign) and _keeps(node.value) and not of_class:
            found += [prefix + ast.unparse(name) for name in getattr(node, 'targets', None) or [node.target]]
    return found


def test_globals_are_listed():
    text = (ROOT / 'docs' / 'architecture.md').read_text().split('These globals remain')[1].split('## ')[0]
    listed: dict[str, set[str]] = {}
    for row in LISTED.findall(text):
        file = ''
        for name in re.findall(r'`([^`]+)`', row):
            file = name if name.endswith('.py') else file
            listed.setdefault(file, set()).add(name)
    modules = (ROOT / 'pygfuse').rglob('*.py')
    found = {str(path.relative_to(ROOT / 'pygfuse')): _globals_of(path) for path in modules}
    unlisted = [(file, name) for file, names in found.items() for name in names if name not in listed.get(file, ())]
    assert unlisted == []
    assert sum(map(len, found.values())) > 15
