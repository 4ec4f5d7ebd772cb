"""Measured mappings on disk."""

import pytest
import torch

from pygfuse.mapping import records as measured
from pygfuse.mapping.mapping import Mapping
from pygfuse.mapping.records import Shape


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(tmp_path))
    yield tmp_path
    measured.forget()


SHAPE = Shape(1000, 20_000, 300)


def test_what_is_remembered_is_found_again_and_by_a_new_process(folder):
    assert measured.mapping_of(SHAPE) is None
    measured.remember([SHAPE], Mapping('edge', 512, True))
    assert measured.mapping_of(SHAPE) == Mapping('edge', 512, True)
    measured.TABLE.reload()
    assert measured.mapping_of(SHAPE) == Mapping('edge', 512, True)
    measured.forget()
    assert measured.mapping_of(SHAPE) is None
    assert not any(folder.iterdir())


def test_similar_graphs_share_a_measurement_and_others_do_not():
    measured.remember([SHAPE], Mapping('edge'))
    assert measured.mapping_of(Shape(1010, 20_100, 301)) == Mapping('edge')
    assert measured.mapping_of(Shape(4000, 20_000, 300)) is None
    assert measured.mapping_of(Shape(1000, 20_000, 3)) is None


def test_a_measurement_holds_for_its_number_of_threads():
    measured.remember([SHAPE], Mapping('edge'))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert measured.mapping_of(SHAPE) is None
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize('text', ['', '[]', '{"a"', '{}'])
def test_a_damaged_file_is_no_file(folder, text):
    (folder / 'mappings.json').write_text(text)
    measured.TABLE.reload()
    assert measured.mapping_of(SHAPE) is None
    measured.remember([SHAPE], Mapping('edge'))
    assert measured.mapping_of(SHAPE) == Mapping('edge')


def test_what_another_version_wrote_is_ignored(folder):
    measured.remember([SHAPE], Mapping('edge'))
    path = folder / 'mappings.json'
    path.write_text(path.read_text().replace('part_work', 'work'))
    measured.TABLE.reload()
    assert measured.mapping_of(SHAPE) is None
