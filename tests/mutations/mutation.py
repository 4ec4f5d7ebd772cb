"""What a mutation is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Mutation(NamedTuple):
    """A change of the sources.

    Attributes:
        name: What is broken.
        file: Where, below the package.
        text: What stands there exactly once.
        replacement: What stands there afterwards.
        tests: Arguments of pytest that name the tests which must fail.
    """

    name: str
    file: str
    text: str
    replacement: str
    tests: str

    def source(self, root: Path = ROOT) -> Path:
        """The file below a folder that holds the package."""
        return root / 'pygfuse' / self.file
