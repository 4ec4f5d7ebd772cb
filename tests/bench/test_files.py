"""Raw files of graphs."""

import numpy as np
import pytest

from pygfuse.bench import files


@pytest.fixture
def downloads(monkeypatch) -> list[str]:
    """The names of what is downloaded: a triangle."""
    names: list[str] = []

    def download(root: str, name: str) -> None:
        names.append(name)
        folder = files.Path(root) / name / 'raw'
        folder.mkdir(parents=True)
        (folder / f'{name}_A.txt').write_text('1, 2\n2, 3\n3, 1\n')

    monkeypatch.setattr('torch_geometric.datasets.TUDataset', download)
    return names


def test_a_data_set_is_downloaded_once(downloads, tmp_path):
    for _ in range(2):
        assert files.raw_tu(tmp_path, 'some').tolist() == [[0, 1, 2], [1, 2, 0]]
    assert downloads == ['some']


def test_a_csr_matrix_as_pairs(tmp_path):
    np.savez(tmp_path / 'some.npz', indptr=[0, 2, 2, 3], indices=[1, 2, 0])
    assert files.pairs_of_csr(tmp_path / 'some.npz').tolist() == [[0, 0, 2], [1, 2, 0]]
