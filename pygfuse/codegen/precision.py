"""What keeps the digits of sums and exponentials, in the walks of every device."""

from __future__ import annotations

import numpy as np

# a sum over so many edges joins the sum of such sums: float32 would lose digits in one long sum
SETTLED_AFTER = 256
# a softmax's running maximum is only raised when a score exceeds it by this much: exp(8) is far from overflow
SLACK = 8.0


def fuses_products(reduce: str) -> bool:
    """Whether a product and a sum may become one instruction in the walks of a reduction.

    The adjoint of a maximum computes messages again and asks which of them equal it: to the last bit, whatever else
    stands around them in either walk.

    Args:
        reduce: ``'sum'``, ``'mean'``, ``'max'`` or ``'min'``.

    Example:
        >>> fuses_products('mean'), fuses_products('max')
        (True, False)
    """
    return reduce not in ('max', 'min')


def lowest(dtype: str) -> float:
    """Where a running maximum begins: finite, so that a score of -inf is below it and gets the weight 0.

    Args:
        dtype: ``'float32'`` or ``'float64'``.
    """
    return float(np.finfo(dtype).min)
