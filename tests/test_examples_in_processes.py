"""Examples that run in several processes."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import ClusterData

from tests.test_examples import EXAMPLES, run_example

# said by a thread of gloo that frees its last tensor while Python ends, seldom (pytorch/pytorch#179291)
ABORTED_WHILE_LEAVING = 'terminate called without an active exception'


def run_in_processes(count: int, name: str, *arguments: object) -> str:
    """What an example prints; it is run again if torch aborts where processes end."""
    torchrun = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', str(count)]
    command = [*torchrun, str(EXAMPLES / name), *map(str, arguments)]
    for _ in range(2):
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
        if ABORTED_WHILE_LEAVING not in done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr  # what was printed says how far they came
    return done.stdout


def row(output: str, name: str) -> list[float]:
    """The figures of PyG and pygfuse in one row of a table."""
    found = re.search(rf'^{name} +(.*)$', output, flags=re.MULTILINE)[1]
    return [float(figure) for figure in re.findall(r'\d[\d.e+-]*', found.replace(',', ''))]


@pytest.mark.slow
@pytest.mark.parametrize('name', ['ddp_neighbor_sampling.py', 'fsdp.py', 'full_batch_distributed.py'])
def test_without_torchrun_they_say_how_they_start(name):
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_example(name)
    assert f'torchrun --standalone --nproc-per-node {4 if "full" in name else 2} examples/{name}' in caught.value.stderr


@pytest.mark.slow
def test_sampled_neighbourhoods_in_two_processes(needs_sampler):
    output = run_in_processes(2, 'ddp_neighbor_sampling.py', '--neighbors', 6, '--epochs', 3, '--channels', 16)
    assert '2 processes, 1,797 nodes, 10,782 edges' in output
    assert 'Neighbours are sampled' in output
    assert max(row(output, 'gradients apart')) < 1e-6
    assert min(row(output, 'test accuracy %')) > 50  # chance: 10


WITHOUT_A_SAMPLER = """
import sys, torch_geometric.typing
torch_geometric.typing.WITH_PYG_LIB = torch_geometric.typing.WITH_TORCH_SPARSE = False
sys.path.insert(0, {folder!r})
import ddp_neighbor_sampling
ddp_neighbor_sampling.main()
"""


@pytest.mark.slow
def test_whole_neighbourhoods_where_nothing_samples(tmp_path):
    script = tmp_path / 'without.py'
    script.write_text(WITHOUT_A_SAMPLER.format(folder=str(EXAMPLES)))
    output = run_in_processes(2, script, '--neighbors', 6, '--epochs', 3, '--channels', 16)
    assert 'batches are whole neighbourhoods' in output
    assert max(row(output, 'gradients apart')) < 1e-6
    assert min(row(output, 'test accuracy %')) > 50


@pytest.mark.slow
def test_sharded_parameters_in_two_processes():
    output = run_in_processes(2, 'fsdp.py', '--neighbors', 6, '--epochs', 10)
    assert max(row(output, 'gradients apart')) < 1e-6
    assert min(row(output, 'test accuracy')) > 50
    of_one, whole = row(output, 'parameters here'), row(output, 'of')
    # those that cannot be divided are kept by the first
    assert whole[0] / 2 <= of_one[0] < 0.6 * whole[0]


@pytest.mark.slow
@pytest.mark.parametrize(('conv', 'parts'), [('GCN', 'metis'), ('GAT', 'random')])
def test_full_batch_in_four_processes(conv, parts, needs_torch_sparse, tmp_path):
    generator = np.random.default_rng(0)
    pairs = generator.integers(300, size=(2000, 2))
    path = tmp_path / 'edges.txt'
    np.savetxt(path, pairs, fmt='%d')
    small = '--channels', 16, '--features', 8, '--epochs', 2, '--double'
    output = run_in_processes(4, 'full_batch_distributed.py', '--edges', path, '--conv', conv, '--parts', parts, *small)
    assert '4 processes' in output
    assert float(re.search(r'(\S+) apart\.$', output, re.MULTILINE)[1]) < 1e-12
    assert float(re.search(r'at most (\S+) apart', output)[1]) < 1e-12
    rows = [row(output, str(rank)) for rank in range(4)]
    assert sum(own for own, *_ in rows) == 300
    # two layers forward, the second backward: the features given have no gradient
    sent = float(re.search(r'^([\d,]+) bytes sent', output, re.MULTILINE)[1].replace(',', ''))
    assert sent == sum(halo for _, halo, *_ in rows) * (8 + 2 * 16) * 8


def test_parts_of_metis_are_those_of_the_nodes(monkeypatch):
    spec = importlib.util.spec_from_file_location('full_batch_distributed', EXAMPLES / 'full_batch_distributed.py')
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    part = torch.tensor([2, 0, 1, 1, 0, 2, 2])
    monkeypatch.setattr(ClusterData, '_metis', lambda *given: part)
    data = Data(edge_index=torch.randint(7, (2, 20)), num_nodes=7)
    assert torch.equal(example.parts_of(data, 'metis', 3), part)
    assert example.parts_of(data, 'contiguous', 3).tolist() == [0, 0, 0, 1, 1, 2, 2]


@pytest.mark.slow
def test_lightning_in_two_processes():
    pytest.importorskip('lightning')
    # it starts the second process as it was started
    command = [sys.executable, EXAMPLES / 'lightning_gat.py', '--neighbors', '6', '--epochs', '2']
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    assert '2 processes' in output
    assert float(re.search(r'at most (\S+) from', output)[1]) < 1e-6
    assert float(re.search(r'test accuracy ([\d.]+)%', output)[1]) > 30
    assert '2 of 2 layers fused' in output
