"""Calls of such modules: which of their arguments are the edges, and what runs the module's own code."""

from __future__ import annotations

import collections
import copy
from typing import NamedTuple

import pytest
import torch
from torch_geometric.utils import add_self_loops, is_torch_sparse_tensor, scatter

import pygfuse
from pygfuse.mapping.few_edges import SO_FEW_EDGES
from tests.compiler import own_modules as own
from tests.compiler.own_modules import EDGES, NODES, WIDTH
from tests.conv.modules.arguments import arguments_of, assert_same, assert_same_in_traces, given


@pytest.mark.parametrize('kind', [own.Equivariant, own.Mean, own.Scores], ids=lambda k: k.__name__)
def test_without_edges_its_own_code_runs(kind):
    assert_same(kind(), arguments_of(kind, given(edges=0)), 'there are no edges')


@pytest.mark.parametrize('edges', [tuple, list])
def test_edges_may_be_two_rows(edges):
    torch.manual_seed(0)
    arguments = arguments_of(own.Equivariant, given())
    module = own.Equivariant()
    expected = module(**arguments)
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(2):
        arguments['edge_index'] = edges(given()['edge_index'])
        for found, wanted in zip(compiled(**arguments), expected, strict=True):
            torch.testing.assert_close(found, wanted)
        assert compiled.note.reason is None


def test_what_is_given_back_is_the_same_tensor():
    arguments = arguments_of(own.States, given())
    arguments['scale'] = torch.randn(())
    compiled = pygfuse.compile(own.States())
    out = compiled(**arguments)
    assert compiled.note.reason is None
    assert type(out) is tuple
    assert out[2] is arguments['scale']
    assert out[3] is arguments['x']
    assert out[4] == 3
    data = arguments_of(own.Attention, given())
    assert pygfuse.compile(own.Attention())(**data)[1] is data['data'][1]
    assert type(pygfuse.compile(own.Interaction())(**arguments_of(own.Interaction, given()))) is list


class InStructures(torch.nn.Module):
    """Returns what it computes by names, some of it within others."""

    def forward(self, x, edge_index):
        out = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]].sin())
        return {'out': out, 'parts': [(x, out.sum()), {'none': None}], 'found': [out * 2, 7]}


def test_results_in_dicts_and_lists_are_given_so():
    arguments = [given()[name] for name in ('x', 'edge_index')]
    compiled = pygfuse.compile(InStructures())
    found, wanted = compiled(*arguments), InStructures()(*arguments)
    assert compiled.note.reason is None
    torch.testing.assert_close(found, wanted)
    assert found['parts'][0][0] is arguments[0]
    assert found['found'][1] == 7
    assert compiled(*arguments)['parts'] is not found['parts']
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(compiled, backend='aot_eager')(*arguments), wanted)
    assert compiled.note.reason is None


class Named(NamedTuple):
    out: torch.Tensor
    parts: tuple


Untyped = collections.namedtuple('Untyped', ['total'])
SCALES = {'scale': 2.0}


class Scaling(NamedTuple):
    """Reads something that nobody guards."""

    out: torch.Tensor

    def scaled(self):
        return self.out * SCALES['scale']


class InNames(torch.nn.Module):
    def forward(self, x, edge_index):
        out = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]].sin())
        return Named(out=out, parts=(Untyped(out.sum()), x))


class InScaled(torch.nn.Module):
    def forward(self, x, edge_index):
        out = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]].sin())
        return Scaling(out).scaled()


def test_results_in_named_tuples_are_given_so():
    arguments = [given()[name] for name in ('x', 'edge_index')]
    compiled = pygfuse.compile(InNames())
    torch._dynamo.reset()
    wanted = InNames()(*arguments)
    for run in (compiled, torch.compile(compiled, backend='aot_eager', fullgraph=True)):
        found = run(*arguments)
        assert (type(found), type(found.parts[0])) == (Named, Untyped)
        torch.testing.assert_close(found.out, wanted.out)
        torch.testing.assert_close(found.parts[0].total, wanted.parts[0].total)
        assert compiled.note.reason is None


def test_code_of_named_tuples_is_not_guarded():
    assert_same(InScaled(), {name: given()[name] for name in ('x', 'edge_index')}, 'it reads Scaling from around it')


class AsksForClasses(torch.nn.Module):
    """Does other things by the classes of what it is given."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x, edge_index):
        if isinstance(edge_index, torch.Tensor):
            edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        if isinstance(edge_index, list):
            x = x + 1
        if is_torch_sparse_tensor(edge_index) or is_torch_sparse_tensor(x):
            return x
        row, col = edge_index
        x = x * 2 if torch.is_tensor(row) and not isinstance(x, torch.nn.Parameter) else x
        x = x * 3 if isinstance(self.scale, torch.nn.Parameter) else x
        return torch.zeros_like(x).index_add_(0, col, x[row] * self.scale if isinstance(col, torch.Tensor) else x)


@pytest.mark.parametrize('held', [lambda edges: edges, tuple, list], ids=['tensor', 'tuple', 'list'])
def test_classes_are_those_of_what_was_given(held):
    x, edge_index = given()['x'], held(given()['edge_index'])
    compiled = pygfuse.compile(AsksForClasses())
    torch.testing.assert_close(compiled(x, edge_index), AsksForClasses()(x, edge_index))
    assert compiled.note.reason is None


def test_each_class_has_a_plan():
    x, edge_index = given()['x'], given()['edge_index']
    compiled = pygfuse.compile(AsksForClasses())
    for held in (edge_index, tuple(edge_index), edge_index):
        torch.testing.assert_close(compiled(x, held), AsksForClasses()(x, held))


class Refused(torch.nn.Module):
    """What has no fused form, behind statistics that move."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(WIDTH)

    def forward(self, x, edge_index):
        x = self.norm(x)
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])[x[:, 0] > 0]


def test_what_is_refused_runs_once():
    torch.manual_seed(0)
    arguments = arguments_of(Refused, given())
    module = Refused()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(2):
        assert torch.equal(compiled(**arguments), module(**arguments))
    assert compiled.norm.num_batches_tracked == 2
    assert 'an index by values' in pygfuse.report(compiled).rows[0].why_not


def test_other_numbers_of_nodes_and_edges_are_no_other_kind_of_call():
    compiled = pygfuse.compile(own.Normalised())
    for nodes in range(NODES, NODES + 20):
        arguments = arguments_of(own.Normalised, given(nodes=nodes, edges=2 * nodes))
        torch.testing.assert_close(compiled(**arguments), compiled.plain.forward(compiled, **arguments))
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 1


class BothWays(torch.nn.Module):
    """As many rows as the highest source and the highest target of an edge have."""

    def forward(self, x, edge_index):
        row, col = edge_index
        return scatter(x[row], col, dim=0), scatter(x[col], row, dim=0)


class LooksAtEdges(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = torch.tensor(edge_index.tolist())
        return torch.zeros_like(x).index_add(0, col, x[row])


class ToOneNumber(torch.nn.Module):
    def forward(self, x, edge_index, num_nodes):
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * (1 / num_nodes))


class OfShared(torch.nn.Module):
    def forward(self, x, edge_index, weight):
        return (x @ weight).index_add(0, edge_index[1], x[edge_index[0]])


class Nothing(torch.nn.Module):
    def forward(self, x, edge_index):
        return x * 2


class Appends(torch.nn.Module):
    def forward(self, x, edge_index, states):
        states.append(torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]))
        return states[-1]


class Pair(NamedTuple):
    x: torch.Tensor
    edge_index: torch.Tensor


class OfAPair(torch.nn.Module):
    def forward(self, pair):
        return torch.zeros_like(pair.x).index_add(0, pair.edge_index[1], pair.x[pair.edge_index[0]])


def test_a_list_of_the_caller_is_written_to():
    arguments, states, theirs = arguments_of(Appends, given()), [], []
    compiled = pygfuse.compile(Appends())
    found, expected = compiled(**arguments, states=states), Appends()(**arguments, states=theirs)
    assert found is states[0]
    assert torch.equal(found, expected)
    assert compiled.note.reason == 'it writes into states, a list of the caller'


def test_arguments_of_other_classes_are_its_own_code_s():
    pair = Pair(given()['x'], given()['edge_index'])
    compiled = pygfuse.compile(OfAPair())
    assert torch.equal(compiled(pair), OfAPair()(pair))
    assert compiled.note.reason == 'none of its arguments is an edge_index'


class OntoAnExtreme(torch.nn.Module):
    def forward(self, x, edge_index):
        places = edge_index[1].unsqueeze(-1).expand(-1, x.shape[1])
        return (x * 1).scatter_reduce(0, places, x[edge_index[0]], 'amax')


class TorchScattered(torch.nn.Module):
    def forward(self, x, edge_index):
        alpha = torch.zeros(x.shape[0]).index_add_(0, edge_index[1], torch.ones(edge_index.shape[1]))
        return torch.zeros(x.shape[0], 4).index_add_(0, edge_index[1], x[edge_index[0]]) + alpha.unsqueeze(-1)


REFUSED = {
    BothWays: 'a reduction to sources that does not say how many there are',
    LooksAtEdges: 'tolist of edges gives a list',
    ToOneNumber: 'it computes with the number of edges or nodes',
    Nothing: 'it reduces nothing',
    OntoAnExtreme: 'of what was there before',
}


@pytest.mark.parametrize('kind', REFUSED, ids=lambda kind: kind.__name__)
def test_what_has_no_form_runs_its_own_code(kind):
    arguments = arguments_of(kind, given())
    if kind is ToOneNumber:
        arguments['num_nodes'] = NODES
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert REFUSED[kind] in compiled.note.reason


def test_an_error_of_its_own_code_is_its_own():
    arguments = arguments_of(own.Mean, given())
    compiled = pygfuse.compile(TorchScattered())
    with pytest.raises((RuntimeError, IndexError)):
        compiled(**arguments)
    with pytest.raises(TypeError, match='edge_index'):
        compiled(arguments['x'])
    with pytest.raises(IndexError, match='out of'):
        pygfuse.compile(own.Mean())(arguments['x'], torch.full((2, 5), NODES))


@pytest.mark.parametrize('edges', [EDGES, 20_000])
def test_nodes_that_are_counted_from_the_end(edges):
    """As torch gathers them."""
    data = given(edges=edges)
    data['edge_index'][0, 3] = -1
    module, compiled = own.Mean(), pygfuse.compile(own.Mean())
    compiled.load_state_dict(module.state_dict())
    torch.testing.assert_close(compiled(data['x'], data['edge_index']), module(data['x'], data['edge_index']))
    assert compiled.note.reason == 'edges that name other nodes than there are'


def test_a_weight_that_is_given_is_no_feature_of_nodes():
    """Though it has as many rows."""
    arguments = {
        'x': torch.randn(WIDTH, WIDTH),
        'edge_index': torch.randint(WIDTH, (2, 40)),
        'weight': torch.randn(WIDTH, WIDTH),
    }
    module = OfShared()
    compiled = pygfuse.compile(OfShared())
    torch.testing.assert_close(compiled(**arguments), module(**arguments))


def test_as_many_nodes_as_edges():
    torch.manual_seed(0)
    for kind in (own.Equivariant, own.Mean, own.Scores, own.States):
        module, arguments = kind(), arguments_of(kind, given(edges=NODES))
        compiled = pygfuse.compile(copy.deepcopy(module))
        theirs, ours = module(**arguments), compiled(**arguments)
        for found, wanted in zip(*(out if isinstance(out, tuple) else (out,) for out in (ours, theirs)), strict=True):
            torch.testing.assert_close(found, wanted)


def test_arguments_of_any_number_are_its_own_code_s():
    arguments, compiled = arguments_of(own.Guarded, given()), pygfuse.compile(own.Guarded())
    expected = compiled(**arguments)
    assert compiled.note.reason is None
    torch.testing.assert_close(compiled(*arguments.values(), 1, more={}), expected)
    assert compiled.note.reason == 'its forward takes any arguments (others)'


class ByAnyName(torch.nn.Module):
    def forward(self, x, edge_index, *others, **features):
        row, col = edge_index
        message = x[row] * features['edge_weight'].view(-1, 1)
        if 'edge_attr' in features:
            message = message * features['edge_attr'].sum(dim=-1, keepdim=True)
        return torch.zeros_like(x).index_add(0, col, message) * features.get('scale', 1.0)


def test_arguments_by_any_name():
    data, module = given(), ByAnyName()
    compiled = pygfuse.compile(copy.deepcopy(module))
    arguments = {name: data[name] for name in ('x', 'edge_index', 'edge_weight')}
    for more in ({}, {'edge_attr': data['edge_attr']}, {'scale': 2.0}, {}):
        torch.testing.assert_close(compiled(**arguments, **more), module(**arguments, **more))
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 3
    assert_same_in_traces(module, {**arguments, 'edge_attr': data['edge_attr']})


class EdgesByAnyName(torch.nn.Module):
    def forward(self, x, **given):
        row, col = given['edge_index']
        return torch.zeros_like(x).index_add(0, col, x[row].tanh())


def test_few_edges_by_any_name(by_pyg):
    arguments = {name: given()[name] for name in ('x', 'edge_index')}
    compiled = pygfuse.compile(EdgesByAnyName())
    for _ in range(2):
        torch.testing.assert_close(compiled(**arguments), EdgesByAnyName()(**arguments))
        assert compiled.note.reason == SO_FEW_EDGES


def test_few_edges_run_its_own_code(by_pyg):
    module, arguments = own.Attention(), arguments_of(own.Attention, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(2):
        assert torch.equal(compiled(**arguments)[0], module(**arguments)[0])
        assert compiled.note.reason == 'so few edges that a row for each takes less'
    more = arguments_of(own.Attention, given(edges=5000))
    torch.testing.assert_close(compiled(**more)[0], module(**more)[0])
    assert compiled.note.reason is None


def test_three_indices_of_as_many_numbers_are_no_edges():
    class Three(torch.nn.Module):
        def forward(self, x, first, second, third):
            return torch.zeros_like(x).index_add(0, second, x[first] + x[third])

    compiled, x = pygfuse.compile(Three()), torch.randn(NODES, WIDTH)
    indices = torch.randint(NODES, (3, EDGES)).unbind()
    torch.testing.assert_close(compiled(x, *indices), Three()(x, *indices))
    assert compiled.note.reason == 'none of its arguments is an edge_index'


class EitherWay(torch.nn.Module):
    """Settings decide to which ends it reduces."""

    def __init__(self):
        super().__init__()
        self.ends = 'targets'

    def forward(self, x, edge_index):
        row, col = edge_index
        out = torch.zeros_like(x)
        if self.ends != 'sources':
            out = out.index_add(0, col, x[row].sin())
        return out if self.ends == 'targets' else out.index_add(0, row, x[col].cos())


def test_calls_that_reduce_to_other_ends():
    module, arguments = EitherWay(), arguments_of(EitherWay, given())
    compiled = pygfuse.compile(EitherWay())
    for ends in ('both', 'targets', 'both', 'sources', 'targets'):
        module.ends = compiled.ends = ends
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
        assert compiled.note.reason is None
    # those to one end are walked as they lead there
    assert sorted(plan.captured.target_row for plan in compiled.plans()) == [0, 1, 1]
    assert sum('leads_back' in node.attributes for plan in compiled.plans() for node in plan.steps) == 1


def test_a_forward_that_belongs_to_no_file():
    namespace = {'torch': torch}
    exec('def forward(self, x, e):\n    return torch.zeros_like(x).index_add(0, e[1], x[e[0]])', namespace)
    compiled = pygfuse.compile(type('Executed', (torch.nn.Module,), {'forward': namespace['forward']})())
    arguments = given()['x'], given()['edge_index']
    torch.testing.assert_close(compiled(*arguments), compiled.plain.forward(compiled, *arguments))
    assert compiled.note.reason is None


class LaterSteps(torch.nn.Module):
    """What edges keep is computed of what an earlier step has reduced, and is read by a later one."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index, batch):
        row, col = edge_index
        message = self.first(torch.cat([x[row], x[col]], dim=-1)).relu()
        batch['first'] = message
        out = torch.zeros_like(x).index_add(0, col, message) + torch.zeros_like(x).index_add(0, row, message)
        message = self.last(torch.where(x[row] > out[col], out[row], x[col])).tanh()
        return torch.zeros_like(x).index_add(0, col, message) + torch.zeros_like(x).index_add(0, row, message)


def test_what_earlier_steps_keep_is_computed_once():
    torch.manual_seed(0)
    module, arguments = LaterSteps(), given()
    compiled = pygfuse.compile(copy.deepcopy(module))
    found, expected = {}, {}
    ours = compiled(arguments['x'], arguments['edge_index'], found)
    torch.testing.assert_close(ours, module(arguments['x'], arguments['edge_index'], expected))
    assert compiled.note.reason is None
    torch.testing.assert_close(found['first'], expected['first'])
    (plan,) = compiled.plans()
    assert sum(node.op == 'reduce' for node in plan.steps) == 4
