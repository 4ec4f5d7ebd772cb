"""Where TorchScript is to be had."""

from __future__ import annotations

import sys

import pytest

HAS_TORCHSCRIPT = pytest.mark.skipif(sys.version_info >= (3, 14), reason='torch no longer supports TorchScript there')
