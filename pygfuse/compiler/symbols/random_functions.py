"""Functions of torch that draw random numbers."""

from __future__ import annotations

_RANDOM = (
    'rand', 'bernoulli', 'multinomial', 'normal', 'poisson', 'dropout', 'exponential', 'uniform', 'gumbel', 'rrelu',
    'attention',
)  # fmt: skip


def is_drawn(name: str) -> bool:
    """Whether a function of a name gives other numbers each time."""
    return any(word in name for word in _RANDOM) and name != 'normalize'
