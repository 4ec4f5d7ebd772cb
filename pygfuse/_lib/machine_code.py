"""Machine code as bytes of a file, and back: nothing of it is looked at, let alone run, unless its checksum fits.

The file holds a magic number, the checksum of all that follows, the version of this format, the length of a header, the
header (JSON) and the pieces of machine code as they are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct

_MAGIC = b'pygfuse\0'
_VERSION = 1
_CHECKSUM = len(hashlib.sha256().digest())
# version, length of the header
_LENGTHS = struct.Struct('<II')


@dataclasses.dataclass(frozen=True)
class MachineCode:
    """A compiled kernel.

    Args:
        names: What its loader must know by name: symbols, ...
        pieces: Object code, ...
    """

    names: tuple[str, ...]
    pieces: tuple[bytes, ...]


def to_bytes(code: MachineCode, key: str) -> bytes:
    """The content of a file.

    Args:
        code: What is stored.
        key: What it is stored under: `from_bytes` must be given the same.
    """
    fields = {'key': key, 'names': code.names, 'lengths': [len(piece) for piece in code.pieces]}
    header = json.dumps(fields).encode()
    checked = b''.join((_LENGTHS.pack(_VERSION, len(header)), header, *code.pieces))
    return _MAGIC + hashlib.sha256(checked).digest() + checked


def from_bytes(content: bytes, key: str) -> MachineCode | None:
    """What was stored under a key, or None if the content is damaged, of another format or of another key.

    Example:
        >>> content = to_bytes(MachineCode(('entry',), (b'code',)), 'a')
        >>> from_bytes(content, 'a')
        MachineCode(names=('entry',), pieces=(b'code',))
        >>> from_bytes(content, 'b') is None
        True
        >>> from_bytes(content[:-1] + b'!', 'a') is None
        True
    """
    view = memoryview(content)
    start = len(_MAGIC) + _CHECKSUM
    checked = view[start:]
    if view[: len(_MAGIC)] != _MAGIC or view[len(_MAGIC) : start] != hashlib.sha256(checked).digest():
        return None
    # from here on it is what `to_bytes` wrote, though perhaps in another version
    version, length = _LENGTHS.unpack_from(checked)
    if version != _VERSION:
        return None
    begin = _LENGTHS.size + length
    fields = json.loads(bytes(checked[_LENGTHS.size : begin]))
    if fields['key'] != key:
        return None
    pieces = []
    for length in fields['lengths']:
        pieces.append(bytes(checked[begin : begin + length]))
        begin += length
    return MachineCode(tuple(fields['names']), tuple(pieces))
