"""What a person is told while they wait, through ``logging`` and its logger ``pygfuse``.

An application that has configured logging decides what is shown of it; where nobody has, it goes to standard error.
``logging.getLogger('pygfuse').setLevel(logging.ERROR)`` silences all of it.
"""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger('pygfuse')

_said: set[object] = set()


def announce(message: str, *arguments: object) -> None:
    """Logs at level INFO, and shows it even where the application has configured no logging; each message once.

    Args:
        message: The text, with the placeholders of `logging`.
        arguments: What is put into them.
    """
    if message in _said:
        return
    _said.add(message)
    if _is_configured():
        logger.info(message, *arguments)
    else:
        print('pygfuse:', message % arguments, file=sys.stderr)


def warn_once(topic: object, message: str, *arguments: object) -> None:
    """Logs at level WARNING, which Python shows on standard error by itself.

    Args:
        topic: What it is about: further warnings of the same topic are left out.
        message: The text, with the placeholders of `logging`.
        arguments: What is put into them.
    """
    if topic not in _said:
        _said.add(topic)
        logger.warning(message, *arguments)


def _is_configured() -> bool:
    """Whether somebody has decided what becomes of messages of level INFO."""
    root = logging.getLogger()
    return (
        logger.hasHandlers()
        or logger.level != logging.NOTSET
        or root.level != logging.WARNING
        or logger.disabled
        or logger.manager.disable >= logging.INFO
    )
