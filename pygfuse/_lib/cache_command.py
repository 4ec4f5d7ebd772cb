"""``python -m pygfuse cache``: what lies in the folder of compiled kernels, and its removal."""

from __future__ import annotations

import argparse

from pygfuse._lib import disk as cache
from pygfuse._lib.private_files import why_not_kept


def add_to(commands: argparse._SubParsersAction) -> None:
    """Adds the command."""
    text = 'show the folder of compiled kernels'
    parser = commands.add_parser('cache', help=text, description=text)
    parser.add_argument('--clear', action='store_true', help='remove all compiled kernels; measurements stay')
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints what is there, and clears it before if that is asked for.

    Returns:
        The exit status: 1 if the folder was to be cleared and cannot be written to.
    """
    folder = cache.cache_directory()
    failure = why_not_kept(folder)
    if failure is None and options.clear:
        cache.clear(folder)
    found = cache.kernels(folder)
    print(f'folder    {folder}')
    print(f'kernels   {len(found):,}')
    print(f'bytes     {sum(facts.st_size for facts in found.values()):,} (at most {cache.byte_limit():,})')
    print(f'writable  {"yes" if failure is None else f"no: {failure}"}')
    return int(options.clear and failure is not None)
