"""What is made when it is first asked for, and read later: on a GPU, perhaps on another stream.

Whoever reads a tensor on a stream has to wait for the one that computes it. Users do so for their tensors, and know
nothing of rows, cuts and norms that are kept with these.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch import Tensor

# devices whose streams run beside each other
ASYNCHRONOUS = {'cuda'}


class Makers:
    """The streams that made what an object keeps.

    Args:
        device: Where that is.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # of each thing, the stream that made it, and the numbers of those that may read it
        self._of: dict[Hashable, tuple[Any, set[int]]] = {}

    def note(self, key: Hashable) -> None:
        """Notes that something was made on the current stream just now."""
        stream = current_stream(self._device)
        self._of[key] = stream, {stream.cuda_stream}

    def wait(self, key: Hashable, value: Any) -> None:
        """Has the current stream wait for the one that made something, which lives until both have read it.

        Args:
            key: What `note` was given.
            value: What was made.
        """
        found = self._of.get(key)
        if found is None or current_number(self._device) in found[1]:
            return
        if torch.cuda.is_current_stream_capturing():
            # a captured stream cannot wait for one that is not; torch waits for all before it captures
            return
        stream = current_stream(self._device)
        stream.wait_stream(found[0])
        for tensor in tensors_kept_in(value):
            if tensor.device == self._device:
                tensor.record_stream(stream)
        found[1].add(stream.cuda_stream)


def makers_on(device: torch.device | None) -> Makers | None:
    """Who made what is kept on a device; None where nobody has to wait."""
    return Makers(device) if device is not None and device.type in ASYNCHRONOUS else None


def current_stream(device: torch.device) -> Any:
    """The current stream of a device."""
    return torch.cuda.current_stream(device)


def current_number(device: torch.device) -> int:
    """Its number, which takes a tenth of the time."""
    return torch._C._cuda_getCurrentRawStream(device.index)


def tensors_kept_in(value: Any) -> Iterator[Tensor]:
    """The tensors of a value: itself, or those in collections and in objects of this package.

    Example:
        >>> [x.item() for x in tensors_kept_in((torch.tensor(1), {'a': [torch.tensor(2), None]}))]
        [1, 2]
    """
    open_, seen = [value], set()
    while open_:
        one = open_.pop()
        if isinstance(one, Tensor):
            yield one
        elif id(one) not in seen:
            seen.add(id(one))
            open_ += reversed(_items(one))


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    if isinstance(value, (tuple, list)):
        return [*value]
    is_ours = type(value).__module__.partition('.')[0] == __name__.partition('.')[0]
    return [*vars(value).values()] if is_ours and hasattr(value, '__dict__') else []
