"""Benchmarks for the figures of the documentation, beside those of `pygfuse.bench`, and how results are shown.

Results are shown without torch, too, as `make lint` does; ``import pygfuse`` needs it, so the package is then no more
than the folder of its modules.
"""

import importlib.util
import sys
import types
from pathlib import Path

if importlib.util.find_spec('torch') is None:
    folder = types.ModuleType('pygfuse')
    folder.__path__ = [str(Path(__file__).parents[2] / 'pygfuse')]
    sys.modules['pygfuse'] = folder
