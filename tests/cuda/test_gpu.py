"""What only a GPU can tell. One command runs it all: ``python -m pytest -m cuda``."""

import contextlib
import copy
import sys

import pytest
import torch
import torch_geometric.nn
from torch_geometric.data import Data

import pygfuse
import pygfuse.conv
from pygfuse.call.gradient import Gradient
from pygfuse.cuda.capture import capture
from pygfuse.graph.graph import Graph
from pygfuse.mapping.mapping import Mapping, force_mapping
from pygfuse.memory import peak_bytes
from pygfuse.ops import dropout_factors
from pygfuse.ops.hag import hag_aggregate
from pygfuse.ops.points.knn import knn_graph
from pygfuse.ops.points.radius import radius_graph
from pygfuse.partial.paths.path import known_paths
from pygfuse.partial.paths.policy import execution_paths
from pygfuse.program.program import PROGRAMS
from pygfuse.transforms import ToExecutionPaths, find_hag
from tests.support.cases import EDGE_NETWORKS, GAT, GAT_EDGES, LAYERS
from tests.support.comparison import DROPPING, NAMES, check, random_call, random_graph
from tests.support.parity import GRAPHS, assert_close

pytestmark = pytest.mark.cuda
TOLERANCE = 2e-5
# on chunks of edges
NETWORKS = [EDGE_NETWORKS[f'EdgeConv, two maps, {reduce}'] for reduce in ('sum', 'max')]


@pytest.fixture(scope='module')
def backend():
    pytest.importorskip('numba_cuda')
    from pygfuse.cuda import backend

    return backend


@pytest.fixture(scope='module', autouse=True)
def _versions():
    yield
    print(
        f'\nPython {sys.version.split()[0]}, torch {torch.__version__}, PyG {torch_geometric.__version__}, '
        f'pygfuse {pygfuse.__version__}, {torch.cuda.get_device_name()}'
    )


# Programs, by themselves


IN_FLOAT64 = ('edge_conv_none', 'fa', 'gat', 'gatv2', 'gaussian_2')


@pytest.mark.parametrize(
    ('name', 'dtype'), [*((name, torch.float32) for name in NAMES), *((name, torch.float64) for name in IN_FLOAT64)]
)
def test_every_program(backend, name, dtype):
    call = random_call(PROGRAMS[name], random_graph(60, 50, 400, hub=300), 4, 16, dtype)
    check(backend, call, TOLERANCE if dtype == torch.float32 else 1e-10, device='cuda')


SHAPES = [(1, 1), (1, 16), (3, 5), (3, 12), (1, 132), (4, 64), (8, 32), (8, 128), (1, 700), (2, 1030)]


WIDE = [(4, 64), (1, 700), (2, 1030)]


@pytest.mark.parametrize('balance', ['vertex', 'edge'])
@pytest.mark.parametrize(
    ('name', 'heads', 'channels'),
    [*(('gat', *shape) for shape in SHAPES), *((name, *shape) for name in ('gatv2', 'neighbours') for shape in WIDE)],
)
def test_rows_of_any_shape(backend, name, heads, channels, balance):
    call = random_call(PROGRAMS[name], random_graph(40, 30, 200, hub=500), heads, channels, torch.float32)
    with force_mapping(Mapping(balance, part_work=32)):
        check(backend, call, 5e-5, device='cuda')


@pytest.mark.parametrize('reduce', ['mean', 'max', 'min'])
def test_reductions(backend, reduce):
    call = random_call(PROGRAMS['gine'], random_graph(40, 30, 300), 1, 32, torch.float32, reduce=reduce)
    check(backend, call, TOLERANCE, device='cuda')


@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float16, 5e-3), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize('name', ['gat', 'transformer'])
def test_narrow_types(backend, name, dtype, tolerance):
    check(backend, random_call(PROGRAMS[name], random_graph(40, 30, 200), 4, 32, dtype), tolerance, device='cuda')


@pytest.mark.parametrize('name', ['gatv2', 'crystal'])
def test_products(backend, name):
    call = random_call(PROGRAMS[name], random_graph(40, 30, 200), 2, 16, torch.float32, products=True)
    check(backend, call, 5e-5, device='cuda')


def test_dropout_draws_what_the_cpu_draws(backend):
    check(backend, random_call(PROGRAMS['gat'], random_graph(40, 30, 200), 4, 16, dropout=0.4), device='cuda')
    seed = torch.tensor(2**40 + 3)
    found = [dropout_factors(1000, 5, 0.3, seed.to(place), torch.empty(0, device=place)) for place in ('cpu', 'cuda')]
    assert torch.equal(found[0], found[1].cpu())


def test_channels_are_dropped_as_torch_computes_it(backend):
    call = random_call(DROPPING, random_graph(40, 30, 200), 2, 16, torch.float32)
    check(backend, call, TOLERANCE, needed=['x'], device='cuda')


def test_the_same_bits_in_every_run(backend):
    call = random_call(PROGRAMS['gatv2'], random_graph(200, 200, 5000, hub=3000), 4, 32, torch.float32)
    moved = on_gpu(call)
    grad = torch.randn(200, 128, device='cuda')
    runs = []
    for _ in range(3):
        out, statistics = backend.forward(moved)
        runs.append([out, *backend.backward(Gradient(moved, out, statistics, grad, list(call.tensors))).values()])
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0], strict=True))


def on_gpu(call):
    from tests.support.comparison import moved

    return moved(call, 'cuda')


# Layers, beside PyG's


def results(conv, inputs, device, dtype):
    """Outputs and gradients of a layer that is moved to a device, on the CPU."""
    conv = copy.deepcopy(conv).to(device, dtype)

    def leaf(value):
        if isinstance(value, tuple):
            return tuple(leaf(item) for item in value)
        if not isinstance(value, torch.Tensor):
            return value
        value = value.to(device)
        return value.to(dtype).detach().clone().requires_grad_() if value.is_floating_point() else value

    inputs = {name: leaf(value) for name, value in inputs.items()}
    out = conv(**inputs)
    generator = torch.Generator().manual_seed(0)
    (out * torch.randn(out.shape, generator=generator).to(out)).sum().backward()
    found = {'output': out}
    for name, value in inputs.items():
        for i, item in enumerate(value if isinstance(value, tuple) else (value,)):
            if isinstance(item, torch.Tensor) and item.requires_grad:
                found[f'gradient of {name}[{i}]'] = item.grad
    found |= {f'gradient of {name}': parameter.grad for name, parameter in conv.named_parameters()}
    return conv, {name: None if value is None else value.detach().cpu() for name, value in found.items()}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'no edges', 'repeated edges', 'self-loops', 'hub'])
@pytest.mark.parametrize('layer', [GAT, GAT_EDGES, *LAYERS, *NETWORKS], ids=str)
def test_layers_equal_pyg(layer, graph):
    example = GRAPHS[graph]()
    inputs = {**layer.inputs(example), 'edge_index': example.edge_index}
    pyg, fused = layer.pair()
    _, reference = results(pyg, inputs, 'cpu', torch.float64)
    _, plain = results(pyg, inputs, 'cuda', torch.float32)
    ran, found = results(fused, inputs, 'cuda', torch.float32)
    assert ran.note.reason is None
    assert_close(found, reference, plain)


def cora_like(seed=0):
    """A model's inputs of about Cora's size, on the GPU."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2708, 64, generator=generator), torch.randint(7, (2708,), generator=generator)
    return x.cuda(), y.cuda(), torch.randint(2708, (2, 10556), generator=generator).cuda()


class Net(torch.nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first = pygfuse.conv.GATConv(64, 8, heads=8, dropout=dropout)
        self.second = pygfuse.conv.GATConv(64, 7, dropout=dropout)

    def forward(self, x, edge_index):
        return self.second(torch.nn.functional.elu(self.first(x, edge_index)), edge_index)


def test_other_streams():
    x, _, edge_index = cora_like()
    net = Net().cuda()
    expected = net(x, edge_index)
    expected.sum().backward()
    gradient = net.first.att_src.grad.clone()
    net.zero_grad()
    torch.cuda.synchronize()
    beside = torch.cuda.Stream()
    with torch.cuda.stream(beside):
        found = net(x, edge_index)
        found.sum().backward()
    beside.synchronize()
    assert torch.equal(found, expected)
    assert torch.equal(net.first.att_src.grad, gradient)


def test_a_stream_waits_for_the_one_that_builds_what_it_reads():
    _, _, edge_index = cora_like()
    graph, expected = Graph.of(edge_index), Graph.of(edge_index.clone()).csc.index.clone()
    graph.csr  # noqa: B018  the host waits for these, and never for those by source
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(10**9)
        graph.csc  # noqa: B018
    assert torch.equal(graph.csc.index, expected)


def test_a_captured_step_trains_as_an_eager_one():
    x, y, edge_index = cora_like()
    torch.manual_seed(0)
    eager = Net().cuda()
    captured = copy.deepcopy(eager)

    def stepper(net):
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01, capturable=True)

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(net(x, edge_index), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    plain, replay = stepper(eager), capture(stepper(captured), warmup=3)
    for _ in range(3 + 5):
        expected = plain()
    for _ in range(5):
        found = replay()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_dropout_differs_between_replays():
    x, _, edge_index = cora_like()
    net = Net(dropout=0.5).cuda()
    replay = capture(lambda: net(x, edge_index))
    assert not torch.equal(replay().clone(), replay())


def test_compiled_models_have_no_graph_break():
    x, _, edge_index = cora_like()
    net = Net().cuda()
    compiled = torch.compile(net, fullgraph=True, backend='aot_eager')  # other backends need a C compiler
    expected = net(x, edge_index)
    torch.testing.assert_close(compiled(x, edge_index), expected, rtol=1e-4, atol=1e-5)


UNDER_AUTOCAST = [layer for layer in LAYERS if layer.pair()[1].spec.autocast]


@pytest.mark.parametrize(
    ('layer', 'dtype'),
    [*((layer, torch.bfloat16) for layer in UNDER_AUTOCAST), (UNDER_AUTOCAST[0], torch.float16)],
    ids=str,
)
def test_autocast(layer, dtype):
    example = GRAPHS['random']()
    inputs = {**layer.inputs(example), 'edge_index': example.edge_index}
    pyg, fused = layer.pair()
    _, exact = results(pyg, inputs, 'cpu', torch.float64)
    with torch.autocast('cuda', dtype=dtype):
        _, plain = results(pyg, inputs, 'cuda', torch.float32)
        ran, found = results(fused, inputs, 'cuda', torch.float32)
    assert ran.note.reason is None
    for name, expected in exact.items():
        if expected is None:
            continue
        assert found[name].dtype == plain[name].dtype, name
        errors = [float((one[name].double() - expected).norm()) for one in (found, plain)]
        assert errors[0] <= 2 * errors[1] + 1e-3 * float(expected.norm()), (name, *errors)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason='needs two GPUs')
def test_two_devices():
    x, _, edge_index = cora_like()
    net = Net().cuda()
    expected = net(x, edge_index)
    other = copy.deepcopy(net).to('cuda:1')
    found = other(x.to('cuda:1'), edge_index.to('cuda:1'))
    found.sum().backward()
    assert found.device.index == 1
    torch.testing.assert_close(found.cpu(), expected.cpu())
    with pytest.raises(ValueError, match='edge_index'):
        net(x, edge_index.to('cuda:1'))


@pytest.mark.parametrize('reduce', ['sum', 'mean', 'max', 'min'])
def test_hags(reduce):
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(30, (2, 500), generator=generator)
    hag = find_hag(edge_index, (30, 30), capacity=None)
    x, grad = torch.randn(30, 16, generator=generator).round(), torch.randn(30, 16, generator=generator)
    found = []
    for device in ('cpu', 'cuda'):
        leaf = x.to(device).requires_grad_()
        out = hag_aggregate(hag, leaf, reduce)
        found.append([out.detach().cpu(), torch.autograd.grad(out, leaf, grad.to(device))[0].cpu()])
    for there, here in zip(*found[::-1], strict=True):
        torch.testing.assert_close(there, here)


def test_nearest_neighbours():
    x = torch.randn(3000, 3, generator=torch.Generator().manual_seed(0))
    batch = torch.arange(3000) // 1000
    assert torch.equal(knn_graph(x.cuda(), 12, batch.cuda()).cpu(), knn_graph(x, 12, batch))


def test_points_within_a_distance():
    x = torch.randn(3000, 3, generator=torch.Generator().manual_seed(0))
    batch = torch.arange(3000) // 1000
    for wanted in (None, 12):
        found = radius_graph(x.cuda(), 0.6, batch.cuda(), max_num_neighbors=wanted)
        assert torch.equal(found.cpu(), radius_graph(x, 0.6, batch, max_num_neighbors=wanted))


def test_graphs_move():
    graph = Graph.of(torch.randint(30, (2, 500)), (30, 30))
    moved = graph.to('cuda')
    assert moved.to('cuda') is moved
    assert torch.equal(moved.csc.index.cpu(), graph.csc.index)


def test_nothing_of_edges_times_features():
    x = torch.randn(1000, 64, device='cuda', requires_grad=True)
    conv = pygfuse.conv.GATConv(64, 64, heads=4).cuda()
    peaks = []
    for edges in (200_000, 400_000):
        edge_index = torch.randint(1000, (2, edges), device='cuda')
        peaks.append(peak_bytes(lambda e=edge_index: conv(x, e).sum().backward(), device='cuda', warmup=2))
    # what is passed to the targets, a number for each edge and head, may grow; 256 channels an edge may not
    assert peaks[1] - peaks[0] < 200_000 * 4 * 4 * 3


@pytest.mark.parametrize('name', ['GCNConv', 'SAGEConv', 'GATConv'])
def test_execution_paths(name):
    generator = torch.Generator().manual_seed(0)
    edge_index, x = torch.randint(500, (2, 4000), generator=generator), torch.randn(500, 16, generator=generator)
    data = ToExecutionPaths(2)(Data(x=x, edge_index=edge_index, train_mask=torch.arange(500) < 5)).to('cuda')
    torch.manual_seed(0)
    convs = torch.nn.ModuleList(getattr(pygfuse.conv, name)(16, 16) for _ in range(2)).cuda()
    found = {}
    # prepared, none, and made on the fly: autograd's threads know what was said where forward ran
    for on in (None, False, True):
        with contextlib.nullcontext() if on is None else execution_paths(on):
            convs.zero_grad()
            leaf = data.x.clone().requires_grad_()
            out = convs[1](convs[0](leaf, data.edge_index).tanh(), data.edge_index)
            out[data.train_mask].square().sum().backward()
        found[on] = [leaf.grad, *(parameter.grad.clone() for parameter in convs.parameters())]
        walked = [conv.note.backward.walked_edges for conv in convs]
        assert (walked[1] < 200) is (on is not False), walked
    for on in (None, True):
        for one, other in zip(found[on], found[False], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_captured_step_does_not_look_for_execution_paths():
    generator = torch.Generator().manual_seed(0)
    edge_index, x = torch.randint(500, (2, 4000), generator=generator), torch.randn(500, 16, generator=generator)
    data = ToExecutionPaths(1)(Data(x=x, edge_index=edge_index, train_mask=torch.arange(500) < 5)).to('cuda')
    conv, x, edge_index = pygfuse.conv.SAGEConv(16, 16).cuda(), data.x.requires_grad_(), data.edge_index

    def step():
        conv.zero_grad()
        x.grad = None
        conv(x, edge_index)[:5].square().sum().backward()
        return x.grad

    expected = step().clone()
    torch.testing.assert_close(capture(step)(), expected, rtol=1e-4, atol=1e-5)
    assert known_paths(Graph.of(edge_index, num_sources=500, num_targets=500))
