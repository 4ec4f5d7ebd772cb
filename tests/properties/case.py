"""Runs a case: PyG's layer in float64 and in the case's type, the fused one, and what differs between them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Module
from torch.utils.checkpoint import checkpoint

import pygfuse
from pygfuse.mapping import few_edges
from tests.properties.compare import errors_of, fault_of
from tests.properties.dimension import LAYER, Case
from tests.properties.problem import Arguments, Problem
from tests.support.limits import BY_PYG
from tests.support.parity import tensors

NUDGES, ROUNDINGS = 3, 40
RIGHT, WRONG, KINK, ROUNDING, BOTH_RAISE, ONLY_PYG, ONLY_OURS = (
    'right', 'wrong', 'right but for a kink', 'right but for a rounding', 'both raise', 'only PyG raises',
    'only ours raises',
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        kind: One of the words above.
        text: What is wrong, or the error.
        reason: Why the fused layer ran PyG's path, if it did.
    """

    kind: str
    text: str = ''
    reason: str | None = None


@dataclasses.dataclass
class Attempt:
    """Results of a layer by name, or the error that it raised."""

    results: dict[str, Tensor | None] | None = None
    error: Exception | None = None
    reason: str | None = None


def run(case: Case) -> Outcome:
    """Runs a case."""
    outcome = _run(case)
    if outcome.kind != WRONG or case['dtype'] == 'float64':
        return outcome
    nudges = range(1, NUDGES + 1)
    if case['numbers'] in ('random', 'small') and all(_run(case, nudge).kind == RIGHT for nudge in nudges):
        # rounding moves a derivative to the other side of a kink: not for other features a thousandth away
        return dataclasses.replace(outcome, kind=KINK)
    # where little of the numbers is left, the error of PyG is one of chance: it may be that of numbers close by
    errors: collections.defaultdict[str, float] = collections.defaultdict(float)
    for nudge in range(1, ROUNDINGS + 1):
        for name, error in _errors_of_pyg(case, nudge).items():
            errors[name] = max(errors[name], error)
    return dataclasses.replace(outcome, kind=ROUNDING) if _run(case, errors=errors).kind == RIGHT else outcome


def _run(case: Case, nudge: int = 0, errors: Mapping[str, float] | None = None) -> Outcome:
    ours, of_pyg = Problem(case, True, nudge), Problem(case, False, nudge)
    dtype, autocast = ours.meaning['dtype'], case['context'] == 'autocast'
    reference = attempt(of_pyg, torch.float64)
    plain = reference if dtype is torch.float64 else attempt(of_pyg, dtype)
    found = attempt(ours, dtype)
    expected = plain.error or reference.error
    if found.error is not None and expected is None and ours.is_compiled:
        expected = attempt(Problem(case, False, nudge, compiled=True), dtype).error
    if expected is not None and found.error is not None:
        return Outcome(BOTH_RAISE, kind_of(case, found.error), found.reason)
    if expected is not None:
        return Outcome(ONLY_PYG, kind_of(case, expected), found.reason)
    if found.error is not None:
        return Outcome(ONLY_OURS, kind_of(case, found.error), found.reason)
    # a gradient of gradients is made of these, whose values may be anything where it is nothing
    of_size = float(case['backward'] == 'of the gradient')
    fault = fault_of(found.results, reference.results, plain.results, autocast, errors, of_size)
    if fault is not None and ours.is_compiled:  # a compiled layer of PyG calls no hooks
        others = [attempt(Problem(case, False, nudge, compiled=True), kind).results for kind in (torch.float64, dtype)]
        if None not in others:
            fault = fault_of(found.results, *others, autocast, errors, of_size)
    return Outcome(RIGHT if fault is None else WRONG, fault or '', found.reason)


def _errors_of_pyg(case: Case, nudge: int) -> dict[str, float]:
    problem = Problem(case, False, nudge)
    plain, reference = (attempt(problem, dtype).results for dtype in (problem.meaning['dtype'], torch.float64))
    return {} if plain is None or reference is None else errors_of(plain, reference)


def kind_of(case: Case, error: Exception) -> str:
    """The kind of an error: its layer, class and message without numbers."""
    lines = str(error).strip().splitlines() or ['']
    message = re.sub(r'-?\d+(\.\d+)?(e-?\d+)?', '#', lines[0])
    return f'{case[LAYER]}: {type(error).__name__}: {message[:160]}'


def attempt(problem: Problem, dtype: torch.dtype) -> Attempt:
    """Runs a layer; errors of any class are results, too."""
    found = Attempt()

    def work() -> None:
        try:
            with _around(problem), _limits_of(problem):
                # numbers that torch computes with other threads are others in float32
                conv = problem.prepared(dtype)
                with _threads_of(problem):
                    adjacency = problem.known_adjacency(conv, dtype)
                    torch.default_generator.manual_seed(problem.case.seed + 2)
                    found.results = results(problem, conv, problem.arguments(dtype, adjacency))
            if problem.fused:
                found.reason = next((part.note.reason for part in conv.modules() if hasattr(part, 'note')), None)
        except Exception as error:
            found.error = error

    if problem.case['context'] != 'thread':
        work()
        return found
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found


@contextlib.contextmanager
def _around(problem: Problem) -> Iterator[None]:
    """Everything that is said around a call but for what only its forward pass is in."""
    with contextlib.ExitStack() as stack:
        context, mapping = problem.case['context'], problem.meaning['mapping']
        if context == 'deterministic':
            torch.use_deterministic_algorithms(True)
            stack.callback(torch.use_deterministic_algorithms, False)
        if problem.fused:
            if mapping is not None:
                stack.enter_context(mapping())
            if context in ('paths', 'no paths'):
                stack.enter_context(pygfuse.execution_paths(context == 'paths'))
            if context in ABLATIONS:
                stack.enter_context(pygfuse.ablation(**ABLATIONS[context]))
        yield


# one case of so many leaves what is small to PyG, as for users
_SHARE_OF_USERS = 4


@contextlib.contextmanager
def _limits_of(problem: Problem) -> Iterator[None]:
    """In most cases nothing is so small that PyG's operators run: it would be compared with itself."""
    with pytest.MonkeyPatch.context() as patch:
        if problem.fused and problem.case.seed % _SHARE_OF_USERS:
            for name in BY_PYG:
                patch.setattr(few_edges, name, 0)
        yield


@contextlib.contextmanager
def _threads_of(problem: Problem) -> Iterator[None]:
    before, wanted = torch.get_num_threads(), problem.meaning['threads']
    is_changed = problem.fused and wanted != before
    if is_changed:
        torch.set_num_threads(wanted)
    try:
        yield
    finally:
        if is_changed:
            torch.set_num_threads(before)


ABLATIONS = {
    'no reorganisation': {'reorganisation': False},
    'no fusion': {'fusion': False},
    'no recomputation': {'recomputation': False},
}


@contextlib.contextmanager
def _around_forward(problem: Problem, dtype: torch.dtype) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        context, backward = problem.case['context'], problem.case['backward']
        if context == 'autocast' and dtype is not torch.float64:
            stack.enter_context(torch.autocast('cpu', torch.bfloat16))
        if context == 'active' and problem.fused:
            stack.enter_context(pygfuse.active(problem.mask))
        if backward == 'no grad':
            stack.enter_context(torch.no_grad())
        if backward == 'inference mode':
            stack.enter_context(torch.inference_mode())
        yield


def results(problem: Problem, conv: Module, arguments: Arguments) -> dict[str, Tensor | None]:
    """Outputs, gradients and buffers by name."""
    backward, leaves = problem.case['backward'], arguments.leaves
    if backward == 'of inputs':
        conv.requires_grad_(False)
    if backward == 'of parameters':
        for leaf in leaves.values():
            leaf.requires_grad_(False)
    dtype = next(iter(leaves.values())).dtype
    forward = _forward(problem, conv, arguments)
    found, loss = {}, 0.0
    for turn in range(2 if backward == 'twice in a graph' else 1):
        with _around_forward(problem, dtype):
            output = forward()
        outputs = {f'output {turn}{name}': value for name, value in tensors('', output)}
        if problem.case['rows'] == 'few':
            first = next(iter(outputs))
            outputs[first] = outputs[first][problem.mask]
        found |= {name: value.detach() for name, value in outputs.items()}
        generator = problem.generator(7 + turn)
        for value in outputs.values():
            if value.is_floating_point() and value.requires_grad:
                loss = loss + (value * torch.randn(value.shape, generator=generator).to(value.dtype)).sum()
    wanted = {**leaves, **dict(conv.named_parameters())}
    _backward(loss, [value for value in wanted.values() if value.requires_grad], backward)
    gradients = {f'gradient of {name}': _whole(value.grad) for name, value in wanted.items()}
    buffers = {f'buffer {name}': value.detach().clone() for name, value in conv.named_buffers()}
    return found | gradients | buffers


def _forward(problem: Problem, conv: Module, arguments: Arguments) -> Callable[[], Any]:
    context = problem.case['context']
    called: Callable = conv
    if problem.is_compiled:
        torch._dynamo.reset()
        called = torch.compile(conv, backend='aot_eager')
    if context == 'functional call':

        def called(**named: Any) -> Any:
            parameters = {name: 1.5 * parameter for name, parameter in conv.named_parameters()}
            return torch.func.functional_call(conv, parameters, (), named)

    if problem.case['backward'] == 'checkpointed':
        return lambda: checkpoint(lambda: called(**arguments.make()), use_reentrant=False)
    return lambda: called(**arguments.make())


def _backward(loss: Any, wanted: list[Tensor], how: str) -> None:
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        return
    if how == 'of the gradient':
        first = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
        squares = [(grad * grad).sum() for grad in first if grad is not None and grad.requires_grad]
        if squares:
            sum(squares).backward()
        return
    if how == 'again':
        loss.backward(retain_graph=True)
    loss.backward()


def _whole(gradient: Tensor | None) -> Tensor | None:
    return gradient.full_tensor() if hasattr(gradient, 'full_tensor') else gradient
