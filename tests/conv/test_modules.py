"""Modules that gather and reduce along edges themselves: compiled whole, with the numbers of their own code."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import NamedTuple

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import pygfuse
from pygfuse import compiler
from pygfuse.compiler.dropouts import check_taken_once
from pygfuse.compiler.ir import leaf, value
from pygfuse.memory import saved_bytes
from tests.compiler import own_modules as own
from tests.compiler.own_modules import EDGES, NODES, OF_EDGES, WIDTH
from tests.support import parity


def given(seed=0, nodes=NODES, edges=EDGES):
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(shape, generator=generator)

    return {
        'x': random(nodes, WIDTH),
        'edge_index': torch.randint(nodes, (2, edges), generator=generator),
        'edge_attr': random(edges, OF_EDGES),
        'edge_weight': random(edges),
        'coord': random(nodes, 3),
        'mu': random(nodes, 3, WIDTH),
        'direction': random(edges, 3),
        'z': torch.randint(5, (nodes,), generator=generator),
        'edge_type': torch.randint(4, (edges,), generator=generator),
        'u': random(3, WIDTH),
        'batch': torch.randint(3, (nodes,), generator=generator),
    }


ARGUMENTS = {
    own.Equivariant: lambda d: {'h': d['x'], **{k: d[k] for k in ('edge_index', 'coord', 'edge_attr')}},
    own.Attention: lambda d: {'data': (d['x'], d['edge_index'])},
    own.Normalised: lambda d: {'x': d['x'], 'edge_index': d['edge_index'], 'num_nodes': d['x'].shape[0]},
    own.Recurrent: lambda d: {'h': d['x'], 'edge_index': d['edge_index'], 'edge_weight': d['edge_weight']},
    own.Interaction: lambda d: {
        **{'q': d['x'], 'mu': d['mu'], 'basis': d['edge_attr'], 'direction': d['direction']},
        **{'idx_i': d['edge_index'][0], 'idx_j': d['edge_index'][1], 'n_atoms': d['x'].shape[0]},
    },
    own.Guarded: lambda d: {k: d[k] for k in ('x', 'edge_index', 'batch')},
    own.Scores: lambda d: {'z': d['x'], 'edge_index': d['edge_index']},
    own.States: lambda d: {k: d[k] for k in ('x', 'edge_index', 'edge_attr')},
    own.Typed: lambda d: {k: d[k] for k in ('z', 'edge_index', 'edge_type', 'u', 'batch')},
}
MODULES = [
    *ARGUMENTS, own.Mean, own.Extremes, own.Onto,
    own.Twice,
    own.Constants,
    own.WrittenSoftmax, own.Degrees, own.WithinOthers,
]  # fmt: skip


def arguments_of(kind, data):
    return ARGUMENTS.get(kind, lambda d: {'x': d['x'], 'edge_index': d['edge_index']})(data)


def _as_int64(argument):
    if isinstance(argument, tuple):
        return tuple(map(_as_int64, argument))
    is_int32 = isinstance(argument, torch.Tensor) and argument.dtype == torch.int32
    return argument.long() if is_int32 else argument


def assert_same(module, arguments, reason=None):
    """Compiles a module, whose outputs and gradients are then those of its own code, in float64 and in float32."""
    # torch's gradients by an expanded index of int32 are wrong
    wide = {name: _as_int64(argument) for name, argument in arguments.items()}
    reference = parity.results(copy.deepcopy(module).double(), wide, torch.float64, 0)
    plain = parity.results(copy.deepcopy(module), wide, torch.float32, 0)
    compiled = pygfuse.compile(copy.deepcopy(module))
    parity.assert_close(parity.results(copy.deepcopy(compiled).double(), arguments, torch.float64, 0), reference)
    parity.assert_close(parity.results(compiled, arguments, torch.float32, 0), reference, plain)
    assert compiled.note.reason == reason
    return compiled


@pytest.mark.parametrize('kind', MODULES, ids=lambda kind: kind.__name__)
def test_outputs_and_gradients_are_those_of_its_own_code(kind):
    torch.manual_seed(0)
    assert_same(kind(), arguments_of(kind, given()))


GRAPHS = {
    'isolated nodes': lambda: torch.tensor([[3, 3, 4, 9], [4, 9, 4, 3]]),
    'hub': lambda: torch.stack([torch.arange(200) % NODES, torch.full((200,), 7)]),
    'repeated edges': lambda: torch.randint(4, (2, 150)),
    'self-loops': lambda: torch.arange(NODES).repeat(2, 3),
    'int32': lambda: torch.randint(NODES, (2, EDGES), dtype=torch.int32),
    'not contiguous': lambda: torch.randint(NODES, (EDGES, 2)).t(),
}


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize(
    'kind',
    [own.Equivariant, own.Attention, own.Normalised, own.Scores, own.Extremes, own.Constants],
    ids=lambda k: k.__name__,
)
def test_graphs_of_any_shape(kind, graph):
    torch.manual_seed(0)
    edge_index = GRAPHS[graph]()
    data = {**given(edges=edge_index.shape[1]), 'edge_index': edge_index}
    assert_same(kind(), arguments_of(kind, data))


@pytest.mark.parametrize('kind', [own.Equivariant, own.Mean, own.Scores], ids=lambda k: k.__name__)
def test_without_edges_its_own_code_runs(kind):
    assert_same(kind(), arguments_of(kind, given(edges=0)), 'there are no edges')


@pytest.mark.parametrize('options', [{'attention': False}, {'normalize': True}, {'mean': False, 'tanh': True}])
def test_options_of_an_equivariant_layer(options):
    torch.manual_seed(0)
    data = given()
    # of a self-loop rounding is divided by next to nothing
    data['edge_index'][1] = (data['edge_index'][0] + 1 + torch.arange(EDGES) % 7) % NODES
    assert_same(own.Equivariant(**options), arguments_of(own.Equivariant, data))


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


def test_dropout_of_nodes_and_of_weights_is_drawn_in_each_call():
    torch.manual_seed(0)
    module, arguments = own.Attention(dropout=0.5), arguments_of(own.Attention, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    first, again = compiled(**arguments)[0], compiled(**arguments)[0]
    assert compiled.note.reason is None
    assert not torch.equal(first, again)
    # its mean is what the layer gives without dropout
    mean = torch.stack([compiled(**arguments)[0] for _ in range(3000)]).mean(0)
    theirs = torch.stack([module(**arguments)[0] for _ in range(3000)])
    error = 6 * theirs.std(0) / theirs.shape[0] ** 0.5 + 1e-3
    assert ((mean - theirs.mean(0)).abs() < 2 * error).all()
    torch.testing.assert_close(compiled.eval()(**arguments)[0], module.eval()(**arguments)[0])


def test_statistics_of_nodes_move_once():
    torch.manual_seed(0)
    module, arguments = own.Recurrent(), arguments_of(own.Recurrent, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(3):
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason is None
    assert compiled.norm.num_batches_tracked == 3
    torch.testing.assert_close(compiled.norm.running_var, module.norm.running_var)
    torch.testing.assert_close(compiled.eval()(**arguments), module.eval()(**arguments))


class Refused(torch.nn.Module):
    """What has no fused form, behind statistics that move."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(WIDTH)

    def forward(self, x, edge_index):
        x = self.norm(x)
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]) @ x.t()


def test_what_is_refused_runs_once():
    torch.manual_seed(0)
    arguments = arguments_of(Refused, given())
    module = Refused()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(2):
        assert torch.equal(compiled(**arguments), module(**arguments))
    assert compiled.norm.num_batches_tracked == 2
    assert 't moves the dimension' in pygfuse.report(compiled).rows[0].why_not


class Dropouts(torch.nn.Module):
    def forward(self, x, edge_index):
        first, second = (torch.nn.functional.dropout(x, 0.5) for _ in range(2))
        summed = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return first - second, summed


def test_dropouts_of_the_same_are_two():
    arguments = arguments_of(Dropouts, given())
    compiled = pygfuse.compile(Dropouts())
    assert compiled(**arguments)[0].abs().sum() > 0
    assert compiled.note.reason is None


def test_other_numbers_of_nodes_and_edges_are_no_other_kind_of_call():
    compiled = pygfuse.compile(own.Normalised())
    for nodes in range(NODES, NODES + 20):
        arguments = arguments_of(own.Normalised, given(nodes=nodes, edges=2 * nodes))
        torch.testing.assert_close(compiled(**arguments), compiled.plain.forward(compiled, **arguments))
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 1


def test_what_is_drawn_twice_is_refused():
    x = leaf('x', 'target', (4,), torch.float32)
    first, second = (value('dropout_of_nodes', x, p=0.5) for _ in range(2))
    check_taken_once([first, x], first)
    with pytest.raises(compiler.Refused, match='taken twice'):
        check_taken_once([first, second], first)


class Stores(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        score = (x[row] * x[col]).sum(-1)
        self.weights = torch.softmax(score.view(-1, 1), dim=-1) * score.sigmoid().unsqueeze(1)
        return torch.zeros_like(x).index_add(0, col, x[row] * self.weights)


def test_what_a_module_stores_is_there():
    module, arguments = Stores(), arguments_of(Stores, given())
    compiled = assert_same(module, arguments)
    module(**arguments)
    torch.testing.assert_close(compiled.weights, module.weights)


class BothWays(torch.nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        return torch.zeros_like(x).index_add(0, col, x[row]) + torch.zeros_like(x).index_add(0, row, x[col])


class LooksAtEdges(torch.nn.Module):
    def forward(self, x, edge_index):
        mask = edge_index[0] != edge_index[1]
        row, col = edge_index[:, mask]
        return torch.zeros_like(x).index_add(0, col, x[row])


class Writes(torch.nn.Module):
    def forward(self, x, edge_index):
        x += 1
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])


class ToOneNumber(torch.nn.Module):
    def forward(self, x, edge_index, num_nodes):
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] / num_nodes)


class OfShared(torch.nn.Module):
    def forward(self, x, edge_index, weight):
        return (x @ weight).index_add(0, edge_index[1], x[edge_index[0]])


class Nothing(torch.nn.Module):
    def forward(self, x, edge_index):
        return x * 2


class Largest(torch.nn.Module):
    def forward(self, x, edge_index):
        score = x[edge_index[0]] + x[edge_index[1]]
        return torch.zeros_like(x).index_add(0, edge_index[1], score - score.max())


def test_the_largest_score_may_be_below_zero():
    """Though a target without edges has zeros."""
    assert_same(Largest(), {'x': -1 - torch.rand(NODES, WIDTH), 'edge_index': torch.randint(NODES - 5, (2, EDGES))})


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
    BothWays: 'a reduction of edges by something else than their target',
    LooksAtEdges: 'it reads the edges themselves',
    Writes: 'it writes into a tensor that something else may share',
    ToOneNumber: 'it computes with the number of edges or nodes',
    Nothing: 'it reduces nothing',
    OntoAnExtreme: 'of what was there before',
}


@pytest.mark.parametrize('kind', REFUSED, ids=lambda kind: kind.__name__)
def test_what_has_no_form_runs_its_own_code(kind):
    arguments = arguments_of(kind, given())
    if kind is ToOneNumber:
        arguments['num_nodes'] = NODES
    module, compiled = kind(), pygfuse.compile(kind())
    theirs = {**arguments, 'x': arguments['x'].clone()}
    torch.testing.assert_close(compiled(**arguments), module(**theirs))
    assert REFUSED[kind] in compiled.note.reason
    if kind is Writes:
        assert torch.equal(arguments['x'], theirs['x'])


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


def test_copies_pickles_and_swaps():
    module, arguments = own.Mean(), arguments_of(own.Mean, given())
    expected = module(**arguments)
    model = torch.nn.ModuleList([module, torch.nn.Linear(2, 2)])
    assert pygfuse.fuse(model, include=own.Mean) is model
    assert isinstance(module, own.Mean)
    assert repr(module) == repr(own.Mean())
    torch.testing.assert_close(module(**arguments), expected)
    assert 'walk' in str(pygfuse.explain(module)) or 'network' in str(pygfuse.explain(module))
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert copied.note.reason is None
        assert not copied.was_captured
        torch.testing.assert_close(copied(**arguments), expected)
        assert copied.was_captured
    (row,) = pygfuse.report(model)
    assert (row.layer, row.why_not) == ('0', None)
    assert type(pygfuse.unfuse(model)[0]) is own.Mean
    assert '_plans' not in vars(module)


def test_blocks_that_are_compiled_themselves_are_captured_with_what_holds_them():
    torch.manual_seed(0)
    module, arguments = own.WithinOthers(), arguments_of(own.WithinOthers, given())
    expected = module(**arguments)
    pygfuse.fuse(module, include=[own.Mean, own.WithinOthers])
    torch.testing.assert_close(module(**arguments), expected)
    assert module.note.reason is None
    assert not module.blocks[0].was_captured


def test_arguments_of_any_number_are_its_own_code_s():
    arguments, compiled = arguments_of(own.Guarded, given()), pygfuse.compile(own.Guarded())
    expected = compiled(**arguments)
    assert compiled.note.reason is None
    torch.testing.assert_close(compiled(*arguments.values(), 1, more={}), expected)
    assert compiled.note.reason is not None


def test_a_hook_within_is_called():
    module, arguments = own.Mean(), arguments_of(own.Mean, given())
    compiled, seen = pygfuse.compile(copy.deepcopy(module)), []
    compiled(**arguments)
    compiled.mlp.register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert seen == [1]
    assert 'a hook is registered' in compiled.note.reason


def test_few_edges_run_its_own_code(by_pyg):
    module, arguments = own.Attention(), arguments_of(own.Attention, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    for _ in range(2):
        assert torch.equal(compiled(**arguments)[0], module(**arguments)[0])
        assert compiled.note.reason == 'so few edges that a row for each takes less'
    more = arguments_of(own.Attention, given(edges=5000))
    torch.testing.assert_close(compiled(**more)[0], module(**more)[0])
    assert compiled.note.reason is None


def test_bytes_that_are_kept_grow_with_nodes():
    """Of the states of edges nothing is kept but what is given and what is returned."""
    torch.manual_seed(0)
    for kind in (own.Mean, own.Attention, own.Extremes, own.Normalised):
        compiled, kept = pygfuse.compile(kind()), []
        for edges in (2000, 4000):
            arguments = arguments_of(kind, given(edges=edges))
            tensors = [
                item for value in arguments.values() for item in (value if isinstance(value, tuple) else (value,))
            ]
            tensors = [item for item in tensors if isinstance(item, torch.Tensor)]
            tensors[0].requires_grad_()
            compiled(**arguments)
            call = functools.partial(compiled, **arguments)
            kept.append(saved_bytes(call, exclude=[*tensors, *compiled.parameters()]))
        few = 2000 * 4 * (1 if kind is own.Normalised else 0)
        assert kept[1] - kept[0] <= few, kind
        assert compiled.note.reason is None


def test_gradients_of_gradients():
    torch.manual_seed(0)
    arguments = arguments_of(own.Equivariant, given(edges=40))
    arguments = {name: a.double() if a.is_floating_point() else a for name, a in arguments.items()}
    h, coord = arguments['h'].requires_grad_(), arguments['coord'].requires_grad_()
    module = own.Equivariant(normalize=True).double()
    compiled, found = pygfuse.compile(copy.deepcopy(module)), []
    for layer in (module, compiled):
        energy = sum(out.sin().sum() for out in layer(**arguments)[:2])
        (force,) = torch.autograd.grad(energy, coord, create_graph=True)
        found.append(torch.autograd.grad(force.square().sum(), [h, coord, *layer.edge_mlp.parameters()]))
    assert compiled.note.reason is None
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize('kind', [own.Equivariant, own.Recurrent, own.Scores, own.Degrees], ids=lambda k: k.__name__)
def test_autocast_gives_the_types_of_its_own_code(kind):
    torch.manual_seed(0)
    module, arguments = kind(), arguments_of(kind, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    with torch.autocast('cpu', torch.bfloat16):
        theirs, ours = module(**arguments), compiled(**arguments)
    for found, wanted in zip(*(out if isinstance(out, tuple) else (out,) for out in (ours, theirs)), strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, atol=0.1, rtol=0.1)


NOT_TRACED = {
    own.Attention: 'torch compiles',  # its edges are within a tuple
    own.Interaction: 'torch compiles',  # they are two arguments
    own.Recurrent: 'torch compiles no norm_of_nodes',
    own.Guarded: 'torch compiles no norm_of_nodes',
}
FAST = own.Interaction, own.States, own.Mean


@pytest.mark.parametrize(
    'kind', [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in MODULES]
)
def test_within_torch_compile(kind):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, arguments = kind(), arguments_of(kind, given())
    reference = parity.results(copy.deepcopy(module).double(), arguments, torch.float64, 0)
    compiled = pygfuse.compile(module).double()
    traced = torch.compile(compiled, backend='aot_eager', fullgraph=True)
    found = parity.results(traced, arguments, torch.float64, 0)
    parity.assert_close({key.replace('_orig_mod.', ''): value for key, value in found.items()}, reference)
    assert compiled.note.reason == NOT_TRACED.get(kind)


def test_a_trace_of_several_sizes():
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, traces = own.Normalised(), torch._dynamo.testing.CompileCounter()
    traced = torch.compile(pygfuse.compile(copy.deepcopy(module)), backend=traces, fullgraph=True)
    for nodes in (30, 40, 50, 60, 70):
        arguments = arguments_of(own.Normalised, given(nodes=nodes, edges=3 * nodes))
        torch.testing.assert_close(traced(**arguments), module(**arguments))
    assert traces.frame_count <= 3


def test_torch_scripts_its_own_code():
    module, arguments = own.Scores(), arguments_of(own.Scores, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(torch.jit.script(compiled)(**arguments), module(**arguments))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason is None


def test_checkpoints_inference_and_parameters_of_a_call():
    torch.manual_seed(0)
    module, arguments = own.Attention(dropout=0.5), arguments_of(own.Attention, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    x = arguments['data'][0].requires_grad_()
    found = []
    for run in (lambda: compiled(**arguments)[0], lambda: checkpoint(compiled, use_reentrant=False, **arguments)[0]):
        torch.manual_seed(3)
        found.append(torch.autograd.grad(run().sin().sum(), [x, *compiled.parameters()]))
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)
    module.eval(), compiled.eval()
    with torch.inference_mode():
        torch.testing.assert_close(compiled(**arguments)[0], module(**arguments)[0])
    others = {name: tensor * 2 for name, tensor in module.state_dict().items()}
    ours, theirs = (torch.func.functional_call(one, others, (), arguments)[0] for one in (compiled, module))
    torch.testing.assert_close(ours, theirs)
    assert compiled.note.reason is None


def test_a_result_may_be_written_to():
    torch.manual_seed(0)
    module, arguments = own.Attention(), arguments_of(own.Attention, given())
    compiled, grads = pygfuse.compile(copy.deepcopy(module)), []
    for layer in (module, compiled):
        out = layer(**arguments)[0]
        out += 1
        out.relu_()
        out.square().sum().backward()
        grads.append([parameter.grad for parameter in layer.parameters()])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_threads_give_the_same_bits():
    torch.manual_seed(0)
    compiled, arguments, found = pygfuse.compile(own.Equivariant()), arguments_of(own.Equivariant, given()), []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(compiled(**arguments)[1])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
