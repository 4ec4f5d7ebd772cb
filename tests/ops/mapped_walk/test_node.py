"""Linear maps and a walk along few edges are one node of autograd, with the numbers of one for each part."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import pygfuse
from pygfuse.cpu.products import product_list
from pygfuse.mapping import few_edges
from pygfuse.ops import Edges
from pygfuse.ops.few_edges.sums import FewEdges
from pygfuse.ops.mapped_walk import Derived, Form, Part, Weights, walk_of_maps
from pygfuse.ops.mapped_walk.form import by_parts
from pygfuse.ops.nodes.directions import DIRECTIONS
from pygfuse.ops.points.gaussian_operands import gaussians
from pygfuse.program.library.agnn import AGNN
from pygfuse.program.library.crystal import CRYSTAL
from pygfuse.program.library.edge_values import EDGE_VALUES
from pygfuse.program.library.fa import NORMALISED_FA
from pygfuse.program.library.gat import GAT
from pygfuse.program.library.gatv2 import GATV2
from pygfuse.program.library.gaussian import gaussian
from pygfuse.program.library.gine import GINE
from pygfuse.program.library.transformer import TRANSFORMER
from pygfuse.program.program import EDGE, SOURCE, TARGET, EdgeProgram, operands
from tests.support.layouts import apart
from tests.support.parity import random_edges

SOURCES, TARGETS, EDGES, WIDTH, DIM, HEADS, CHANNELS = 9, 7, 40, 5, 2, 2, 3
ROW = HEADS * CHANNELS
# scores of a dot, of what is given and of what is derived
OF_ALL = EdgeProgram(
    'of_all',
    operands(source='x', source_heads='of_dots', target_heads='own of_squares'),
    score=lambda of_dots, own, of_squares: of_dots * own + of_squares,
    message=lambda weight, x: weight * x,
    softmax=True,
)


def _squares(rows, given):
    return [rows[TARGET][:, :HEADS].square() * given[0]]


def _adjoint_of_squares(found, operands, rows, given):
    grad, values = found['of_squares'], rows[TARGET][:, :HEADS]
    of_rows = torch.zeros_like(rows[TARGET])
    of_rows[:, :HEADS] = 2.0 * grad * values * given[0]
    return {TARGET: of_rows, 0: (grad * values.square()).sum().view(1)}


SQUARES = Derived({'of_squares': (TARGET, 0)}, _squares, _adjoint_of_squares)


@dataclasses.dataclass
class Case:
    """A form, the shapes of its maps' weights and whether these have a bias, and the shapes of what else it takes.

    A map without a shape is a bias alone. The weights of those that the form turns are ``[in, out]``.
    """

    form: Form
    maps: list[tuple[tuple[int, int] | None, bool]]
    rest: list[tuple[int, ...]] = dataclasses.field(default_factory=list)
    itself: float | None = None
    learns_features: bool = True
    num_edges: int = EDGES


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
    'rows of both ends as they are, and a map of one': Case(
        Form(
            EDGE_VALUES['relu'], {'x': (Part(SOURCE),), 'x_dst': (Part(TARGET, 0),)}, 1, WIDTH,
            numbers={'first': 1.0, 'second': 0.0},
        ),
        [((WIDTH, WIDTH), True)],
    ),
    'a bias of edges that goes to nodes': Case(
        Form(
            GINE, {'x': (Part(SOURCE), Part(None, 0)), 'edge': (Part(EDGE, 0, biased=False),)}, 1, WIDTH, reduce='min'
        ),
        [((WIDTH, DIM), True)], itself=1.5,
    ),
    'two maps of edges': Case(
        Form(
            CRYSTAL,
            {
                'f': (Part(SOURCE, 0, (0, WIDTH)),),
                'f_edge': (Part(EDGE, 0, (WIDTH, DIM), biased=False), Part(EDGE, 1)),
                's': (Part(SOURCE),),
                's_edge': (Part(EDGE, 2),),
            },
            *(1, WIDTH),
        ),
        [((WIDTH, WIDTH + DIM), True), ((WIDTH, DIM), False), ((WIDTH, DIM), False)],
    ),
    'scores and messages with edges': Case(
        Form(
            TRANSFORMER, {'query': (Part(TARGET, 0),), 'key': (Part(SOURCE, 1),), 'value': (Part(SOURCE, 2),),
            'edge': (Part(EDGE, 3),)}, HEADS, CHANNELS, numbers={'scale': 0.5},
        ),
        [((ROW, WIDTH), False)] * 3 + [((ROW, DIM), False)],
    ),
    'scores with edges': Case(
        Form(
            GATV2, {'x': (Part(SOURCE, 0),), 'x_dst': (Part(TARGET, 1),), 'edge': (Part(EDGE, 2),)}, HEADS, CHANNELS,
            given=('att',), numbers={'negative_slope': 0.2},
        ),
        [((ROW, WIDTH), True), ((ROW, WIDTH), True), ((ROW, DIM), False)], [(1, HEADS, CHANNELS)],
    ),
    'an extreme': Case(
        Form(GINE, {'x': (Part(SOURCE, 1),), 'edge': (Part(EDGE, 0),)}, 1, WIDTH, reduce='max'),
        [((WIDTH, DIM), False), ((WIDTH, WIDTH), True)],
    ),
    'heads that are summed': Case(
        Form(
            *(GAT, {'x': (Part(SOURCE, 0),), 'alpha_src': (Part(SOURCE, 1),), 'alpha_dst': (Part(TARGET, 2),)}),
            *(HEADS, CHANNELS), numbers={'negative_slope': 0.2}, added=(Part(TARGET, 3), Part(None, 4)),
            sums_heads=True,
        ),
        [
            *[((ROW, WIDTH), True), ((HEADS, WIDTH), False), ((HEADS, WIDTH), True)],
            *[((CHANNELS, WIDTH), False), (None, True)],
        ],
    ),
    'heads that are summed, and nothing else': Case(
        Form(GINE, {'x': (Part(SOURCE, 0),), 'edge': (Part(EDGE, 1),)}, HEADS, CHANNELS, sums_heads=True),
        [((ROW, WIDTH), True), ((ROW, DIM), True)],
    ),
    'a result that is mapped': Case(
        Form(
            GINE, {'x': (Part(SOURCE), Part(None, 0)), 'edge': (Part(EDGE, 0, biased=False),)}, 1, WIDTH, mapped_by=1
        ),
        [((WIDTH, DIM), True), ((3, WIDTH), True)], itself=1.5,
    ),
    'a sum of heads that is mapped': Case(
        Form(
            *(GINE, {'x': (Part(SOURCE, 0),), 'edge': (Part(EDGE, 1),)}, HEADS, CHANNELS), added=(Part(TARGET, 2),),
            mapped_by=3, sums_heads=True, turned=(3,),
        ),
        [((ROW, WIDTH), False), ((ROW, DIM), True), ((CHANNELS, WIDTH), True), ((2, CHANNELS), False)],
    ),
    'an extreme that is mapped, and targets beside it': Case(
        Form(GINE, {'x': (Part(SOURCE),), 'edge': (Part(EDGE, 2),)}, 1, WIDTH, reduce='max', mapped_by=0, root=1),
        [((3, WIDTH), True), ((3, WIDTH), False), ((WIDTH, DIM), False)],
    ),
    'a sum that is mapped, and targets beside it': Case(
        Form(GINE, {'x': (Part(SOURCE, 2),), 'edge': (Part(EDGE, 3),)}, 1, CHANNELS, mapped_by=0, root=1),
        [((3, CHANNELS), False), ((3, WIDTH), False), ((CHANNELS, WIDTH), False), ((CHANNELS, DIM), False)],
    ),
    'weights that are turned': Case(
        Form(
            CRYSTAL,
            {
                'f': (Part(SOURCE, 0, (WIDTH, WIDTH), biased=False),),
                'f_dst': (Part(TARGET, 0, (0, WIDTH)),),
                'f_edge': (Part(EDGE, 1),),
                's': (Part(SOURCE, 2, outputs=(2, WIDTH)),),
                's_dst': (Part(TARGET, 2, outputs=(0, WIDTH)),),
                's_edge': (Part(EDGE, 3, (1, DIM), (1, WIDTH)),),
            },
            *(1, WIDTH), added=(Part(TARGET, 4),), turned=(0, 1, 2, 3, 4),
        ),
        [
            *[((WIDTH, 2 * WIDTH), True), ((WIDTH, DIM), False), ((WIDTH + 2, WIDTH), True)],
            *[((WIDTH + 1, DIM + 1), False), ((WIDTH, WIDTH), True)],
        ],
    ),
    'scores of one head': Case(
        Form(
            NORMALISED_FA,
            {'x': (Part(SOURCE),), 'alpha_src': (Part(SOURCE, 0),), 'alpha_dst': (Part(TARGET, 1),)},
            *(1, WIDTH), given=('norm_src', 'norm_dst'), loops=True,
        ),
        [((1, WIDTH), False), ((1, WIDTH), True)], [(SOURCES, 1), (SOURCES, 1)],
    ),
    'operands that are functions of features of edges': Case(
        Form(
            *(gaussian(DIM), {'x': (Part(SOURCE, 0),)}, HEADS, CHANNELS), derived=(gaussians(DIM),),
            added=(Part(TARGET, 1),), sums_heads=True, turned=(0,),
        ),
        [((ROW, WIDTH), False), ((CHANNELS, WIDTH), True)], [(HEADS, DIM), (HEADS, DIM)],
    ),
    'operands that are functions of nodes': Case(
        Form(AGNN, {'x': (Part(SOURCE),)}, 1, WIDTH, derived=(DIRECTIONS,), loops=True), [], [(1,)],
    ),
    'functions of nodes behind dots and what is given': Case(
        Form(
            *(OF_ALL, {'x': (Part(SOURCE, 0),)}, HEADS, CHANNELS), dots={'of_dots': 'x'}, given=('own',),
            derived=(SQUARES,),
        ),
        [((ROW, WIDTH), True)], [(1, HEADS, CHANNELS), (SOURCES, HEADS), (1,)],
    ),
}  # fmt: skip
# edges whose features the walk multiplies, in more than one chunk of products; fewer are mapped first
MULTIPLIED = 150
OF_FEATURES = {name: case for name, case in CASES.items() if case.form.reads_edges}
CASES |= {
    f'{name}, more edges': dataclasses.replace(case, num_edges=MULTIPLIED) for name, case in OF_FEATURES.items()
} | {
    f'{name}, features that are given': dataclasses.replace(case, learns_features=False, num_edges=MULTIPLIED)
    for name, case in OF_FEATURES.items()
}
every = pytest.mark.parametrize('name', CASES)


@pytest.fixture(autouse=True)
def few_are_mapped_first(monkeypatch):
    monkeypatch.setattr(few_edges, 'MOST_MAPPED_FIRST', MULTIPLIED - 1)


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
        self.features = leaf(generator, self.case.num_edges, DIM) if self.form.reads_edges else None
        if self.form.reads_edges and self.case.learns_features:
            self.leaves['features'] = self.features
        elif self.form.reads_edges:
            self.features.requires_grad_(False)
        for place, (shape, is_biased) in enumerate(self.case.maps):
            if shape is not None:
                is_turned = place in self.form.turned
                self.leaves[f'w{place}'] = leaf(generator, *(reversed(shape) if is_turned else shape))
            if is_biased:
                # that of the result, where it is a bias alone
                row = self.form.channels if self.form.sums_heads else self.form.heads * self.form.channels
                width = row if shape is None else shape[0]
                self.leaves[f'b{place}'] = leaf(generator, width)
        self.leaves |= {f'rest {place}': leaf(generator, *shape) for place, shape in enumerate(self.case.rest)}
        edge_index = random_edges(SOURCES, self.num_targets, self.case.num_edges, 5)
        self.edges = FewEdges(edge_index, 'source_to_target', SOURCES, self.num_targets)

    def parts(self) -> tuple[list[Weights], tuple[Tensor, Tensor], Tensor | None, list[Tensor]]:
        leaves = self.leaves
        maps = [(leaves.get(f'w{k}'), leaves.get(f'b{k}')) for k in range(len(self.case.maps))]
        x = leaves['source'], leaves.get('target', leaves['source'])
        return maps, x, self.features, [leaves[f'rest {k}'] for k in range(len(self.case.rest))]

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
    case = CASES[name]
    sides = {part.side for parts in (*case.form.made.values(), case.form.added) for part in parts}
    sides |= {TARGET} if case.form.root is not None else set()
    return [False, True] if not case.form.loops and (TARGET in sides or case.itself is not None) else [False]


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
def test_tensors_that_are_not_contiguous(name):
    problem, other = Problem(name), Problem(name)
    for key, tensor in other.leaves.items():
        apart = tensor.detach().repeat_interleave(2, -1)[..., ::2]
        other.leaves[key] = apart.requires_grad_()
        assert apart.numel() < 2 or not apart.is_contiguous()
    other.features = other.leaves.get('features', other.features)
    found, expected = other.run(), problem.run()
    assert torch.equal(found, expected)
    gradients = (
        torch.autograd.grad(out.sin().sum(), [*one.leaves.values()])
        for out, one in ((found, other), (expected, problem))
    )
    torch.testing.assert_close(*gradients)


@every
def test_derivatives(name):
    problem = Problem(name)
    leaves = [*problem.leaves.values()]
    assert torch.autograd.gradcheck(problem.run, leaves)
    if problem.form.reduce not in ('max', 'min'):
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
def test_launches_that_are_run_by_themselves(name, monkeypatch):
    expected = results(name)
    monkeypatch.setattr(product_list, 'MOST_OF_ONE', 0)
    # a form whose lines are not written yet
    case = CASES[name]
    monkeypatch.setitem(CASES, name, dataclasses.replace(case, form=dataclasses.replace(case.form)))
    torch.testing.assert_close(results(name), expected)


@every
def test_saved_tensors_that_hooks_lay_out_otherwise(name):
    expected = results(name)
    with torch.autograd.graph.saved_tensors_hooks(apart, lambda one: one):
        torch.testing.assert_close(results(name), expected)


def test_nothing_of_backward_is_written_before_it_runs(monkeypatch):
    name = 'dots'
    monkeypatch.setitem(CASES, name, dataclasses.replace(CASES[name], form=dataclasses.replace(CASES[name].form)))
    problem = Problem(name)
    with monkeypatch.context() as patch:
        patch.setattr('pygfuse.ops.mapped_walk.step.written_backward', None)
        out = problem.run()
        with pytest.raises(TypeError, match='NoneType'):
            out.sum().backward(retain_graph=True)
    out.sum().backward()


def test_forms_that_say_the_same():
    forms = {name: case.form for name, case in CASES.items()}
    for name, form in forms.items():
        assert form == dataclasses.replace(form)
        assert hash(form) == hash(dataclasses.replace(form))
        if form.derived:
            other = form.derived[0]._replace(compute=_squares)
            assert form != dataclasses.replace(form, derived=(other, *form.derived[1:])), name
    given = CASES['what is given'].form
    assert given != dataclasses.replace(given, numbers={'negative_slope': 0.1})
    assert given != dataclasses.replace(given, loops=False)


def results(name):
    """The result of a case and all gradients, from one graph twice."""
    problem = Problem(name)
    out, leaves = problem.run(), [*problem.leaves.values()]
    found = [torch.autograd.grad(out.sin().sum(), leaves, retain_graph=True) for _ in range(2)]
    assert all(map(torch.equal, *found))
    return [out, *found[0]]


@every
def test_a_result_that_is_written_to(name):
    problem = Problem(name)
    leaves = [*problem.leaves.values()]
    expected = torch.autograd.grad((2 * problem.run()).sum(), leaves)
    if not problem.form.plan(()).reads_output or problem.form.added or problem.form.mapped_by is not None:
        torch.testing.assert_close(torch.autograd.grad(problem.run().mul_(2).sum(), leaves), expected)


@every
def test_nothing_of_edges_is_kept_but_what_is_given(name, monkeypatch):
    def numbers_kept(num_edges):
        monkeypatch.setitem(CASES, name, dataclasses.replace(CASES[name], num_edges=num_edges))
        problem, kept = Problem(name), []
        with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
            problem.run()
        given = {tensor.data_ptr() for tensor in (*problem.leaves.values(), problem.edges.edge_index)}
        given |= set() if problem.features is None else {problem.features.data_ptr()}
        return sum(tensor.numel() for tensor in kept if tensor.data_ptr() not in given)

    num_edges = CASES[name].num_edges
    assert numbers_kept(num_edges) == numbers_kept(num_edges - 3)


@every
def test_what_is_said_around_backward_holds(name, monkeypatch):
    problem = Problem(name)
    leaves = [*problem.leaves.values()]
    expected = torch.autograd.grad(problem.run().sum(), leaves)
    out = problem.run()
    # the walk's own adjoint knows what is said
    monkeypatch.setattr('pygfuse.ops.mapped_walk.node._ends_of', None)
    with pygfuse.force_mapping('vertex'):
        torch.testing.assert_close(torch.autograd.grad(out.sum(), leaves), expected)


@every
def test_nodes_that_are_not_there(name):
    problem = Problem(name)
    problem.edges.edge_index[0, 3] = SOURCES
    with pytest.raises(ValueError, match=f'edge_index.* holds node {SOURCES} at position 3'):
        problem.run()


@every
def test_weights_that_do_not_fit(name):
    problem, case = Problem(name), CASES[name]
    places = [k for k, (shape, _) in enumerate(case.maps) if shape is not None]
    for place, dim in itertools.product(places, range(2)):
        is_alone = place == case.form.mapped_by and case.form.root is None and not case.maps[place][1]
        if is_alone and dim == int(place in case.form.turned):
            # the result is as wide as this
            continue
        whole = problem.leaves[f'w{place}']
        # no kernel looks at shapes: what is read would lie behind the weight
        problem.leaves[f'w{place}'] = whole.narrow(dim, 0, whole.shape[dim] - 1)
        with pytest.raises(ValueError, match='Expected rows and the weights and biases of linear maps to fit'):
            problem.run()
        problem.leaves[f'w{place}'] = whole
    for place in [k for k, (_, is_biased) in enumerate(case.maps) if is_biased]:
        whole = problem.leaves[f'b{place}']
        problem.leaves[f'b{place}'] = whole[1:]
        with pytest.raises((ValueError, RuntimeError)):
            problem.run()
        problem.leaves[f'b{place}'] = whole


def test_features_without_a_row_for_each_edge():
    problem = Problem('two maps of edges')
    problem.features = problem.features[1:]
    with pytest.raises(ValueError, match=f"'f_edge' to have a row for each of {EDGES} edges .got {EDGES - 1}."):
        problem.run()


def test_tensors_that_are_written_to_before_the_backward_pass():
    problem = Problem('dots')
    out = problem.run()
    with torch.no_grad():
        problem.leaves['w0'].mul_(2)
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()


def test_walks_multiply_features_that_are_given():
    problem = Problem('scores and messages with edges, features that are given')
    with _RowsOfEdges() as made:
        problem.run().sum().backward()
    assert made.found == [problem.features.data_ptr()] * len(made.found)


class _RowsOfEdges(TorchDispatchMode):
    """Where tensors begin that have a row for each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dim() == 2 and len(out) == MULTIPLIED:
            self.found.append(out.data_ptr())
        return out
