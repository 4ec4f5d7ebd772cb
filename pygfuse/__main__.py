"""``python -m pygfuse COMMAND``: each command is a module that adds itself to the parser."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pygfuse._lib import cache_command
from pygfuse.tune import warm_command

COMMANDS = (cache_command, warm_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: The words of the command line; default: those of this process.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog='python -m pygfuse')
    commands = parser.add_subparsers(required=True, metavar='COMMAND')
    for command in COMMANDS:
        command.add_to(commands)
    options = parser.parse_args(arguments)
    return options.run(options)


if __name__ == '__main__':
    sys.exit(main())
