from __future__ import annotations

import gzip
import pickle
import re
import runpy
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from tests.support.scripts import run_script

EXAMPLES = Path(__file__).parent.parent / 'examples'
PNG = b'\x89PNG\r\n'


def run_example(name: str, *arguments: object) -> str:
    done = run_script(EXAMPLES / name, *arguments)
    done.check_returncode()
    return done.stdout


def table_row(output: str, name: str) -> tuple[float, float, float]:
    """The figures of PyG and pygfuse and their ratio in one row of the quickstart's table."""
    row = re.search(rf'^{name} .*$', output, flags=re.MULTILINE).group()
    pyg, fused, ratio = re.findall(r'[\d.]+|inf', row)
    return float(pyg), float(fused), float(ratio)


def test_quickstart_prints_a_table_and_draws_a_picture(tmp_path):
    picture = tmp_path / 'quickstart.png'
    output = run_example('quickstart.py', '--epochs', 3, '--neighbors', 8, '--output', picture)
    for name in ('test accuracy', 'ms per epoch', 'saved for backward', 'peak of a step'):
        assert min(table_row(output, name)) > 0
    assert picture.read_bytes().startswith(PNG)


def test_own_conv_is_compiled():
    output = run_example('own_conv.py', '--nodes', 200, '--degree', 5, '--channels', 8)
    assert float(re.search(r'outputs: (\S+)', output)[1]) < 1e-5
    assert 'walk: mean' in output


@pytest.mark.slow
def test_quickstart_learns_the_same_with_less(tmp_path):
    command = [sys.executable, EXAMPLES / 'quickstart.py', '--output', tmp_path / 'quickstart.png']
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    pyg, fused, _ = table_row(output, 'test accuracy')
    assert pyg > 90
    assert abs(pyg - fused) < 0.5
    for name in ('ms per epoch', 'saved for backward', 'peak of a step'):
        assert table_row(output, name)[2] > 1


@pytest.fixture(scope='module')
def planetoid_root(tmp_path_factory) -> Path:
    """A stand-in for Cora's raw files: 700 nodes, of which 140 train, 500 validate and 60 test."""
    root = tmp_path_factory.mktemp('planetoid')
    raw = root / 'Cora' / 'raw'
    raw.mkdir(parents=True)
    generator = np.random.default_rng(0)
    classes = generator.integers(7, size=700)
    labels = np.eye(7)[classes]
    # A node's class stands in its features, with noise.
    features = scipy.sparse.csr_matrix(labels @ generator.random((7, 20)) + 0.1 * generator.random((700, 20)))
    neighbors = defaultdict(list)
    # neighbours are of one class: the features of 20 words with dropout say little
    for node in range(700):
        neighbors[node] += generator.choice(np.flatnonzero(classes == classes[node]), 4).tolist()
    parts = {
        'x': features[:140],
        'y': labels[:140],
        'allx': features[:640],
        'ally': labels[:640],
        'tx': features[640:],
        'ty': labels[640:],
        'graph': neighbors,
    }
    for name, part in parts.items():
        (raw / f'ind.cora.{name}').write_bytes(pickle.dumps(part))
    (raw / 'ind.cora.test.index').write_text('\n'.join(map(str, range(640, 700))))
    return root


@pytest.mark.parametrize('backend', ['pyg', 'pygfuse'])
def test_gat_planetoid_prints_a_line_per_data_set(planetoid_root, backend):
    output = run_example(
        'gat_planetoid.py',
        *('--root', planetoid_root, '--dataset', 'Cora', '--backend', backend, '--seeds', 2, '--epochs', 60),
    )
    found = re.search(rf'^Cora +{backend} +test accuracy ([\d.]+) \+- [\d.]+ % \(2 seeds\)', output, re.MULTILINE)
    assert found, output
    assert float(found[1]) > 2 * 100 / 7  # better than chance


def test_constrained_gat_is_compiled(planetoid_root, tmp_path):
    raw = shutil.copytree(planetoid_root / 'Cora' / 'raw', tmp_path / 'Cora' / 'raw')
    graph, generator = pickle.loads((raw / 'ind.cora.graph').read_bytes()), np.random.default_rng(1)
    # nodes that are trained on have neighbours of other classes that are, too
    for node in range(140):
        graph[node] += generator.choice(140, 2).tolist()
    (raw / 'ind.cora.graph').write_bytes(pickle.dumps(graph))
    output = run_example('constrained_gat.py', '--root', tmp_path, '--epochs', 20)
    assert int(re.search(r'edges, (\S+) pairs of edges', output)[1].replace(',', '')) > 100
    assert float(re.search(r'losses of the two differ by (\S+)\.$', output, re.MULTILINE)[1]) < 1e-5
    # of the layers of pairs, which are so few, PyG's operators run
    assert '3 of 4 layers fused' in output
    for name in ('test accuracy', 'ms per epoch', 'saved for backward'):
        assert min(table_row(output, name)) > 0


@pytest.mark.slow
@pytest.mark.parametrize('backend', ['pyg', 'pygfuse'])
def test_reddit_prints_a_row_for_each_model_and_mode(backend, needs_sampler):
    small = '--scale', 0.002, '--channels', 32, '--batch-size', 64, '--epochs', 3, '--workers', 1
    output = run_example('reddit.py', '--backend', backend, *small)
    assert '465 nodes' in output
    rows = re.findall(rf'^(\S+) +(\S+) +{backend} +([\d.]+) +([\d.]+) +([\d.]+)%$', output, re.MULTILINE)
    assert [row[:2] for row in rows] == [(m, mode) for m in ('SAGE', 'GCN', 'GAT') for mode in ('sampled', 'full')]
    for _, mode, *figures in rows:
        seconds, peak, accuracy = map(float, figures)
        assert min(seconds, peak) > 0
        assert accuracy > (3 if mode == 'sampled' else 1.5) * 100 / 41  # better than chance, after 15 steps or 3


def test_reddit_says_what_to_do_without_the_data(tmp_path):
    (tmp_path / 'raw').write_text('no folder')
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_example('reddit.py', '--root', tmp_path, '--mode', 'full')
    assert 'try --scale 0.01' in caught.value.stderr


def test_reddit_says_what_to_do_without_a_sampler(monkeypatch, capsys):
    monkeypatch.setattr('torch_geometric.typing.WITH_PYG_LIB', False)
    monkeypatch.setattr('torch_geometric.typing.WITH_TORCH_SPARSE', False)
    monkeypatch.setattr('sys.argv', ['reddit.py', '--scale', '0.01'])
    with pytest.raises(SystemExit):
        runpy.run_path(str(EXAMPLES / 'reddit.py'), run_name='__main__')
    assert 'try --mode full' in capsys.readouterr().err


@pytest.fixture(scope='module')
def voxels(tmp_path_factory) -> Path:
    """A stand-in for ModelNet10 as voxels: bars, plates and balls of several sizes, and one empty grid."""
    generator = np.random.default_rng(0)
    place = np.stack(np.meshgrid(*[np.arange(30) - 15] * 3, indexing='ij'))
    parts = {}
    for part, count in (('train', 48), ('test', 12)):
        labels, size = np.arange(count) % 3, generator.integers(8, 14, count)
        half = np.where(labels[:, None] == np.arange(3), 2, size[:, None])  # plates
        half[labels == 0, 1:] = 2  # bars
        grids = (np.abs(place)[None] <= half[:, :, None, None, None]).all(axis=1)
        balls = (place**2).sum(axis=0) <= size[:, None, None, None] ** 2
        grids[labels == 2] = balls[labels == 2]
        if part == 'train':
            grids[5] = False
        parts |= {f'{part}_bits': np.packbits(grids.reshape(count, -1), axis=1), f'{part}_label': labels}
    path = tmp_path_factory.mktemp('voxels') / 'voxels.npz'
    np.savez(path, class_names=np.array(['bar', 'plate', 'ball']), **parts)
    return path


SMALL = ('--points', 48, '--k', 6, '--channels', 8, 16, '--embedding', 16, '--batch-size', 8)


def test_dgcnn_tells_shapes_of_voxels(voxels, tmp_path):
    picture = tmp_path / 'dgcnn.png'
    output = run_example(
        'dgcnn_modelnet40.py',
        *('--voxels', voxels, *SMALL, '--backend', 'both', '--norm', 'nodes', '--epochs', 12, '--output', picture),
    )
    assert '47 shapes to train on, 12 to test' in output
    pyg, fused, _ = table_row(output, 'test accuracy')
    assert min(pyg, fused) > 60  # chance: 33
    for name in ('s per epoch', 'peak of a step'):
        assert min(table_row(output, name)) > 0
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (('--steps', 0), '--steps and --batch-size must be at least 1'),
        (('--batch-size', 48), '--batch-size must be at most 47, the shapes to train on (got 48)'),
    ],
    ids=str,
)
def test_dgcnn_says_why_there_would_be_no_step(voxels, arguments, message):
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_example('dgcnn_modelnet40.py', '--voxels', voxels, *SMALL, *arguments)
    assert message in caught.value.stderr


@pytest.mark.slow
def test_dgcnn_reads_the_meshes_of_modelnet(tmp_path):
    names = ['bathtub', 'bed', 'chair', 'desk', 'dresser', 'monitor', 'night_stand', 'sofa', 'table', 'toilet']
    for i, (name, part) in enumerate((name, part) for name in names for part in ('train', 'test')):
        folder = tmp_path / 'root' / 'raw' / name / part
        folder.mkdir(parents=True)
        mesh = f'OFF\n4 4 0\n0 0 0\n1 0 0\n0 {i + 1} 0\n0 0 1\n3 0 1 2\n3 0 1 3\n3 0 2 3\n3 1 2 3\n'
        (folder / f'{name}_0001.off').write_text(mesh)
    output = run_example(
        'dgcnn_modelnet40.py',
        *('--root', tmp_path / 'root', '--name', 10, *SMALL, '--epochs', 1, '--output', tmp_path / 'dgcnn.png'),
    )
    assert '10 shapes to train on, 10 to test' in output
    assert re.search(r'^test accuracy +[\d.]+%$', output, re.MULTILINE)


@pytest.mark.parametrize('model', ['gcn', 'gin'])
def test_graph_classification_is_the_same_with_hags(tmp_path, model):
    generator = np.random.default_rng(0)
    sizes = generator.integers(20, 40, size=60)
    node_ptr = np.concatenate([[0], np.cumsum(sizes)])
    # complete graphs, and graphs of two complete halves
    labels = generator.integers(2, size=60)
    neighbours, degrees = [], []
    for size, label in zip(sizes, labels, strict=True):
        groups = np.arange(size) * (label + 1) // size
        related = (groups[:, None] == groups) & ~np.eye(size, dtype=bool)
        neighbours.append(related.nonzero()[1])
        degrees.append(related.sum(axis=1))
    path = tmp_path / 'graphs.npz'
    np.savez(
        path,
        node_ptr=node_ptr,
        indptr=np.concatenate([[0], np.cumsum(np.concatenate(degrees))]),
        indices_local=np.concatenate(neighbours).astype(np.uint16),
        graph_labels=labels,
    )
    output = run_example('hag_tu.py', '--npz', path, '--model', model, '--epochs', 3, '--channels', 8)
    row = re.search(r'^test accuracy.*$', output, flags=re.MULTILINE).group()
    first, second = re.findall(r'[\d.]+', row)
    assert first == second
    assert 'The HAG of the last batch: used' in output
    apart = re.search(r'differ by at most ([\d.e-]+\d)', output).group(1)
    assert float(apart) < 1e-4


def test_tree_lstm_is_the_same_shared():
    output = run_example('tree_lstm.py', '--gates', 60, '--epochs', 3, '--channels', 4)
    assert float(re.search(r'differ by at most ([\d.e-]+\d)', output).group(1)) < 1e-5
    assert len(re.findall(r'ms per epoch', output)) == 2


def test_picture_of_a_hag(tmp_path):
    picture = tmp_path / 'hag.png'
    assert 'num_aggregations=9 -> 5' in run_example('draw_hag.py', '--output', picture)
    assert picture.read_bytes().startswith(PNG)


def test_rgcn_classifies_entities(tmp_path):
    pytest.importorskip('pandas')
    pytest.importorskip('rdflib')
    raw = tmp_path / 'mutag' / 'raw'
    raw.mkdir(parents=True)
    # bonds of two classes, which different relations join to atoms
    triples = [f'<http://b{i}> <http://r{i % 2}> <http://a{(7 * i + k) % 30}> .' for i in range(60) for k in range(3)]
    with gzip.open(raw / 'mutag_stripped.nt.gz', 'wt') as file:
        file.write('\n'.join(triples) + '\n')
    for name, bonds in (('completeDataset', range(60)), ('trainingSet', range(40)), ('testSet', range(40, 60))):
        rows = [f'{i}\thttp://b{i}\t{i % 2}' for i in bonds]
        (raw / f'{name}.tsv').write_text('\n'.join(['id\tbond\tlabel_mutagenic', *rows]))
    output = run_example('rgcn_entities.py', '--root', tmp_path, '--epochs', 20, '--bases', 2)
    assert '90 entities, 360 edges, 4 relations' in output
    assert min(table_row(output, 'test accuracy')[:2]) > 90
    assert float(re.search(r'differ by at most (\S+\d)', output)[1]) < 1e-4


def test_hgt_tells_genres(tmp_path):
    raw = tmp_path / 'raw'
    raw.mkdir()
    generator = np.random.default_rng(0)
    sizes = (90, 20, 40)
    labels = generator.integers(3, size=90)
    words = np.eye(3)[labels] + 0.3 * generator.random((90, 3))
    for i, size in enumerate(sizes):
        features = words if i == 0 else generator.random((size, 3))
        scipy.sparse.save_npz(raw / f'features_{i}.npz', scipy.sparse.csr_matrix(features))
    related = np.zeros((150, 150))
    films = np.arange(90)
    for others in (90 + 6 * labels + films % 6, 110 + 13 * labels + films % 13):
        related[films, others] = related[others, films] = 1
    scipy.sparse.save_npz(raw / 'adjM.npz', scipy.sparse.csr_matrix(related))
    np.save(raw / 'labels.npy', labels)
    parts = {'train_idx': np.arange(50), 'val_idx': np.arange(50, 60), 'test_idx': np.arange(60, 90)}
    np.savez(raw / 'train_val_test_idx.npz', **parts)
    output = run_example('hgt_imdb.py', '--root', tmp_path, '--epochs', 40, '--channels', 16, '--heads', 2)
    assert '150 nodes, 360 edges' in output
    assert min(table_row(output, 'test accuracy')[:2]) > 60  # chance: 33
    assert table_row(output, 'saved for backward')[2] > 0.5
    assert float(re.search(r'differ by at most (\S+\d)', output)[1]) < 1e-2


def test_meshgraphnet_learns_the_same_with_less():
    output = run_example('meshgraphnet.py', '--nodes', 1000, '--hidden', 16, '--blocks', 2, '--steps', 30)
    assert '2 blocks of 16' in output
    found = {}
    for name in ('error before', 'error after', 'MB saved for backward'):
        row = re.search(rf'^{name}(.*)$', output, re.MULTILINE)[1]
        found[name] = [*map(float, re.findall(r'[\d.]+', row))]
    for name, allowed in (('error before', 1e-4), ('error after', 1e-2)):
        assert abs(found[name][0] - found[name][1]) <= allowed
    assert found['error after'][1] < 0.7 * found['error before'][1]
    assert found['MB saved for backward'][1] < found['MB saved for backward'][0]


@pytest.mark.slow
def test_force_field_learns_the_same_with_less(tmp_path):
    picture = tmp_path / 'force_field.png'
    output = run_example(
        'force_field.py',
        *('--clusters', 4, '--cells', 2, '--hidden', 32, '--interactions', 2, '--steps', 40, '--output', picture),
    )
    assert '2 interactions of 32' in output
    found = {}
    for name in ('error of energies', 'error of forces'):
        rows = [re.search(rf'^{name} {when}(.*)$', output, re.MULTILINE)[1].split() for when in ('before', 'after')]
        found[name] = before, after = [[*map(float, row)] for row in rows]
        assert before[1] == pytest.approx(before[0], rel=1e-3)
        assert after[1] == pytest.approx(after[0], rel=2e-2)
    assert found['error of forces'][1][1] < 0.9 * found['error of forces'][0][1]
    plain, fused = map(float, re.search(r'^MB saved for backward(.*)$', output, re.MULTILINE)[1].split())
    assert fused < plain / 2
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.slow
def test_an_explanation_finds_the_planted_houses(tmp_path):
    picture = tmp_path / 'explanation.png'
    output = run_example(
        'explain.py',
        *('--nodes', 60, '--houses', 20, '--epochs', 600, '--explanations', 4, '--explainer-epochs', 150),
        *('--output', picture),
    )
    assert '160 nodes' in output
    # how far a short training gets differs between machines
    assert min(table_row(output, 'test accuracy')[:2]) > 55
    of_pyg, of_fused, _ = table_row(output, 'AUC of house edges')
    assert of_fused == of_pyg > 0.5  # chance; how far above it a short training gets differs between machines
    assert float(re.search(r'4 masks of the two differ by at most (\S+\d)', output)[1]) <= 1e-5
    assert '3 of 3 layers fused' in output
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.slow
def test_an_explanation_on_cora(planetoid_root, tmp_path):
    picture = tmp_path / 'explanation.png'
    output = run_example(
        'explain.py',
        *('--root', planetoid_root, '--conv', 'gat', '--epochs', 20, '--explanations', 2, '--explainer-epochs', 5),
        *('--output', picture),
    )
    assert 'AUC' not in output
    assert float(re.search(r'4 masks of the two differ by at most (\S+\d)', output)[1]) <= 1e-5
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.slow
def test_an_exported_model_runs_in_a_process_of_its_own(tmp_path):
    small = '--neighbors', 6, '--epochs', 3, '--repeats', 2, '--output', tmp_path / 'model.pt2'
    output = run_example('export_inference.py', *small)
    assert '2 operators of pygfuse' in output
    assert float(re.search(r'with the file: outputs (\S+) apart', output)[1]) < 1e-4
    assert re.search(r'^Without import pygfuse: RuntimeError', output, re.MULTILINE)
    assert (tmp_path / 'model.pt2').stat().st_size > 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which('g++') is None, reason='inductor needs a C++ compiler')
def test_aotinductor_runs_an_exported_model(tmp_path):
    small = '--neighbors', 6, '--epochs', 3, '--repeats', 2, '--output', tmp_path / 'model.pt2'
    output = run_example('export_inference.py', *small, '--aot')
    assert float(re.search(r'with AOTInductor: outputs (\S+) apart', output)[1]) < 1e-4
    assert 'Could not find schema for pygfuse::aggregate' in output
    assert float(re.search(r'^AOTInductor .* outputs (\S+) apart', output, re.MULTILINE)[1]) < 1e-4


@pytest.mark.slow
def test_monet_classifies_papers(planetoid_root, tmp_path):
    picture = tmp_path / 'monet.png'
    output = run_example('monet_cora.py', '--root', planetoid_root, '--epochs', 60, '--output', picture)
    assert '700 nodes' in output
    assert min(table_row(output, 'test accuracy')[:2]) > 2 * 100 / 7  # chance: 14
    assert table_row(output, 'saved for backward')[2] > 1
    assert float(re.search(r'differ by at most (\S+\d)', output)[1]) < 1e-3
    assert picture.read_bytes().startswith(PNG)


SMALL_MONET = ('--superpixels', 16, '--channels', 8, '--kernels', 5)


@pytest.mark.slow
def test_monet_tells_digits_apart_by_their_superpixels(tmp_path):
    picture = tmp_path / 'monet.png'
    output = run_example(
        'monet_superpixels.py', *SMALL_MONET, '--count', 600, '--epochs', 8, '--batch-size', 32, '--output', picture
    )
    assert '480 graphs to train on, 120 to test' in output
    assert min(table_row(output, 'test accuracy')[:2]) > 20  # chance: 10
    assert table_row(output, 'saved for backward')[2] > 1
    assert float(re.search(r'differ by at most (\S+\d)', output)[1]) < 1e-3
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.slow
def test_monet_reads_the_files_of_mnist(tmp_path):
    generator = np.random.default_rng(0)
    for name, header, values in (
        ('images', 16, generator.integers(256, size=(40, 28, 28))),
        ('labels', 8, np.arange(40) % 10),
    ):
        (tmp_path / name).write_bytes(gzip.compress(bytes(header) + values.astype(np.uint8).tobytes()))
    output = run_example(
        'monet_superpixels.py',
        *('--images', tmp_path / 'images', '--labels', tmp_path / 'labels', *SMALL_MONET, '--epochs', 1),
        *('--output', tmp_path / 'monet.png'),
    )
    assert '32 graphs to train on, 8 to test; 16.0 nodes in the mean' in output


def test_execution_paths_train_to_the_same_loss():
    output = run_example('execution_paths.py', '--nodes', 300_000, '--degree', 8, '--epochs', 3)
    losses = re.findall(r'loss ([\d.]+) ', output)
    assert len(losses) == 2
    assert losses[0] == losses[1]
    walked, edges = re.search(r'second .*walked ([\d,]+) of ([\d,]+) edges', output).groups()
    assert int(walked.replace(',', '')) < 0.05 * int(edges.replace(',', ''))
