"""Measuring which mapping is best for a model on its data."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import statistics
import time
from collections.abc import Mapping as Named
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch_geometric.data import Data
from torch_geometric.typing import SparseTensor
from tqdm import tqdm

from pygfuse.mapping import choice, records
from pygfuse.mapping.mapping import EDGE_BALANCED, PART_WORK, VERTEX_BALANCED, Mapping, force_mapping

CANDIDATES = tuple(
    Mapping(balance, part_work, two_pass)
    for two_pass in (False, True)
    for balance in (VERTEX_BALANCED, EDGE_BALANCED)
    for part_work in (PART_WORK // 4, PART_WORK, 4 * PART_WORK)
)


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What `autotune` measured: prints as a table.

    Attributes:
        seconds: The median time of a step under each mapping; None stands for the cost model's choice.
        best: The mapping that is remembered; None where the cost model's choice was as good as any.
        graphs: How many shapes of graphs it is remembered for.
    """

    seconds: Named[Mapping | None, float]
    best: Mapping | None
    graphs: int

    def __str__(self) -> str:
        base = self.seconds[None]
        lines = [f'{"mapping":<34}{"ms a step":>11}{"ratio":>8}']
        lines.append('-' * len(lines[0]))
        for mapping, seconds in self.seconds.items():
            mark = '  <- remembered' if mapping == self.best and mapping is not None else ''
            lines.append(f'{_label(mapping):<34}{seconds * 1e3:>11.2f}{seconds / base:>8.2f}{mark}')
        if self.best is None:
            lines.append("nothing is faster than the cost model's choice, which stays")
        return '\n'.join(lines)


def _label(mapping: Mapping | None) -> str:
    if mapping is None:
        return "the cost model's choice"
    return f'{mapping.balance}, parts of {mapping.part_work}{", two passes" if mapping.two_pass else ""}'


def autotune(
    model: torch.nn.Module,
    data: Data | Sequence[Any] | Named[str, Any],
    candidates: Sequence[Mapping] = CANDIDATES,
    repeats: int = 7,
    margin: float = 0.03,
    progress: bool = True,
) -> Tuning:
    """Measures a step of a model under each mapping, and remembers the best for graphs of this shape on this device.

    A step is forward and, in training mode, backward of the sum of the outputs. It runs on a copy of the model; random
    numbers and the gradients of inputs are as before afterwards. The candidates take turns. What is remembered lies
    beside the compiled kernels and holds for all later processes with as many threads; `pygfuse.mapping.records.forget`
    drops it.

    Args:
        model: A model with fused layers.
        data: What it is called with: a `torch_geometric.data.Data`, of which it gets what its ``forward`` names, or
            arguments as a sequence or by name.
        candidates: The mappings to compare with the cost model's choice.
        repeats: Steps under each, at least 1.
        margin: The share of the time by which a mapping must be faster than the cost model's choice, in the median and
            in three of four rounds, to be remembered.
        progress: Whether to show a progress bar.

    Returns:
        The times.

    Raises:
        ValueError: If no layer of the model runs a fused walk on these data, or `repeats` is less than 1.

    Example:
        >>> from pygfuse.conv import SAGEConv
        >>> x, edge_index = torch.randn(50, 8), torch.randint(50, (2, 300))
        >>> tuning = autotune(SAGEConv(8, 8), (x, edge_index), repeats=1, margin=1.0, progress=False)
        >>> tuning.best is None
        True
    """
    if repeats < 1:
        raise ValueError(f"Expected 'repeats' to be at least 1 (got {repeats})")
    positional, named = tree_map(_apart, _arguments(model, data))
    model = copy.deepcopy(model)
    choices = [None, *candidates]
    times: dict[Mapping | None, list[float]] = {mapping: [] for mapping in choices}
    with torch.random.fork_rng(devices=[]):
        with choice.recorded() as shapes:
            _step(model, positional, named, None)
        if not shapes:
            raise ValueError("Expected 'model' to run a layer fused on these data (pygfuse.report tells why not)")
        rounds = tqdm(range(repeats + 1), desc='autotune', unit='round', disable=not progress)
        for i in rounds:
            for mapping in choices:
                seconds = _step(model, positional, named, mapping)
                if i > 0:  # the first compiles and builds
                    times[mapping].append(seconds)
    medians = {mapping: statistics.median(found) for mapping, found in times.items()}
    best = min(medians, key=medians.__getitem__)
    if best is not None and not _clearly_faster(times[best], times[None], margin):
        best = None
    if best is not None:
        records.remember(sorted(shapes, key=str), best)
    return Tuning(medians, best, len(shapes))


def _clearly_faster(times: Sequence[float], others: Sequence[float], margin: float) -> bool:
    """Whether the median is, and most of the steps that were measured in turn are, faster by a share of the time."""
    wins = sum(mine < (1 - margin) * theirs for mine, theirs in zip(times, others, strict=True))
    return statistics.median(times) < (1 - margin) * statistics.median(others) and 4 * wins >= 3 * len(times)


def _arguments(model: torch.nn.Module, data: Any) -> tuple[tuple, dict[str, Any]]:
    if isinstance(data, Data):
        names = inspect.signature(model.forward).parameters
        return (), {name: data[name] for name in names if name in data and data[name] is not None}
    if isinstance(data, Named):
        return (), dict(data)
    if isinstance(data, (tuple, list)):
        return tuple(data), {}
    raise ValueError(f"Expected 'data' to be a Data object, a sequence or a mapping (got {type(data).__name__})")


def _apart(value: Any) -> Any:
    """The same input, of which what requires a gradient is a leaf of its own over the same memory."""
    tensor = value.storage.value() if isinstance(value, SparseTensor) else value
    if not isinstance(tensor, Tensor) or not tensor.requires_grad:
        return value
    leaf = tensor.detach().requires_grad_()
    return leaf if tensor is value else value.set_value(leaf, layout='coo')


def _step(model: torch.nn.Module, positional: tuple, named: dict[str, Any], mapping: Mapping | None) -> float:
    start = time.perf_counter()
    if mapping is None:
        _run(model, positional, named)
    else:
        with force_mapping(mapping):
            _run(model, positional, named)
    return time.perf_counter() - start


def _run(model: torch.nn.Module, positional: tuple, named: dict[str, Any]) -> None:
    model.zero_grad()
    with torch.set_grad_enabled(model.training):
        outputs = model(*positional, **named)
        found = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        floats = [out for out in found if isinstance(out, Tensor) and out.is_floating_point() and out.requires_grad]
        if floats:
            sum(out.sum() for out in floats).backward()
