"""Random numbers of an edge's channels from a counter: SplitMix (Steele, Lea and Flood, OOPSLA 2014), 32 bits wide.

Each channel has a stream of its own, whose increment is its key; an edge's mark says how many increments were taken.
Mark and key are the bits of float32 numbers, so that they are operands like all others.
"""

from __future__ import annotations

import torch
from torch import Tensor

# of the mix of 32 bits: shifts, and the factors between them
SHIFTS = (16, 15, 16)
FACTORS = (0x7FEB352D, 0x846CA68B)
# of a mark, whose upper bits are alike for all edges
MARK_SHIFT = 16
# the bits of a number that is drawn; float32 has as many digits
DIGITS = 24
_WORD = 0xFFFFFFFF
# the bits of 1.0: from there on all floats are normal numbers that differ
_FIRST_MARK, MOST_MARKS = 0x3F800000, 2**30
_FIRST_KEY, _KEYS = 0x20000000, 0x40000000


def marks(count: int, device: torch.device) -> Tensor:
    """The marks of so many edges: float32 numbers, ``[count]``, of which the first 2**30 differ.

    Example:
        >>> marks(3, torch.device('cpu')).unique().numel()
        3
    """
    if count > MOST_MARKS:
        # behind the largest float are none that are numbers
        return marks(MOST_MARKS, device).repeat(-(-count // MOST_MARKS))[:count]
    return torch.arange(_FIRST_MARK, _FIRST_MARK + count, dtype=torch.int32, device=device).view(torch.float32)


def keys(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """New keys of a shape, float32, as torch's generator of the device gives them.

    Example:
        >>> keys((8,), torch.device('cpu')).unique().numel()
        8
    """
    bits = torch.randint(_FIRST_KEY, _FIRST_KEY + _KEYS, shape, dtype=torch.int32, device=device)
    return bits.view(torch.float32)


def drawn(mark: Tensor, key: Tensor) -> Tensor:
    """A number from 0 to 1 for each mark and key, float32, of the shape in which both are broadcast.

    Example:
        >>> numbers = drawn(marks(1000, torch.device('cpu')).unsqueeze(1), keys((8,), torch.device('cpu')))
        >>> numbers.shape, bool(((numbers >= 0) & (numbers < 1)).all())
        (torch.Size([1000, 8]), True)
    """
    word, increment = _bits(mark), _bits(key)
    word = (word ^ (word >> MARK_SHIFT)) * (increment | 1) & _WORD
    for shift, factor in zip(SHIFTS, (*FACTORS, 1), strict=True):
        word = (word ^ (word >> shift)) * factor & _WORD
    return (word >> (32 - DIGITS)).to(torch.float32) * 2.0**-DIGITS


def _bits(x: Tensor) -> Tensor:
    return x.to(torch.float32).view(torch.int32).to(torch.int64) & _WORD
