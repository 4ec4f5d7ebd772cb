"""``python -m pygfuse``."""

import os
import subprocess
import sys

import pytest
import torch

from pygfuse.__main__ import main
from pygfuse._lib import disk as cache
from pygfuse._lib.machine_code import MachineCode


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / 'cache'
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(path))
    monkeypatch.setenv('PYGFUSE_CACHE_BYTES', '10000')
    for name in ('a', 'b'):
        cache.store(path / f'{name}.kernel', MachineCode((), (bytes(1000),)))
    (path / 'measured.json').write_text('{}')
    return path


def shown(capsys):
    return dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())


def test_the_cache_is_shown(folder, capsys):
    assert main(['cache']) == 0
    size = sum((folder / f'{name}.kernel').stat().st_size for name in ('a', 'b'))
    expected = {'folder': str(folder), 'kernels': '2', 'bytes': f'{size:,} (at most 10,000)', 'writable': 'yes'}
    assert shown(capsys) == expected


def test_the_cache_is_cleared(folder, capsys):
    (folder / 'left.lock').touch()
    assert main(['cache', '--clear']) == 0
    assert shown(capsys)['kernels'] == '0'
    assert [path.name for path in folder.iterdir()] == ['measured.json']


def test_a_refused_cache_is_shown_and_not_cleared(folder, capsys):
    folder.chmod(0o777)
    assert main(['cache']) == 0
    assert shown(capsys)['writable'].startswith('no: others may write to ')
    assert main(['cache', '--clear']) == 1
    assert shown(capsys)['kernels'] == '2'


def test_without_a_command_facts_are_shown(folder, capsys):
    assert main([]) == 0
    facts = shown(capsys)
    assert facts['torch'] == torch.__version__
    assert facts['threads'].startswith(f'{torch.get_num_threads()} of ')
    assert facts['cache'] == f'{folder}, 2 kernels'
    folder.chmod(0o777)
    assert main([]) == 0
    assert 'nothing is kept: others may write to ' in shown(capsys)['cache']


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_what_is_missing_for_a_gpu_is_shown(folder, capsys):
    main([])
    assert shown(capsys)['cuda'] in ('no: this torch is built without CUDA', 'no: torch sees no GPU')


@pytest.mark.parametrize('arguments', [['unknown'], ['cache', 'more']])
def test_wrong_arguments(arguments):
    with pytest.raises(SystemExit, match='2'):
        main(arguments)


@pytest.mark.slow
def test_from_a_shell(tmp_path):
    environment = {**os.environ, 'PYGFUSE_CACHE_DIR': str(tmp_path)}
    command = [sys.executable, '-m', 'pygfuse', 'cache']
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=environment)
    assert f'folder    {tmp_path}\nkernels   0\n' in done.stdout
