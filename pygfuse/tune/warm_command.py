"""``python -m pygfuse warm``: compiles a model's kernels ahead."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable

from pygfuse._lib import disk as cache
from pygfuse.tune.warm import warm


def add_to(commands: argparse._SubParsersAction) -> None:
    """Adds the command."""
    text = "compile a model's kernels ahead, and keep them in the folder of compiled kernels"
    parser = commands.add_parser('warm', help=text, description=text)
    parser.add_argument(
        'function', metavar='MODULE:FUNCTION', type=_function, help='returns a model and what its forward takes'
    )
    parser.set_defaults(run=run)


def _function(text: str) -> Callable:
    module, colon, name = text.partition(':')
    if not module or not colon or not name:
        raise argparse.ArgumentTypeError(f"expected MODULE:FUNCTION (got '{text}')")
    # what is looked for beside the folder of a script is where the command was given
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(options: argparse.Namespace) -> int:
    """Warms the model, and prints what was compiled.

    Returns:
        The exit status.
    """
    folder = cache.cache_directory()
    begin, before = time.perf_counter(), set(cache.kernels(folder))
    model, *inputs = options.function()
    warm(model, *inputs)
    added = len(set(cache.kernels(folder)) - before)
    print(f'compiled {added} kernels in {time.perf_counter() - begin:.1f} s; they are kept in {folder}')
    return 0
