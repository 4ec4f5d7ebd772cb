"""Benchmarks as functions: one registers itself with its parameters and says what each side runs."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from pygfuse.bench.schema import Row
from pygfuse.bench.timing import Recorded, Samples, Step

Options = argparse.Namespace
# yields the sides once, is sent their samples, and returns further values, or rows where one case gives several
Measurement = Generator[Sequence[Step | Recorded], Samples, Mapping[str, Any] | list[Row] | None]


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A registered function.

    Attributes:
        name: Its name.
        case: The function: options and the parameters of one case.
        parameters: The cases of a run.
        arguments: Adds options to the command line, if it takes any.
        settings: What holds for all cases, for the result.
        ratios: Pairs of sides whose times are compared.
        quick: Options of a run that only shows that it runs.
        packages: Packages whose versions matter beside the usual ones.
        rotate: Whether another side comes first each time.
        remarks: Lines to say beforehand.
    """

    name: str
    case: Callable[..., Measurement]
    parameters: Callable[[Options], Iterable[Mapping[str, Any]]]
    arguments: Callable[[argparse.ArgumentParser], None]
    settings: Callable[[Options], Mapping[str, Any]]
    ratios: Sequence[tuple[str, str]]
    quick: Mapping[str, Any]
    packages: Sequence[str]
    rotate: bool
    remarks: Callable[[Options], Sequence[str]]


BENCHMARKS: dict[str, Benchmark] = {}
RATIOS = (('PyG', 'pygfuse'), ('PyG compiled', 'pygfuse'))


def benchmark(
    name: str,
    parameters: Callable[[Options], Iterable[Mapping[str, Any]]] = lambda options: [{}],
    arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    settings: Callable[[Options], Mapping[str, Any]] = lambda options: {},
    ratios: Sequence[tuple[str, str]] = RATIOS,
    quick: Mapping[str, Any] | None = None,
    packages: Sequence[str] = (),
    rotate: bool = False,
    remarks: Callable[[Options], Sequence[str]] = lambda options: [],
) -> Callable[[Callable[..., Measurement]], Callable[..., Measurement]]:
    """Registers a function as the case of a benchmark; `Benchmark` says what the arguments are."""

    def register(case: Callable[..., Measurement]) -> Callable[..., Measurement]:
        chosen = (parameters, arguments, settings, ratios, quick or {}, packages, rotate, remarks)
        BENCHMARKS[name] = Benchmark(name, case, *chosen)
        return case

    return register
