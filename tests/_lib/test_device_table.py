"""What is remembered of a device."""

import os

import pytest
import torch

from pygfuse._lib.device_table import DeviceTable


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(tmp_path))
    return tmp_path


def test_values_are_found_again_by_a_new_table():
    table = DeviceTable('numbers.json')
    assert table.get('a') is None
    table.remember({'a': 1, 'b': [2]})
    table.remember({'b': 3})
    assert (table.get('a'), table.get('b')) == (1, 3)
    assert (DeviceTable('numbers.json').get('a'), DeviceTable('others.json').get('a')) == (1, None)


def test_another_number_of_threads_is_another_device():
    table, threads = DeviceTable('numbers.json'), torch.get_num_threads()
    table.remember({'a': 1})
    try:
        torch.set_num_threads(threads + 1)
        assert table.get('a') is None
    finally:
        torch.set_num_threads(threads)


def test_each_change_has_a_generation(folder):
    table = DeviceTable('numbers.json')
    generations = [table.generation]
    table.remember({'a': 1})
    generations.append(table.generation)
    table.forget()
    generations.append(table.generation)
    assert len(set(generations)) == 3
    assert table.get('a') is None
    assert not any(folder.iterdir())


def test_in_a_folder_that_is_refused_all_is_remembered_in_memory(folder):
    table = DeviceTable('numbers.json')
    folder.chmod(0o777)
    table.remember({'a': 1})
    table.remember({'b': 2})
    table.reload()
    assert (table.get('a'), table.get('b')) == (1, 2)
    assert not any(folder.iterdir())
    folder.chmod(0o700)
    table.remember({'c': 3})
    other = DeviceTable('numbers.json')
    assert [other.get(key) for key in 'abc'] == [1, 2, 3]


def test_a_file_of_others_is_not_read(folder):
    DeviceTable('numbers.json').remember({'a': 1})
    (folder / 'numbers.json').chmod(0o666)
    assert DeviceTable('numbers.json').get('a') is None


@pytest.mark.parametrize('content', [b'', b'{"a": ', b'[1]', b'\xff', b'null', b'{"a": 1}'])
def test_a_damaged_file_is_forgotten(folder, content):
    (folder / 'numbers.json').write_bytes(content)
    table = DeviceTable('numbers.json')
    assert table.get('a') is None
    table.remember({'a': 1})
    assert DeviceTable('numbers.json').get('a') == 1


@pytest.mark.skipif(os.geteuid() == 0, reason='root writes everywhere')
def test_a_folder_that_cannot_be_written_to(folder):
    table = DeviceTable('numbers.json')
    folder.chmod(0o500)
    table.remember({'a': 1})
    assert table.get('a') == 1
