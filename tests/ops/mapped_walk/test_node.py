"""Linear maps and a walk along few edges are one node of autograd, with the numbers of one for each part."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

import pygfuse
from pygfuse.ops import Edges
from pygfuse.ops.few_edges import FewEdges
from pygfuse.ops.mapped_walk import Form, Part, Weights, walk_of_maps
from pygfuse.ops.mapped_walk.form import by_parts
from pygfuse.program.library.crystal import CRYSTAL
from pygfuse.program.library.fa import NORMALISED_FA
from pygfuse.program.library.gat import GAT
from pygfuse.program.library.gatv2 import GATV2
from pygfuse.program.library.gine import GINE
from pygfuse.program.library.transformer import TRANSFORMER
from pygfuse.program.program import EDGE, SOURCE, TARGET
from tests.support.parity import random_edges

SOURCES, TARGETS, EDGES, WIDTH, DIM, HEADS, CHANNELS = 9, 7, 40, 5, 2, 2, 3
ROW = HEADS * CHANNELS


@dataclasses.dataclass
class Case:
    """A form, the shapes of its maps' weights and whether these have a bias, and the shapes of what else it takes.

    A map without a shape is a bias alone.
    """

    form: Form
    maps: list[tuple[tuple[int, int] | None, bool]]
    rest: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    itself: float | None = None


CASES = {
    'maps of ends and of edges, and one that is added': Case(
        Form(
            TRANSFORMER,
            {
                'query': (Part(TARGET, 0),), 'key': (Part(SOURCE, 1),), 'value': (Part(SOURCE, 2),),
                'edge': (Part(EDGE, 3),),
            },
            *(HEADS, CHANNELS), numbers={'scale': 0.5}, added=(Part(TARGET, 4), Part(None, 5)),
        ),
        [
            *[((ROW, WIDTH), is_biased) for is_biased in (True, False, True)],
            *[((ROW, DIM), True), ((ROW, WIDTH), True), (None, True)],
        ],
    ),
    'a map that is taken apart': Case(
        Form(
            CRYSTAL,
            {
                'f': (Part(SOURCE, 0, (WIDTH, WIDTH), biased=False),),
                'f_dst': (Part(TARGET, 0, (0, WIDTH)),),
                'f_edge': (Part(EDGE, 0, (2 * WIDTH, DIM), biased=False), Part(EDGE, 1, outputs=(1, WIDTH))),
                's': (Part(SOURCE),),
                's_dst': (Part(TARGET, 2, outputs=(1, WIDTH)), Part(TARGET, 2, outputs=(0, WIDTH))),
            },
            *(1, WIDTH), reduce='mean', added=(Part(TARGET),), of_edges=True,
        ),
        [((WIDTH, 2 * WIDTH + DIM), True), ((WIDTH + 1, DIM), True), ((WIDTH + 1, WIDTH), True)],
    ),
    'dots': Case(
        Form(
            *(GAT, {'x': (Part(SOURCE, 0),)}, HEADS, CHANNELS), dots={'alpha_src': 'x', 'alpha_dst': 'x'}, loops=True,
            numbers={'negative_slope': 0.2}, added=(Part(None, 1),),
        ),
        [((ROW, WIDTH), False), (None, True)], [(1, HEADS, CHANNELS)] * 2,
    ),
    'what is given': Case(
        Form(
            *(GATV2, {'x': (Part(SOURCE, 0),), 'x_dst': (Part(TARGET, 1),)}, HEADS, CHANNELS), given=('att',),
            numbers={'negative_slope': 0.2}, loops=True,
        ),
        [((ROW, WIDTH), True), ((ROW, WIDTH), True)], [(1, HEADS, CHANNELS)],
    ),
    'rows as they are': Case(
        Form(GINE, {'x': (Part(SOURCE),), 'edge': (Part(EDGE, 0),)}, 1, WIDTH), [((WIDTH, DIM), True)], itself=1.5
    ),
    'an extreme': Case(
        Form(GINE, {'x': (Part(SOURCE, 1),), 'edge': (Part(EDGE, 0),)}, 1, WIDTH, reduce='max'),
        [((WIDTH, DIM), False), ((WIDTH, WIDTH), True)],
    ),
    'scores of one head': Case(
        Form(
            NORMALISED_FA,
            {'x': (Part(SOURCE),), 'alpha_src': (Part(SOURCE, 0),), 'alpha_dst': (Part(TARGET, 1),)},
            *(1, WIDTH), given=('norm_src', 'norm_dst'), loops=True,
        ),
        [((1, WIDTH), False), ((1, WIDTH), True)], [(SOURCES, 1), (SOURCES, 1)],
    ),
}  # fmt: skip
every = pytest.mark.parametrize('name', CASES)


def leaf(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()


class Problem:
    """A case with tensors: `leaves` by name."""

    def __init__(self, name: str, is_pair: bool = False) -> None:
        self.case, generator = CASES[name], torch.Generator().manual_seed(3)
        self.form, self.num_targets = self.case.form, TARGETS if is_pair else SOURCES
        self.leaves = {'source': leaf(generator, SOURCES, WIDTH)}
        if is_pair:
            self.leaves['target'] = leaf(generator, TARGETS, WIDTH)
        if self.form.reads_edges:
            self.leaves['features'] = leaf(generator, EDGES, DIM)
        for place, (shape, is_biased) in enumerate(self.case.maps):
            if shape is not None:
                self.leaves[f'w{place}'] = leaf(generator, *shape)
            if is_biased:
                # that of the result, where it is a bias alone
                width = self.form.heads * self.form.channels if shape is None else shape[0]
                self.leaves[f'b{place}'] = leaf(generator, width)
        self.leaves |= {f'rest {place}': leaf(generator, *shape) for place, shape in enumerate(self.case.rest)}
        edge_index = random_edges(SOURCES, self.num_targets, EDGES, 5)
        self.edges = FewEdges(edge_index, 'source_to_target', SOURCES, self.num_targets)

    def parts(self) -> tuple[list[Weights], tuple[Tensor, Tensor], Tensor | None, list[Tensor]]:
        leaves = self.leaves
        maps = [Weights(leaves.get(f'w{k}'), leaves.get(f'b{k}')) for k in range(len(self.case.maps))]
        x = leaves['source'], leaves.get('target', leaves['source'])
        return maps, x, leaves.get('features'), [leaves[f'rest {k}'] for k in range(len(self.case.rest))]

    def run(self, *_: Tensor) -> Tensor:
        maps, x, features, rest = self.parts()
        return walk_of_maps(self.form, maps, x, self.edges, features, rest, self.case.itself)

    def by_parts(self) -> Tensor:
        maps, x, features, rest = self.parts()
        loops = self.num_targets if self.form.loops else None
        edges = Edges(self.edges.edge_index, SOURCES, self.num_targets, loops=loops)
        with pygfuse.force_mapping('vertex'):
            rows = {SOURCE: x[0], TARGET: x[1], EDGE: features}
            return by_parts(self.form, edges, rows, maps, rest, self.case.itself)


def pairs_of(name: str) -> list[bool]:
    # the extreme reads no targets
    return [False] if CASES[name].form.loops or name == 'an extreme' else [False, True]


@pytest.mark.parametrize(('name', 'is_pair'), [(name, is_pair) for name in CASES for is_pair in pairs_of(name)])
def test_numbers_of_one_node_for_each_part(name, is_pair):
    problem = Problem(name, is_pair)
    found, expected, leaves = problem.run(), problem.by_parts(), [*problem.leaves.values()]
    assert type(found.grad_fn).__name__ == '_MappedWalkBackward'
    torch.testing.assert_close(found, expected)
    gradients = (torch.autograd.grad(out.sin().sum(), leaves) for out in (found, expected))
    torch.testing.assert_close(*gradients)
    with torch.no_grad():
        assert torch.equal(problem.run(), found)


@every
def test_derivatives(name):
    problem = Problem(name)
    leaves = [*problem.leaves.values()]
    assert torch.autograd.gradcheck(problem.run, leaves)
    if name != 'an extreme':
        assert torch.autograd.gradgradcheck(problem.run, leaves)


@every
def test_only_gradients_that_are_needed(name):
    problem = Problem(name)
    gradients = torch.autograd.grad(problem.run().sum(), [*problem.leaves.values()])
    expected = dict(zip(problem.leaves, gradients, strict=True))
    for wanted in problem.leaves:
        for other, tensor in problem.leaves.items():
            tensor.grad = None
            tensor.requires_grad_(other == wanted)
        problem.run().sum().backward()
        found = {other: tensor.grad for other, tensor in problem.leaves.items() if tensor.grad is not None}
        assert found.keys() == {wanted}
        torch.testing.assert_close(found[wanted], expected[wanted])


@every
def test_a_result_that_is_written_to(name):
    problem = Problem(name)
    leaves = [*problem.leaves.values()]
    expected = torch.autograd.grad((2 * problem.run()).sum(), leaves)
    if not problem.form.plan.reads_output or problem.form.added:
        torch.testing.assert_close(torch.autograd.grad(problem.run().mul_(2).sum(), leaves), expected)


@every
def test_nothing_of_edges_is_kept_but_what_is_given(name):
    problem, kept = Problem(name), []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        problem.run()
    given = {tensor.data_ptr() for tensor in (*problem.leaves.values(), problem.edges.edge_index)}
    assert all(len(tensor) < EDGES for tensor in kept if tensor.data_ptr() not in given)


@every
def test_what_is_said_around_backward_holds(name, monkeypatch):
    problem = Problem(name)
    leaves = [*problem.leaves.values()]
    expected = torch.autograd.grad(problem.run().sum(), leaves)
    out = problem.run()
    # the walk's own adjoint knows what is said
    monkeypatch.setattr('pygfuse.ops.mapped_walk.node._gradients', None)
    with pygfuse.force_mapping('vertex'):
        torch.testing.assert_close(torch.autograd.grad(out.sum(), leaves), expected)


@every
def test_nodes_that_are_not_there(name):
    problem = Problem(name)
    problem.edges.edge_index[0, 3] = SOURCES
    with pytest.raises(ValueError, match=f'edge_index.* holds node {SOURCES} at position 3'):
        problem.run()


def test_tensors_that_are_written_to_before_the_backward_pass():
    problem = Problem('dots')
    out = problem.run()
    with torch.no_grad():
        problem.leaves['w0'].mul_(2)
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()
