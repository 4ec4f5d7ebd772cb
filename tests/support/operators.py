"""Which operators of torch run."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Names(TorchDispatchMode):
    """A ``with`` block in which the names of operators are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))
