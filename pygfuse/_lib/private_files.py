"""Files that only this user may write, as what is read from them is run.

A folder or file that belongs to another user, or that others may write to, is refused: whoever can write there could
have their code run by this process.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import time
from pathlib import Path

from pygfuse._lib.announcement import warn_once

_DAY_S = 24 * 3600
# Windows says neither of these of a file: who may write to it is kept elsewhere, and what lies in a user's own folders
# is the user's
_SAYS_WHOSE = hasattr(os, 'geteuid')
# what a link leads to may be somebody's; Windows has no such flag, and reads bytes only if it is told to
NOT_A_LINK = getattr(os, 'O_NOFOLLOW', 0)
_AT_ONCE = getattr(os, 'O_NONBLOCK', 0)
_BYTES = getattr(os, 'O_BINARY', 0)


def why_refused(folder: Path) -> str | None:
    """The reason, if any, for which nothing in a folder is read or written; a folder that is missing has none."""
    try:
        # of a link both are looked at: who made it, and where it leads
        link, found = os.lstat(folder), os.stat(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f'{folder} cannot be read ({error.strerror})'
    if not stat.S_ISDIR(found.st_mode):
        return f'{folder} is no folder'
    return _foreign(folder, link.st_uid) or _foreign(folder, found.st_uid) or _writable_by_others(folder, found.st_mode)


def _foreign(path: Path, owner: int) -> str | None:
    own = os.geteuid() if _SAYS_WHOSE else owner
    return None if owner == own else f'{path} belongs to user {owner}, and this process runs as user {own}'


def _writable_by_others(path: Path, mode: int) -> str | None:
    may_write = _SAYS_WHOSE and mode & (stat.S_IWGRP | stat.S_IWOTH)
    return f'others may write to {path} (chmod go-w mends it)' if may_write else None


def why_not_kept(folder: Path) -> str | None:
    """The reason, if any, for which nothing can be kept in a folder, which is made if it is missing."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # whatever the umask: others' files in it would be refused
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return f'{folder} cannot be made ({error.strerror})'
    refused = why_refused(folder)
    if refused is None and not os.access(folder, os.W_OK | os.X_OK):
        return f'{folder} cannot be written to'
    return refused


def read(path: Path) -> bytes | None:
    """A file's content, or None if there is none or it is refused, which is said once a folder."""
    refused = why_refused(path.parent)
    if refused is not None:
        warn_not_kept(path.parent, refused)
        return None
    try:
        # to open a pipe would wait for a writer
        handle = os.open(path, os.O_RDONLY | NOT_A_LINK | _AT_ONCE | _BYTES)
        with os.fdopen(handle, 'rb') as file:
            # of what was opened, not of what lies at the path by now
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                return None
            refused = _foreign(path, facts.st_uid) or _writable_by_others(path, facts.st_mode)
            if refused is not None:
                warn_once(
                    ('refused', path.parent), 'pygfuse does not use files that others may have written: %s', refused
                )
                return None
            _touch(handle if os.utime in os.supports_fd else path, facts.st_mtime)
            return file.read()
    except OSError:
        return None


def _touch(file: int | Path, modified: float) -> None:
    """Notes that a file is in use, once a day: what is unused for longest leaves first."""
    if time.time() - modified > _DAY_S:
        with contextlib.suppress(OSError):
            os.utime(file)


def write(path: Path, content: bytes) -> bool:
    """Writes a file whole or not at all, so that several processes may do so at once.

    Returns:
        Whether it was written; if not, it is said once a folder.
    """
    failure = why_not_kept(path.parent)
    if failure is None:
        try:
            _replace(path, content)
        except OSError as error:
            failure = f'{path.parent} cannot be written to ({error.strerror})'
    if failure is not None:
        warn_not_kept(path.parent, failure)
    return failure is None


def warn_not_kept(folder: Path, reason: str) -> None:
    """Says once a folder that nothing is kept in it."""
    warn_once(folder, 'what pygfuse compiles and measures is kept for this process only: %s', reason)


def _replace(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix='.partial')
    try:
        with os.fdopen(handle, 'wb') as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:  # an interrupt too leaves nothing behind
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
