"""Why a message function has no fused form."""

from __future__ import annotations

import functools
import importlib.util
import os
import sysconfig
import traceback

# code that others read no further
_LIBRARIES = 'torch', 'torch_geometric', 'torch_scatter', 'torch_sparse', 'einops', 'opt_einsum', 'pygfuse'


class Refused(Exception):
    """A message function, or what it is called with, has no fused form; its text says why, for `pygfuse.report`."""


class Reason(str):
    """Why something is refused.

    Attributes:
        where: The file and line of the code that asked for it, or None.
    """

    where: str | None = None

    @staticmethod
    def of(refusal: Refused) -> Reason:
        """The reason of a refusal that was caught.

        Example:
            >>> try:
            ...     raise Refused('an index by values')
            ... except Refused as refusal:
            ...     reason = Reason.of(refusal)
            >>> reason, reason.where
            ('an index by values', None)
        """
        found = Reason(refusal)
        for frame, line in traceback.walk_tb(refusal.__traceback__):
            file = frame.f_code.co_filename
            if not file.startswith(('<', *_folders())):
                # the innermost
                found.where = f'{os.path.basename(file)}, line {line}'
        return found


@functools.cache
def _folders() -> tuple[str, ...]:
    """Where the code of libraries is."""
    specs = [importlib.util.find_spec(name) for name in _LIBRARIES]
    found = [os.path.dirname(spec.origin) for spec in specs if spec is not None and spec.origin]
    return tuple([folder + os.sep for folder in (*found, sysconfig.get_paths()['stdlib'])])
