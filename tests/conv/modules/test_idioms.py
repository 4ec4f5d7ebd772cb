"""What published code is written with: modules that read types, devices and sizes, write in place, and log."""

from __future__ import annotations

import copy
import math
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter, softmax
from torch_geometric.utils.num_nodes import maybe_num_nodes

import pygfuse
from pygfuse.compiler.functions.scattering import NO_ROW_OF_EDGES
from tests.compiler import helpers_of_idioms as helpers
from tests.compiler.own_modules import NODES, OF_EDGES, WIDTH
from tests.conv.modules.arguments import assert_same, given

torch_scatter = pytest.importorskip('torch_scatter')
SHIFT = math.log(2.0)


def add_up(x, index, values):
    return torch.zeros_like(x).index_add(0, index, values)


class Idiom(nn.Module):
    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.filter = nn.ModuleList([nn.Linear(OF_EDGES, WIDTH), nn.Linear(WIDTH, WIDTH)])
        self.weight = nn.Parameter(torch.randn(5, WIDTH))
        self.device, self.verbose, self.frequency = torch.device('cpu'), False, torch.arange(1.0, WIDTH + 1)
        self.functions = [torch.tanh, shifted_softplus]


def shifted_softplus(x):
    return F.softplus(x) - SHIFT


class InPlaceOnRows(Idiom):
    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        message = x[row]
        message *= edge_weight.unsqueeze(-1)
        other = x.index_select(0, col)
        other.mul_(2).add_(message)
        return add_up(x, col, message + other)


class NegativeDimensions(Idiom):
    def forward(self, x, edge_index, edge_type):
        row, col = edge_index
        return add_up(x, col, x.index_select(-2, row) * self.weight.index_select(-2, edge_type))


class TypesThatBeginAtOne(Idiom):
    def forward(self, x, edge_index, edge_type):
        row, col = edge_index
        kind = edge_type + 1
        return add_up(x, col, x[row] * self.weight[kind - 1] + self.weight[kind % 3])


class PartsOfAList(Idiom):
    def forward(self, x, edge_index):
        row, col = edge_index
        message = x[row]
        for lin in self.lins[:-1]:
            message = lin(message).relu()
        return add_up(x, col, self.lins[-1](message))


class Devices(Idiom):
    def forward(self, x, edge_index):
        row, col = edge_index
        shares = torch.sin(x[row] * self.frequency.to(x.device, x.dtype)) * torch.ones(1, dtype=x.dtype).to(self.device)
        return add_up(x, col.to(self.device), shares).to(self.device)


class Errors(Idiom):
    """What is said in branches that are not taken."""

    def forward(self, x, edge_index):
        row, col = edge_index.long()
        if x.dim() != 2:
            raise ValueError(f'Expected two dimensions, not those of a {type(x)}')
        if self.verbose:
            print(x.mean())
        return add_up(x, col, x[row].tanh())


class Targets(Idiom):
    """Numbers of targets that are those of the last one, of what is gathered again."""

    def forward(self, x, edge_index):
        row, col = edge_index
        score = (x[row] * x[col]).sum(-1, keepdim=True).tanh().exp()
        total = torch_scatter.scatter_add(score, col, dim=0, dim_size=int(col.max()) + 1)[col]
        again = scatter(score, col, 0, maybe_num_nodes(col))
        return add_up(x, col, x[row] * score / (total + again[col] + scatter(score, col, 0, col.max().item() + 1)[col]))


class SizesOfData(Idiom):
    def forward(self, data):
        row, col = data.edge_index
        if not isinstance(data, Data):
            raise TypeError(f'Expected data, not a {type(data)}')
        out = torch.zeros(data.size(0), data.x.size(1), dtype=data.x.dtype)
        return out.index_add_(0, col, data.x[row].relu()) + torch.zeros(data.size()[1], 1, dtype=data.x.dtype)


class Functions(Idiom):
    def forward(self, x, edge_index):
        row, col = edge_index
        return sum(helpers.add_up(function(x[row] - x[col]), col, x.size(0)) for function in self.functions)


class Scaled(Idiom):
    def forward(self, x, edge_index):
        row, col = edge_index
        return add_up(x, col, helpers.SCALE * helpers.through_a_builtins_name(x[row].tanh()))


class ShiftedFilter(Idiom):
    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        first, second = self.filter
        return add_up(x, col, x[row] * second(shifted_softplus(first(edge_attr))))


class Periodic(Idiom):
    def forward(self, x, edge_index):
        row, col = edge_index
        return add_up(x, col, (x[row] - x[col]) % 1.0 * torch.scalar_tensor(3, dtype=x.dtype))


class NeverPropagates(MessagePassing):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        return self.multiply(x, edge_index)

    def multiply(self, x, edge_index):
        row, col = edge_index
        return add_up(x, col, self.lin(x)[row])


class GraphsByTorchScatter(Idiom):
    def forward(self, x, edge_index, batch):
        row, col = edge_index
        x = x - torch_scatter.scatter_mean(x, batch, dim=0, dim_size=3)[batch]
        return add_up(x, col, x[row].relu())


# what is called of builtins alone is not told apart before
OF_CALLS = pytest.mark.skipif(sys.version_info < (3, 11), reason='Python 3.10 does not say what is called')
CALLING = Errors, Targets


class HeadsLast(Idiom):
    """Attention of heads that are the last dimension, as functions of graph neural diffusion have it."""

    def forward(self, x, edge_index):
        row, col = edge_index
        query, key, value = (lin(x).view(-1, 2, WIDTH // 2).transpose(1, 2) for lin in self.lins)
        score = torch.sum(query[row] * key[col], dim=1) / WIDTH**0.5
        share = softmax(score, row, num_nodes=x.size(0))
        moved = torch.zeros_like(value).index_add(0, row, value[col] * share.unsqueeze(1))
        return moved.mean(dim=2), share


ARGUMENTS = {
    HeadsLast: ('x', 'edge_index'),
    InPlaceOnRows: ('x', 'edge_index', 'edge_weight'),
    NegativeDimensions: ('x', 'edge_index', 'edge_type'),
    TypesThatBeginAtOne: ('x', 'edge_index', 'edge_type'),
    PartsOfAList: ('x', 'edge_index'),
    Devices: ('x', 'edge_index'),
    Errors: ('x', 'edge_index'),
    Targets: ('x', 'edge_index'),
    Functions: ('x', 'edge_index'),
    Scaled: ('x', 'edge_index'),
    ShiftedFilter: ('x', 'edge_index', 'edge_attr'),
    Periodic: ('x', 'edge_index'),
    NeverPropagates: ('x', 'edge_index'),
    GraphsByTorchScatter: ('x', 'edge_index', 'batch'),
}


@pytest.mark.parametrize(
    'kind', [pytest.param(kind, marks=OF_CALLS) if kind in CALLING else kind for kind in ARGUMENTS]
)
def test_outputs_and_gradients_are_those_of_its_own_code(kind):
    torch.manual_seed(0)
    data = given()
    assert_same(kind(), {name: data[name] for name in ARGUMENTS[kind]})


@OF_CALLS
def test_edges_that_are_converted():
    torch.manual_seed(0)
    data = given()
    assert_same(Errors(), {'x': data['x'], 'edge_index': data['edge_index'].int()})


class Converted(nn.Module):
    """Edges that are returned as they are given, or as another type."""

    def forward(self, x, edge_index):
        edge_index = edge_index.long()
        return add_up(x, edge_index[1], x[edge_index[0]]), edge_index


@pytest.mark.parametrize('dtype', [torch.int64, torch.int32])
def test_edges_that_are_converted_and_returned(dtype):
    data = given()
    compiled, edge_index = pygfuse.compile(Converted()), data['edge_index'].to(dtype)
    _, found = compiled(data['x'], edge_index)
    assert found.dtype is torch.int64
    assert found.equal(data['edge_index'])


class Decorated(MessagePassing):
    @torch.no_grad()
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j.tanh()


def counting(forward):
    def wrapper(*given):
        wrapper.calls += 1
        return forward(*given)

    wrapper.calls = 0
    return wrapper


class Counting(Decorated):
    forward = counting(Decorated.forward)


@pytest.mark.parametrize('kind', [Decorated, Counting])
def test_a_forward_that_is_wrapped_sends(kind):
    data = given()
    conv = pygfuse.compile(kind())
    torch.testing.assert_close(conv(data['x'], data['edge_index']), kind()(data['x'], data['edge_index']))
    assert conv.note.reason is None
    assert not conv.is_captured_whole


@OF_CALLS
def test_sizes_of_data():
    torch.manual_seed(0)
    data = given()
    assert_same(SizesOfData(), {'data': Data(data['x'], data['edge_index'])})


@OF_CALLS
def test_targets_without_edges_behind_the_last():
    """The last nodes have no edges: what is gathered again has fewer rows than there are nodes."""
    torch.manual_seed(0)
    data = given()
    data['edge_index'] = data['edge_index'] % 7
    assert_same(Targets(), {name: data[name] for name in ARGUMENTS[Targets]})


class Printing(Errors):
    def __init__(self):
        super().__init__()
        self.verbose = True


@OF_CALLS
def test_what_is_printed_is_printed(capsys):
    data = given()
    compiled = pygfuse.compile(Printing())
    compiled(data['x'], data['edge_index'])
    assert compiled.note.reason == 'it prints'
    assert capsys.readouterr().out


class Typed(nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        return add_up(x, col, x[row] * (2 if type(x) is torch.nn.Parameter else 3))


@OF_CALLS
def test_the_type_of_a_tensor():
    data = given()
    compiled = pygfuse.compile(Typed())
    for x in (data['x'], nn.Parameter(data['x'])):
        torch.testing.assert_close(compiled(x, data['edge_index']), Typed()(x, data['edge_index']))
        assert compiled.note.reason == 'it reads the type of a tensor'


@pytest.mark.parametrize('kind', [Functions, Scaled])
def test_a_file_whose_number_changes(kind, monkeypatch):
    torch.manual_seed(0)
    data = given()
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for scale in (0.5, 2.0, 0.5):
        monkeypatch.setattr(helpers, 'SCALE', scale)
        torch.testing.assert_close(compiled(data['x'], data['edge_index']), module(data['x'], data['edge_index']))
        assert compiled.note.reason is None


def own_scatter(src, index, dim=-1, dim_size=None):
    """A function that finds its size."""
    if dim_size is None:
        dim_size = index.max().item() + 1
    shape = list(src.shape)
    shape[dim] = dim_size
    if index.dim() != src.dim():
        index = index.view(-1, *[1] * (src.dim() - 1)).expand_as(src)
    return torch.zeros(shape, dtype=src.dtype, device=src.device).scatter_add_(dim, index, src)


class SizesFound(Idiom):
    def forward(self, x, edge_index):
        row, col = edge_index
        message = self.lins[0](x)[row].relu()
        zeros = torch.zeros(col.max() + 1, WIDTH, dtype=x.dtype)
        return own_scatter(message, col, 0) + zeros.index_add_(0, col, message.exp())


class SizesOfOnes(Idiom):
    def forward(self, x, edge_index):
        row, col = edge_index
        ones = torch.ones(size=(col.max() + 1, WIDTH), dtype=x.dtype) * torch.ones(())
        ones = ones + x.new_ones(int(col.max()) + 1, WIDTH)
        return ones.index_add(0, col, self.lins[0](x)[row].relu())


class SizesOfAll(Idiom):
    def forward(self, x, edge_index):
        row, col = edge_index
        count = edge_index.max() + 1
        return torch.zeros(count, WIDTH, dtype=x.dtype).index_add_(0, col, self.lins[0](x)[row].relu()) + x[:count]


@pytest.mark.parametrize('kind', [SizesFound, SizesOfOnes, SizesOfAll])
def test_sizes_that_are_found(kind):
    data = given()
    whole = {'x': data['x'], 'edge_index': torch.cat([data['edge_index'], torch.full((2, 1), NODES - 1)], dim=1)}
    assert_same(kind(), whole)
    # the last node has no edge
    ends_early = {'x': data['x'], 'edge_index': data['edge_index'].clamp(max=NODES - 3)}
    reason = 'a reduction without a size, along edges of which none leads to the last target'
    module = kind()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for arguments in (whole, ends_early, whole):
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
    compiled(**ends_early)
    assert compiled.note.reason == (NO_ROW_OF_EDGES if kind is SizesOfAll else reason)


class NoNodesError(ValueError):
    pass


class Raising(Idiom):
    """An error of its own in a branch that is not taken."""

    def forward(self, x, edge_index):
        if self.weight.shape[0] != 5:
            raise NoNodesError(self.weight.shape)
        row, col = edge_index
        return add_up(x, col, self.lins[0](x)[row].relu())


def test_errors_that_are_not_raised():
    data = given()
    assert_same(Raising(), {name: data[name] for name in ('x', 'edge_index')})
    module = pygfuse.compile(Raising())
    module.weight = nn.Parameter(torch.randn(4, WIDTH))
    with pytest.raises(NoNodesError):
        module(data['x'], data['edge_index'])


class ReturnsData(Idiom):
    def forward(self, graph):
        row, col = graph.edge_index
        state = self.filter[1](self.filter[0](graph.edge_attr) + graph.x[row]).relu()
        found = Data(x=add_up(graph.x, col, state), edge_attr=state, edge_index=graph.edge_index)
        found.name = 'next'
        return found, {'before': graph.x}


def test_data_that_is_returned():
    data = given()
    module = ReturnsData().double()
    compiled = pygfuse.compile(copy.deepcopy(module))
    graph = Data(data['x'].double(), data['edge_index'], data['edge_attr'].double())
    for one in (compiled, torch.compile(compiled, backend='aot_eager')):
        (expected, _), (found, others) = module(graph), one(graph)
        assert type(found) is Data
        assert list(found.to_dict()) == list(expected.to_dict())
        assert found.edge_index is graph.edge_index
        assert others['before'] is graph.x
        assert found.name == 'next'
        torch.testing.assert_close((found.x, found.edge_attr), (expected.x, expected.edge_attr))
    assert compiled.note.reason is None


class Sent(MessagePassing):
    def forward(self, x, edge_index):
        share = self.edge_updater(edge_index, x=x)
        return self.propagate(edge_index, x=x, share=share)

    def edge_update(self, x_i, x_j, index):
        return softmax((x_i * x_j).sum(-1, keepdim=True), index)

    def message(self, x_j, share):
        return share * x_j


class SentTwice(Sent):
    def propagate(self, edge_index, size=None, **kwargs):
        return 2 * super().propagate(edge_index, size=size, **kwargs)


class OfChangedFeatures(Sent):
    def propagate(self, edge_index, size=None, x=None, **kwargs):
        return super().propagate(edge_index, size=size, x=x.tanh(), **kwargs)


class SharedByHalves(Sent):
    def edge_updater(self, edge_index, size=None, **kwargs):
        return 0.5 * super().edge_updater(edge_index, size=size, **kwargs)


@pytest.mark.parametrize('kind', [SentTwice, OfChangedFeatures, SharedByHalves])
@pytest.mark.parametrize('how', [pygfuse.fuse, pygfuse.compile])
def test_methods_that_send_and_are_overridden(kind, how):
    data = given()
    conv = how(kind())
    torch.testing.assert_close(conv(data['x'], data['edge_index']), kind()(data['x'], data['edge_index']))
    assert conv.note.reason.endswith('is overridden')


class OwnPropagate(MessagePassing):
    """One that finds arguments as PyG does, and reduces twice."""

    def __init__(self, norm=None, **how):
        super().__init__(aggr='mean', **how)
        self.lin, self.score = nn.Linear(2 * WIDTH + 1, WIDTH), nn.Linear(WIDTH, 1)
        self.norm = norm

    def forward(self, x, edge_index, coord, edge_weight):
        i, j = (1, 0) if self.flow == 'source_to_target' else (0, 1)
        difference = coord[edge_index[j]] - coord[edge_index[i]]
        return self.propagate(edge_index, x=x, coord=coord, difference=difference, weight=edge_weight.unsqueeze(1))

    def message(self, x_i, x_j, weight):
        return self.lin(torch.cat([x_i, x_j, weight], dim=-1)).relu()

    def update(self, found, x):
        return found[0] + x, found[1]

    def propagate(self, edge_index, size=None, **kwargs):
        size = self._check_input(edge_index, size)
        found = self._collect(self._user_args, edge_index, size, kwargs)
        arguments = {
            name: self.inspector.collect_param_data(name, found) for name in ('message', 'aggregate', 'update')
        }
        message = self.message(**arguments['message'])
        moved = self.aggregate(self.score(message) * kwargs['difference'], **arguments['aggregate'])
        out = self.aggregate(message, **arguments['aggregate'])
        if self.norm:
            out = self.norm(out)
        return self.update((out, kwargs['coord'] + moved), **arguments['update'])


@pytest.mark.parametrize('norm', [None, nn.LayerNorm(WIDTH), nn.Sequential(), nn.Sequential(nn.ReLU())])
@pytest.mark.parametrize('flow', ['source_to_target', 'target_to_source'])
def test_a_propagate_of_ones_own_is_captured_whole(norm, flow):
    data = given()
    arguments = {name: data[name] for name in ('x', 'edge_index', 'coord', 'edge_weight')}
    assert_same(OwnPropagate(norm, flow=flow), arguments)


def test_a_patched_propagate_is_not_that_of_the_class():
    data = given()
    conv = pygfuse.compile(Sent())
    propagate = conv.propagate
    conv.propagate = lambda *given, **named: 2 * propagate(*given, **named)
    torch.testing.assert_close(conv(data['x'], data['edge_index']), 2 * Sent()(data['x'], data['edge_index']))
