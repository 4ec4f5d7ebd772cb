"""Graphs that ``torch.compile`` keeps on disk, of which it takes none that another state of this package gave.

Its caches know operators by their names. What an operator gives in a trace, its gradient and what the compiler is told
of it are in the compiled graph, and nothing in the cache's key says that they have changed since.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch.library import CustomOpDef


def register_fake(operator: CustomOpDef) -> Callable[[Callable], Callable]:
    """Registers what an operator gives in a trace; a graph that holds it is kept as this state of the package's."""

    def register(fake: Callable) -> Callable:
        @functools.wraps(fake)
        def traced(*given: object, **named: object) -> object:
            _tag_caches()
            return fake(*given, **named)

        operator.register_fake(traced)
        return fake

    return register


def _tag_caches() -> None:
    """Adds this state of the package to what the keys of the compiler's caches hold; what stands there stays."""
    config, tag = torch.compiler.config, f'pygfuse-{_digest()}'
    # at each trace: whoever patches the configuration takes it away again
    if tag not in config.cache_key_tag:
        config.cache_key_tag = ' '.join(filter(None, (config.cache_key_tag, tag)))


@functools.cache
def _digest() -> str:
    """A digest of the sources of this package."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(package.rglob('*.py')):
        digest.update(f'{path.relative_to(package).as_posix()}\0'.encode() + path.read_bytes() + b'\0')
    return digest.hexdigest()[:16]
