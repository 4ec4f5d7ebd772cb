from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys

import pytest
import torch

from pygfuse.cpu.kernel import Kernel

SCRIPT = """
import torch
from pygfuse.conv import GATConv
torch.manual_seed(0)
conv = GATConv(3, 2, heads=2)
out = conv(torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]]))
out.sum().backward()
print(float(out.detach().double().sum()), float(conv.att_src.grad.double().sum()))
"""


def run(folder) -> subprocess.CompletedProcess:
    environment = {**os.environ, 'PYGFUSE_CACHE_DIR': str(folder)}
    command = [sys.executable, '-c', SCRIPT]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, env=environment)


def add_one(part, x, by, out):
    for i in range(part * 10, min(len(x), (part + 1) * 10)):
        out[i] = x[i] + by


def test_a_second_process_compiles_nothing(tmp_path):
    first = run(tmp_path)
    assert 'pygfuse: compiling' in first.stderr
    entries = sorted(tmp_path.iterdir())
    second = run(tmp_path)
    assert second.stderr == ''
    assert second.stdout == first.stdout
    assert sorted(tmp_path.iterdir()) == entries
    assert all(entry.suffix == '.kernel' for entry in entries)


@pytest.mark.slow
def test_spoiled_entries_are_compiled_anew(tmp_path):
    first = run(tmp_path)
    entries = sorted(tmp_path.iterdir())
    for i, entry in enumerate(entries):
        entry.write_bytes(entry.read_bytes()[:100] if i % 2 else b'')
    third = run(tmp_path)
    assert third.stdout == first.stdout
    assert 'pygfuse: compiling' in third.stderr
    assert run(tmp_path).stderr == ''


def test_a_folder_that_cannot_be_written(tmp_path):
    blocked = tmp_path / 'file'
    blocked.write_text('no folder')
    done = run(blocked / 'cache')
    assert 'pygfuse: compiling' in done.stderr
    assert blocked.read_text() == 'no folder'


@pytest.mark.parametrize('threads', [1, 2, 7])
@pytest.mark.parametrize('parts', [1, 13, 100])
def test_every_part_runs_once(parts, threads):
    x = torch.arange(parts * 10.0)
    out = torch.zeros_like(x)
    kernel = Kernel(add_one, 'test of parts')
    for _ in range(20):
        out.zero_()
        kernel(parts, x, 1.5, out, threads=threads)
        assert torch.equal(out, x + 1.5)


def test_no_parts_is_no_work():
    out = torch.zeros(3)
    Kernel(add_one, 'test of parts')(0, out, 1.0, out)
    assert not out.any()


def test_kernels_specialise_by_type():
    kernel = Kernel(add_one, 'test of types')
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
        x = torch.arange(25, dtype=dtype)
        out = torch.zeros_like(x)
        kernel(3, x, 2, out)
        assert torch.equal(out, x + 2)


def test_several_threads_compile_and_run_at_once():
    kernel = Kernel(add_one, 'test of threads')

    def task(i: int) -> bool:
        x = torch.full((1000,), float(i))
        out = torch.zeros_like(x)
        kernel(100, x, 1.0, out)
        return torch.equal(out, x + 1)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(task, range(200)))
    assert len(kernel._compiled) == 1
