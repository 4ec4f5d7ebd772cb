"""B-splines over pseudo-coordinates (Fey et al., "SplineCNN", section 3)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# degrees of which there are polynomials
DEGREES = 1, 2, 3


class Splines(NamedTuple):
    """A tensor product of B-splines.

    Attributes:
        sizes: How many splines there are in each dimension.
        are_open: Whether those of a dimension end with it, or begin again.
        degree: 1, 2 or 3.
    """

    sizes: tuple[int, ...]
    are_open: tuple[bool, ...]
    degree: int

    def coefficients(self, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """The splines that are not zero somewhere, by operators that autograd follows, and which ones these are.

        Args:
            coordinates: ``[points, dimensions]``, of the interval from 0 to 1. What PyG makes of others, it makes: a
                kernel begins again behind its end.

        Returns:
            Coefficients ``[points, (degree + 1) ** dimensions]``, and indices of the same shape, int64, of which the
            first dimension's run fastest.

        Raises:
            ValueError: If a coordinate is no number, or so far below 0 that no spline is there.

        Example:
            >>> Splines((3,), (True,), 1).coefficients(torch.tensor([[0.25], [1.0]]))
            (tensor([[0.5000, 0.5000],
                    [1.0000, 0.0000]]), tensor([[0, 1],
                    [2, 0]]))
        """
        count, step = len(coordinates), 1
        found = coordinates.new_ones(count, 1)
        index = torch.zeros(count, 1, dtype=torch.int64, device=coordinates.device)
        behind = torch.arange(self.degree + 1, device=coordinates.device)
        for place, size, is_open in zip(coordinates.unbind(1), self.sizes, self.are_open, strict=True):
            scaled = place * (size - self.degree * is_open)
            known = scaled.detach()
            if not bool((known > -1.0).all()):
                raise ValueError(f"Expected 'edge_attr' to lie between 0 and 1 (got {float(place.detach().min()):g})")
            own = _polynomials(scaled - known.floor(), self.degree)
            found = (own.unsqueeze(2) * found.unsqueeze(1)).flatten(1)
            places = (known.long().unsqueeze(1) + behind).remainder(size) * step
            index = (places.unsqueeze(2) + index.unsqueeze(1)).flatten(1)
            step *= size
        return found, index


def _polynomials(x: Tensor, degree: int) -> Tensor:
    """The pieces of a B-spline on one interval, ``[points, degree + 1]``."""
    if degree == 1:
        return torch.stack([1.0 - x, x], dim=1)
    if degree == 2:
        return torch.stack([0.5 * (1.0 - x).square(), 0.5 + x - x * x, 0.5 * x * x], dim=1)
    rest, square = 1.0 - x, x * x
    middle = 3.0 * square * x - 6.0 * square + 4.0, -3.0 * square * x + 3.0 * square + 3.0 * x + 1.0
    return torch.stack([rest * rest * rest, *middle, square * x], dim=1) / 6.0
