"""Programs by the names under which operators take them."""

from __future__ import annotations

import re

from pygfuse.program.library.gaussian import gaussian, separate_gaussians
from pygfuse.program.program import PROGRAMS, EdgeProgram

# programs that are made when a layer first asks for them, by the numbers that end their names: a process that runs an
# exported model has met no such layer
_FAMILIES = {'gaussian': gaussian, 'separate_gaussians': separate_gaussians}


def program_named(name: str) -> EdgeProgram:
    """The program of a name.

    Raises:
        ValueError: If no program of this name is defined in this process.
    """
    if name in PROGRAMS:
        return PROGRAMS[name]
    family, *numbers = re.split(r'_(?=\d)', name)
    if family not in _FAMILIES:
        raise ValueError(f'No program is named {name!r} in this process: import the module that defines it')
    return _FAMILIES[family](*map(int, numbers))
