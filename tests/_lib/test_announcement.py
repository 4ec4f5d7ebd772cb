"""What a person is told: visible where nobody has configured logging, and silenced by it."""

import subprocess
import sys
from pathlib import Path

import pytest

import pygfuse._lib.announcement

# without the package, whose import takes seconds
SCRIPT = f"""
import logging, runpy
said = runpy.run_path({str(Path(pygfuse._lib.announcement.__file__))!r})
{{}}
for _ in range(2):
    said['announce']('%d kernels', 3)
    said['warn_once']('topic', 'no %s', 'disk')
"""


def errors(configuration: str) -> str:
    command = [sys.executable, '-c', SCRIPT.format(configuration)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stderr


def test_each_message_is_shown_once_by_default():
    assert errors('') == 'pygfuse: 3 kernels\nno disk\n'


@pytest.mark.parametrize(
    ('configuration', 'shown'),
    [
        ('logging.basicConfig()', 'WARNING:pygfuse:no disk\n'),
        ('logging.basicConfig(level=logging.INFO)', 'INFO:pygfuse:3 kernels\nWARNING:pygfuse:no disk\n'),
        ('logging.getLogger("pygfuse").setLevel(logging.WARNING)', 'no disk\n'),
        ('logging.getLogger("pygfuse").setLevel(logging.ERROR)', ''),
        ('logging.getLogger("pygfuse").addHandler(logging.NullHandler())', ''),
        ('logging.getLogger().setLevel(logging.ERROR)', ''),
        ('logging.disable(logging.INFO)', 'no disk\n'),
        ('logging.getLogger("pygfuse").disabled = True', ''),
    ],
)
def test_configured_logging_decides(configuration, shown):
    assert errors(configuration) == shown
