"""The rule of comparison: an error is at most twice that of PyG in the same type."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tests.support.parity import RELATIVE

# of everything that is compared: what is left where a gradient cancels to nothing
FLOOR = {torch.float32: 1e-5, torch.float64: 1e-11}
# what is nothing in truth is the rounding of terms that cancel, on either side: their order decides, not their number
_NOTHING, _OF_TERMS = 1e-6, 16
# AGNN compares directions, of length 1 whatever the features: of small ones, this cancels from terms of that size
_OF_DIRECTIONS = 'gradient of beta'
_EPS = torch.finfo(torch.bfloat16).eps

Results = Mapping[str, Tensor | None]


def fault_of(
    found: Results,
    reference: Results,
    plain: Results,
    autocast: bool = False,
    errors: Mapping[str, float] | None = None,
    of_size: float = 0.0,
) -> str | None:
    """What is wrong with results, or None.

    Args:
        found: Results of the fused layer.
        reference: Results of PyG in float64.
        plain: Results of PyG in the type of `found`.
        autocast: Whether what has a wide type was computed in a narrow one.
        errors: By name, errors that PyG may have beside that of `plain`.
        of_size: How large what gradients are made of is at least, where results do not show it.
    """
    errors = errors or {}
    if list(found) != list(plain):
        return f'results are {sorted(set(found) ^ set(plain))} on one side only'
    largest = max([of_size, *map(_largest, reference.values())])
    for name, expected in plain.items():
        least = name.startswith('gradient') * largest
        if name == _OF_DIRECTIONS and expected is not None and expected.dtype is torch.float64:
            least = max(least, 1.0)
        fault = _fault(found[name], expected, reference[name], least, errors.get(name, 0.0), autocast)
        if fault is not None:
            return f'{name}: {fault}'
    return None


def errors_of(plain: Results, reference: Results) -> dict[str, float]:
    """The errors of results by name."""
    return {
        name: _largest(value.double() - reference[name].double())
        for name, value in plain.items()
        if value is not None and reference[name] is not None and value.shape == reference[name].shape
    }


def _fault(
    found: Tensor | None,
    plain: Tensor | None,
    reference: Tensor | None,
    largest: float,
    error_of_pyg: float,
    autocast: bool,
) -> str | None:
    if plain is None or reference is None or found is None:
        missing = found is None
        there = plain if missing else found
        # a graph without edges: one side may leave early, without the parameters of edges
        return None if there is None or _largest(there) == 0 else ('is None' if missing else 'is not None')
    if not plain.is_floating_point():  # PyG is given int64 in place of int32
        return None if torch.equal(found.long(), plain.long()) else 'has other numbers'
    if found.shape != plain.shape or found.dtype != plain.dtype:
        return f'has shape {list(found.shape)}, {found.dtype}, in PyG {list(plain.shape)}, {plain.dtype}'
    finite = reference.isfinite() & plain.isfinite()
    if not bool(found[finite].isfinite().all()):
        return 'is not finite'
    # only PyG's narrow type overflows there: a number has to be the one that float64 gives
    compared = finite | (reference.isfinite() & found.isfinite())
    if bool(found[~compared].isfinite().any()):
        return 'is finite where PyG is not'
    of_pyg = max(error_of_pyg, _largest(plain[finite].double() - reference[finite].double()))
    found, reference = found[compared], reference[compared]
    is_narrow = autocast or found.dtype not in RELATIVE
    relative, floor = (_EPS, _EPS) if is_narrow else (RELATIVE[found.dtype], FLOOR[found.dtype])
    scale = _largest(reference)
    times = _OF_TERMS if scale < _NOTHING * of_pyg else 2
    allowed = max(relative * scale, floor * largest, times * of_pyg)
    error = _largest(found.double() - reference.double())
    return None if error <= allowed else f'error {error:.3g} of {scale:.3g}, PyG {of_pyg:.3g}, allowed {allowed:.3g}'


def _largest(tensor: Tensor | None) -> float:
    return 0.0 if tensor is None or tensor.numel() == 0 else float(tensor.detach().abs().max())
