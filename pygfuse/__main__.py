"""``python -m pygfuse [COMMAND]``: each command is a module that adds itself to the parser; without one, facts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pygfuse._lib import cache_command, info_command
from pygfuse.tune import warm_command

COMMANDS = (cache_command, warm_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The words of the command line; default: those of this process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(
        prog='python -m pygfuse', description='Without a command: versions, threads, devices, compiled kernels.'
    )
    parser.set_defaults(run=info_command.run)
    commands = parser.add_subparsers(metavar='COMMAND')
    for command in COMMANDS:
        command.add_to(commands)
    options = parser.parse_args(arguments)
    return options.run(options)


if __name__ == '__main__':
    sys.exit(main())
