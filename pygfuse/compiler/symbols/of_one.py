"""Values that another value stands for, which has their rows first."""

from __future__ import annotations

from typing import Any

import torch

from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.symbol import Rearranged


class OfOne(Rearranged):
    """What reads of a tensor nothing but what the other value has, too."""

    @property
    def dtype(self) -> torch.dtype:
        return self.one.dtype

    @property
    def device(self) -> torch.device:
        return self.one.device

    def is_floating_point(self) -> bool:
        return self.one.is_floating_point()

    def item(self) -> int | bool:
        raise Refused(self.unread)

    def __setitem__(self, key: Any, item: Any) -> None:
        raise Refused('it writes into a tensor')
