"""The net: random cases; ``python -m tests.properties.run --pairs`` runs those that have every pair of values."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties import problem
from tests.properties.case import RIGHT, WRONG, Outcome, run
from tests.properties.compare import fault_of
from tests.properties.coverage import all_pairs, draw, pairs_of
from tests.properties.dimension import LAYER
from tests.properties.known import KNOWN
from tests.properties.layers import KINDS
from tests.properties.possible import REFUSED, RULES, is_possible, is_refused
from tests.properties.run import fault_of as fault_of_outcome
from tests.properties.space import SPACE
from tests.support.adjacencies import graphs
from tests.support.parity import Example

# compiles for a second
WITHOUT_COMPILER = ('none', 'active', 'functional call', 'deterministic', 'paths', 'no fusion')

pytestmark = pytest.mark.filterwarnings('ignore')


def checked(case) -> None:
    fault = fault_of_outcome(run(case))
    assert fault is None, f'python -m tests.properties.run --case {SPACE.number(case)}: {fault}'


def drawn(seed: int, **fixed: str):
    source = random.Random(seed)
    return draw(source, {'context': source.choice(WITHOUT_COMPILER), 'dtype': 'float64', **fixed})


@pytest.mark.parametrize('seed', range(50))
def test_random_cases(seed):
    checked(drawn(seed, **{LAYER: list(KINDS)[seed % len(KINDS)]}))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(graph=graphs(), seed=st.integers(0, 9))
def test_graphs_of_any_shape(graph, seed):
    sources, targets, num_sources, num_targets = graph
    fixed = {LAYER: 'SAGEConv', 'graph': 'more sources' if num_sources != num_targets else 'random'}
    case = drawn(seed, **fixed)
    example = Example(torch.stack((sources, targets)), num_sources, num_targets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(problem.GRAPHS, case['graph'], lambda generator: example)
        checked(case)


def test_a_number_stands_for_a_case():
    source = random.Random(0)
    for _ in range(100):
        case = SPACE.draw(source)
        assert SPACE.case(SPACE.number(case)) == case


def test_cases_that_are_drawn_have_a_meaning():
    source = random.Random(1)
    for _ in range(100):
        case = draw(source, {LAYER: 'GATConv', 'graph': 'more sources'})
        assert case[LAYER] == 'GATConv'
        assert case['graph'] == 'more sources'
        assert is_possible(case)
        assert not is_refused(case)


@pytest.mark.parametrize('reason', [*RULES, *REFUSED])
def test_every_rule_applies_to_something(reason):
    source, rule = random.Random(2), {**RULES, **REFUSED}[reason]
    cases = (SPACE.draw(source) for _ in range(20_000))
    assert any(rule(case, SPACE.meaning(case)) for case in cases)


def test_pairs_are_counted_once():
    pairs = list(all_pairs())
    assert len(set(pairs)) == len(pairs)
    source = random.Random(3)
    assert set(pairs_of(SPACE.draw(source))) <= set(pairs)


def test_errors_that_are_known_have_reasons():
    assert all(reason for _, _, reason in KNOWN)
    assert fault_of_outcome(Outcome('only PyG raises', 'SAGEConv: KeyError: something new')) is not None
    assert fault_of_outcome(Outcome('only ours raises', "SAGEConv: ValueError: layout 'torch.sparse_csc'")) is not None
    assert fault_of_outcome(Outcome(WRONG, 'output')) is not None
    assert fault_of_outcome(Outcome(RIGHT)) is None


def test_the_comparison_sees_what_is_wrong():
    reference = {'output': torch.ones(3, dtype=torch.float64), 'gradient of x': None}
    plain = {'output': torch.ones(3) + 1e-4, 'gradient of x': None}

    def fault(output: torch.Tensor, gradient: torch.Tensor | None = None) -> str | None:
        return fault_of({'output': output, 'gradient of x': gradient}, reference, plain)

    assert fault(torch.ones(3) - 1e-4) is None
    assert fault(torch.ones(3) - 3e-4) is not None
    assert fault(torch.ones(2)) is not None
    assert fault(torch.ones(3, dtype=torch.float64)) is not None
    assert fault(torch.full((3,), float('nan'))) is not None
    assert fault(torch.ones(3), torch.zeros(4)) is None
    assert fault(torch.ones(3), torch.ones(4)) is not None
    assert fault_of({'output': None}, reference, {'output': torch.ones(3)}) is not None
    infinite = {'output': torch.tensor([float('inf'), 1.0])}
    assert fault_of(infinite, infinite, infinite) is None
    assert fault_of({'output': torch.ones(2)}, infinite, infinite) is not None
