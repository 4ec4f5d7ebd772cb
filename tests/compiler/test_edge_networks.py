"""Layers whose edges carry state: the same outputs and gradients, and no tensor of edges x hidden between them."""

import copy

import pytest
import torch
from torch.nn import Identity, LayerNorm, Linear, Module, ReLU, Sequential
from torch_geometric.utils import scatter

import pygfuse
from pygfuse.compiler.ir.values import leaf, value
from pygfuse.compiler.networks.reading import network_of
from pygfuse.compiler.refusal import Refused
from pygfuse.memory import peak_bytes, saved_bytes
from tests.compiler.edge_networks import (
    EDGES,
    HIDDEN,
    LAYERS,
    NODES,
    REFUSED,
    Batch,
    BatchOfEnds,
    Block,
    Dropped,
    Largest,
    OfSources,
    Updated,
)
from tests.support import parity
from tests.support.parity import GRAPHS, Example, random_edges


def arguments(example) -> dict:
    return {'x': example.x(NODES), 'edge_index': example.edge_index, 'edge_attr': example.edge_attr(EDGES)}


def networks(conv) -> list[str]:
    return [walk.title for plan in conv.plans() for walk in plan.walks.values() if 'network' in walk.title]


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'bipartite, more sources', 'repeated edges'])
@pytest.mark.parametrize('name', LAYERS)
def test_outputs_and_gradients_are_those_of_pyg(name, graph):
    torch.manual_seed(0)
    conv, given = LAYERS[name](), arguments(GRAPHS[graph]())
    reference = parity.results(copy.deepcopy(conv).double(), given, torch.float64, 0)
    plain = parity.results(copy.deepcopy(conv), given, torch.float32, 0)
    pygfuse.compile(conv)
    wide = copy.deepcopy(conv).double()
    parity.assert_close(parity.results(wide, given, torch.float64, 0), reference)
    parity.assert_close(parity.results(conv, given, torch.float32, 0), reference, plain)
    assert conv.note.reason is None
    assert networks(conv)
    assert networks(wide)


@pytest.mark.parametrize('hidden', [128, 100])
def test_wide_networks_in_float32(hidden):
    """So wide that another library than BLAS multiplies chunks, where it is the faster one."""
    torch.manual_seed(0)
    conv = Block()
    stages = [Linear(2 * NODES + EDGES, hidden), ReLU(), Linear(hidden, hidden), ReLU(), Linear(hidden, EDGES)]
    conv.edge_mlp = Sequential(*stages, LayerNorm(EDGES))
    given = arguments(Example(random_edges(200, 200, 5000), 200, 200))
    reference = parity.results(copy.deepcopy(conv).double(), given, torch.float64, 0)
    plain = parity.results(copy.deepcopy(conv), given, torch.float32, 0)
    parity.assert_close(parity.results(pygfuse.compile(conv), given, torch.float32, 0), reference, plain)
    assert conv.note.reason is None


@pytest.mark.parametrize('kind', [Block, Updated])
def test_calls_like_the_one_before(kind):
    torch.manual_seed(0)
    plain = kind()
    fused = pygfuse.compile(copy.deepcopy(plain))
    for graph in ('random', 'repeated edges', 'random', 'path'):
        given = arguments(GRAPHS[graph]())
        expected = parity.results(copy.deepcopy(plain).double(), given, torch.float64, 0)
        fused.zero_grad()
        found = parity.results(fused, given, torch.float32, 0)
        parity.assert_close(found, expected, parity.results(copy.deepcopy(plain), given, torch.float32, 0))
        assert fused.note.reason is None


def test_the_state_and_its_sum_are_one_pass():
    conv = pygfuse.compile(Block())
    conv(**arguments(GRAPHS['random']()))
    (plan,) = conv.plans()
    assert len({id(walk) for walk in plan.walks.values()}) == 1
    assert networks(conv)[0] == 'network on chunks of edges: sum and values of edges'


@pytest.mark.parametrize('kind', REFUSED, ids=lambda kind: kind.__name__)
def test_what_has_no_fused_form_says_why(kind):
    given = arguments(GRAPHS['random']())
    torch.manual_seed(0)
    conv = kind()
    torch.manual_seed(1)
    expected = copy.deepcopy(conv)(**given)
    pygfuse.compile(conv)
    torch.manual_seed(1)
    torch.testing.assert_close(conv(**given), expected)
    assert conv.note.reason == REFUSED[kind]


def test_edges_that_tie_by_a_scale_of_zero_divide_a_gradient():
    torch.manual_seed(0)
    conv, given = Largest(), arguments(GRAPHS['random']())
    with torch.no_grad():
        conv.edge_mlp[3].weight[1] = 0.0
    expected = parity.results(copy.deepcopy(conv), given, torch.float32, 0)
    pygfuse.compile(conv)
    parity.assert_close(parity.results(conv, given, torch.float32, 0), expected)
    assert conv.note.reason == 'all edges tie where a row of weights is zero'


def test_no_edges():
    conv, example = Block(), GRAPHS['no edges']()
    expected = conv(**arguments(example))
    torch.testing.assert_close(pygfuse.compile(conv)(**arguments(example)), expected)


@pytest.mark.parametrize('kind', [Block, Updated])
def test_gradients_of_gradients(kind):
    torch.manual_seed(0)
    conv, example = pygfuse.compile(kind(middle=torch.nn.SiLU)).double(), GRAPHS['path']()
    # an end, a node between two edges, another end, a node apart
    given = [t.double().requires_grad_() for t in (example.x(NODES)[:4], example.edge_attr(EDGES)[:2])]

    def results(x, edge_attr):
        return conv(x, example.edge_index[:, :2], edge_attr)

    assert torch.autograd.gradcheck(results, given)
    assert torch.autograd.gradgradcheck(results, given)
    assert conv.note.reason is None


@pytest.mark.parametrize('kind', [Batch, BatchOfEnds])
def test_batch_norms_move_their_statistics_as_torch_does(kind):
    torch.manual_seed(0)
    plain = kind().double()
    fused = pygfuse.compile(copy.deepcopy(plain))
    for graph in ('random', 'path', 'random'):
        given = arguments(GRAPHS[graph]())
        given |= {name: given[name].double() for name in ('x', 'edge_attr')}
        torch.testing.assert_close(fused(**given), plain(**given))
        torch.testing.assert_close(dict(fused.named_buffers()), dict(plain.named_buffers()))
    for conv in (plain, fused):
        conv.eval()
    torch.testing.assert_close(fused(**given), plain(**given))
    torch.testing.assert_close(dict(fused.named_buffers()), dict(plain.named_buffers()))
    assert fused.note.reason is None


def test_gradients_of_batch_norms():
    torch.manual_seed(0)
    conv, example = pygfuse.compile(Batch()).double(), GRAPHS['path']()
    given = [t.double().requires_grad_() for t in (example.x(NODES)[:7], example.edge_attr(EDGES)[:5])]
    assert torch.autograd.gradcheck(lambda x, edge_attr: conv(x, example.edge_index[:, :5], edge_attr), given)
    assert conv.note.reason is None


def test_a_batch_norm_of_one_edge_is_an_error_as_in_torch():
    conv, example = pygfuse.compile(Batch()), GRAPHS['path']()
    given = example.x(NODES), example.edge_index[:, :1], example.edge_attr(EDGES)[:1]
    with pytest.raises(ValueError, match='Expected more than 1 value per channel'):
        conv(*given)
    assert conv.eval()(*given)[1].shape == (1, EDGES)


NUM_NODES = 300


def measured(conv, num_edges: int) -> tuple[int, int]:
    """What one forward saves beside its inputs, and the peak of one step."""
    x, edge_attr = torch.randn(NUM_NODES, NODES, requires_grad=True), torch.randn(num_edges, EDGES, requires_grad=True)
    edge_index = random_edges(NUM_NODES, NUM_NODES, num_edges)
    kept = [x, edge_attr, edge_index, *conv.parameters()]

    def step():
        x.grad = edge_attr.grad = None
        conv.zero_grad()
        sum(out.sum() for out in conv(x, edge_index, edge_attr)).backward()

    step()
    assert conv.note.reason is None
    return saved_bytes(lambda: conv(x, edge_index, edge_attr), exclude=kept), peak_bytes(step, warmup=1)


# numbers an edge: the length that the layer's own forward takes a root of, the new state where a walk sums it,
# gradients of features by another pass, and what is normalised, before and after
_OF_NORMS = 2 * (HIDDEN + EDGES)
OF_MEMORY = [(Block, 0, EDGES), (OfSources, 1, 0), (Updated, EDGES, EDGES), (Batch, _OF_NORMS, 2 * _OF_NORMS)]


@pytest.mark.parametrize(('kind', 'of_saved', 'of_peak'), OF_MEMORY)
def test_memory_holds_states_of_edges_and_nothing_hidden(kind, of_saved, of_peak, monkeypatch):
    monkeypatch.setattr('pygfuse.mapping.edge_chunks.CHUNK_BYTES', 2**10)
    conv = pygfuse.compile(kind())
    (saved, peak), (saved_of_more, peak_of_more) = measured(conv, 6000), measured(conv, 12000)
    assert saved_of_more - saved <= of_saved * 6000 * 4
    assert peak_of_more - peak <= of_peak * 6000 * 4


def test_dropped_values_are_those_that_are_summed():
    torch.manual_seed(0)
    conv, given = pygfuse.compile(Dropped()), arguments(GRAPHS['random']())
    edges = given['edge_index'], given['edge_attr']
    total, state = conv.propagate(edges[0], x=given['x'], edge_attr=edges[1])
    assert conv.note.reason is None
    torch.testing.assert_close(total, scatter(state, edges[0][1], 0, given['x'].shape[0]))


class Narrow(Module):
    """A network of rows so narrow that their sums could be written out number by number."""

    def __init__(self, norm=None):
        super().__init__()
        self.first, self.second, self.last = Linear(2 * 6, 6), Linear(6, 6), Linear(6, 6)
        self.norm = Identity() if norm is None else norm(6)

    def forward(self, x, edge_index):
        row, col = edge_index
        values = self.second(self.first(torch.cat([x[row], x[col]], dim=-1)).relu())
        return self.last(self.norm(values).relu())


@pytest.mark.parametrize('norm', [None, LayerNorm])
def test_networks_of_narrow_rows_are_networks(norm):
    torch.manual_seed(0)
    module, x = Narrow(norm), torch.randn(12, 6)
    fused, edge_index = pygfuse.compile(copy.deepcopy(module)), random_edges(12, 12, 50)
    torch.testing.assert_close(fused(x, edge_index), module(x, edge_index))
    assert networks(fused)


def test_products_of_factors_alone_are_read_to_their_end():
    features = [leaf(f'e{i}', 'edge', (4,), torch.float32) for i in range(8)]
    products = [value('mul', *features[i : i + 2]) for i in (0, 2, 4, 6)]
    message = value('mul', value('mul', *products[:2]), value('mul', *products[2:]))
    with pytest.raises(Refused, match='without linear maps'):
        network_of(message, value('reduce', message, reduce='sum'))
