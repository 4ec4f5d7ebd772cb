"""Machine code as the content of a file."""

import pytest

from pygfuse._lib.machine_code import MachineCode, from_bytes, to_bytes

CODE = MachineCode(('entry', 'symbol'), (b'first piece', b'', bytes(range(256))))


def test_what_was_written_is_read():
    assert from_bytes(to_bytes(CODE, 'key'), 'key') == CODE


def test_code_of_another_key_is_not_read():
    # files may be renamed
    assert from_bytes(to_bytes(CODE, 'key'), 'other') is None


def test_no_changed_bit_goes_unnoticed():
    content = to_bytes(CODE, 'key')
    for i in range(len(content)):
        damaged = bytearray(content)
        damaged[i] ^= 1 << i % 8
        assert from_bytes(bytes(damaged), 'key') is None


@pytest.mark.parametrize('change', [lambda content: content + b'\0', lambda content: content * 2])
def test_longer_content_is_not_read(change):
    assert from_bytes(change(to_bytes(CODE, 'key')), 'key') is None


def test_no_beginning_of_it_is_read():
    content = to_bytes(CODE, 'key')
    assert all(from_bytes(content[:length], 'key') is None for length in range(len(content)))
