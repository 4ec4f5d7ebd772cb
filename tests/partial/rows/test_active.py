from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

import pygfuse
from pygfuse.conv import GATConv, GATv2Conv, GCNConv, GINEConv, GraphConv, SAGEConv, TransformerConv
from pygfuse.partial.rows.tensor import Deferred
from pygfuse.transforms import ToHAG
from tests.support.parity import random_edges

WIDTH, NODES = 8, 60


def mask_of(kind: str, nodes: int, seed: int) -> torch.Tensor:
    drawn = torch.rand(nodes, generator=torch.Generator().manual_seed(seed))
    return {'empty': drawn < 0, 'one': torch.arange(nodes) == seed % nodes, 'few': drawn < 0.1, 'all': drawn >= 0}[kind]


def results(run, mask, parameters, x, is_active: bool) -> list[torch.Tensor]:
    """The loss, and the gradients of features and parameters; the same dropout each time."""
    torch.manual_seed(7)
    x = x.detach().clone().requires_grad_()
    for parameter in parameters:
        parameter.grad = None
    if is_active:
        with pygfuse.active(mask):
            out = run(x)
    else:
        out = run(x)
    loss = (out[mask] * torch.linspace(-1, 1, out.shape[1], dtype=x.dtype)).square().sum()
    loss.backward()
    grads = [x.grad, *(p.grad for p in parameters)]
    return [loss.detach(), *(torch.zeros(()) if grad is None else grad for grad in grads)]


def check(run, mask, parameters, x) -> None:
    parameters = [*parameters]
    expected = results(run, mask, parameters, x, False)
    # some gradients are zero but for rounding
    scale = max(1.0, *(float(one.abs().max()) for one in expected if one.numel()))
    for one, other in zip(results(run, mask, parameters, x, True), expected, strict=True):
        torch.testing.assert_close(one.expand_as(other), other, rtol=1e-5, atol=1e-6 * scale)


def rows(model) -> list[int]:
    return [conv.note.forward.rows for conv in model.modules() if isinstance(conv, pygfuse.conv._layer.layer.FusedConv)]


class Sage(torch.nn.Module):
    """SAGE with jumping knowledge."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(SAGEConv(WIDTH, WIDTH, normalize=i % 2 == 0) for i in range(depth))
        self.jump = pyg.models.JumpingKnowledge('cat')

    def forward(self, x, edge_index):
        found = []
        for conv in self.convs:
            x = conv(x, edge_index).tanh()
            found.append(x)
        return self.jump(found)


MODELS = {
    'GCN': lambda depth: pygfuse.fuse(pyg.GCN(WIDTH, WIDTH, depth, dropout=0.4)),
    'GAT': lambda depth: pygfuse.fuse(pyg.GAT(WIDTH, WIDTH, depth, heads=2, dropout=0.4)),
    'SAGE with jumping knowledge': Sage,
}


@pytest.mark.parametrize('name', MODELS)
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(1, 60),
    degree=st.floats(0.2, 4.0),
    depth=st.integers(1, 6),
    kind=st.sampled_from(['empty', 'one', 'few', 'all']),
)
def test_loss_and_gradients_are_those_of_a_whole_forward(name, seed, nodes, degree, depth, kind):
    edge_index = random_edges(nodes, nodes, int(nodes * degree), seed)
    torch.manual_seed(seed)
    # six layers, scaled up by dropout: float32 leaves too few digits to compare
    model, x = MODELS[name](depth).double(), torch.randn(nodes, WIDTH, dtype=torch.float64)
    check(lambda x: model(x, edge_index), mask_of(kind, nodes, seed), model.parameters(), x)


@pytest.mark.parametrize('name', MODELS)
def test_no_layer_reads_all(name):
    edge_index, x, mask = random_graph()
    model = MODELS[name](2)
    check(lambda x: model(x, edge_index), mask, model.parameters(), x)
    assert rows(model)[1] == int(mask.sum()) < rows(model)[0] < NODES


@pytest.mark.parametrize(('share', 'is_whole'), [(0.02, False), (0.5, True)])
def test_where_nearly_all_edges_are_walked_all_rows_are_computed(share, is_whole):
    """Three layers over a dense graph: all rows of the first two are reached, and a share of those of the last."""
    edge_index, x = random_edges(NODES, NODES, 2000), torch.randn(NODES, WIDTH)
    mask = torch.arange(NODES) < share * NODES
    model = pygfuse.fuse(pyg.GCN(WIDTH, WIDTH, 3, dropout=0.4))
    check(lambda x: model(x, edge_index), mask, model.parameters(), x)
    last = NODES if is_whole else int(mask.sum())
    assert rows(model)[0] == NODES
    assert rows(model)[-1] == last
    assert (model.convs[-1].note.forward.edges == model.convs[-1].note.forward.all_edges) == is_whole
    with pygfuse.active(mask):
        out = model(x, edge_index)
    assert out[mask].shape == (int(mask.sum()), WIDTH)
    with pytest.raises(ValueError, match='rows outside of the mask'):
        out[~mask]


def chain(nodes: int) -> torch.Tensor:
    """A directed path: node k + 1 aggregates node k."""
    return torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])


def test_layers_compute_what_reaches_the_mask():
    model = torch.nn.ModuleList(SAGEConv(WIDTH, WIDTH) for _ in range(3))
    x, edge_index, mask = torch.randn(NODES, WIDTH), chain(NODES), torch.arange(NODES) == 30
    with pygfuse.active(mask):
        out = x
        for conv in model:
            out = conv(out, edge_index)
        assert [conv.note.forward for conv in model] == [None] * 3  # nothing was read yet
    expected = x
    for conv in copy.deepcopy(model):
        expected = conv(expected, edge_index)
    torch.testing.assert_close(out[mask], expected[mask])
    assert rows(model) == [3, 2, 1]
    assert [conv.note.forward.edges for conv in model] == [3, 2, 1]
    assert '3 of 60 rows, from 3 of 59 edges' in str(pygfuse.report(model))
    model[0](x, edge_index)
    assert model[0].note.forward is None


def random_graph(seed: int = 0):
    return random_edges(NODES, NODES, 150, seed), torch.randn(NODES, WIDTH), mask_of('few', NODES, 3)


@pytest.mark.parametrize('norm', ['BatchNorm', 'GraphNorm', 'PairNorm', 'InstanceNorm'])
def test_statistics_of_all_nodes_are_taken_of_all_nodes(norm):
    edge_index, x, mask = random_graph()
    model = pygfuse.fuse(pyg.GCN(WIDTH, WIDTH, 3, norm=norm))
    check(lambda x: model(x, edge_index), mask, model.parameters(), x)
    assert rows(model) == [NODES, NODES, int(mask.sum())]


@pytest.mark.parametrize(
    'options',
    [{'norm': 'LayerNorm', 'norm_kwargs': {'mode': 'node'}}, {'jk': 'max'}, {'act': torch.nn.ReLU(inplace=True)}],
    ids=str,
)
def test_functions_of_rows_are_deferred(options):
    edge_index, x, mask = random_graph()
    model = pygfuse.fuse(pyg.GCN(WIDTH, WIDTH, 3, **options))
    check(lambda x: model(x, edge_index), mask, model.parameters(), x)
    assert rows(model)[0] < NODES


def test_a_reader_of_all_rows_gets_all():
    edge_index, x, mask = random_graph()
    model = pygfuse.fuse(pyg.GCN(WIDTH, WIDTH, 2, jk='lstm'))
    check(lambda x: model(x, edge_index), mask, model.parameters(), x)
    assert rows(model) == [NODES, NODES]


def test_layers_that_are_not_fused_read_all():
    edge_index, x, mask = random_graph()
    convs = torch.nn.ModuleList([GCNConv(WIDTH, WIDTH), pyg.ChebConv(WIDTH, WIDTH, 2), GCNConv(WIDTH, WIDTH)])
    check(lambda x: convs[2](convs[1](convs[0](x, edge_index), edge_index), edge_index), mask, convs.parameters(), x)
    assert rows(convs) == [NODES, int(mask.sum())]


@pytest.mark.parametrize(
    'make',
    [
        lambda: GINEConv(torch.nn.Linear(WIDTH, WIDTH), edge_dim=3),
        lambda: GATConv(WIDTH, WIDTH, heads=2, edge_dim=3, concat=False, dropout=0.5),
        pytest.param(lambda: GATv2Conv(WIDTH, 4, heads=2, edge_dim=3, dropout=0.5), marks=pytest.mark.slow),
        pytest.param(lambda: TransformerConv(WIDTH, WIDTH, edge_dim=3, dropout=0.5, beta=True), marks=pytest.mark.slow),
    ],
    ids=['GINE', 'GAT', 'GATv2', 'Transformer'],
)
def test_edge_features_and_attention_dropout(make):
    edge_index, x, mask = random_graph()
    attr, conv, after = torch.randn(150, 3), make(), GraphConv(WIDTH, WIDTH)
    parameters = [*conv.parameters(), *after.parameters()]
    check(lambda x: after(conv(x, edge_index, attr), edge_index), mask, parameters, x)
    assert conv.note.forward.rows < NODES


def test_edge_weights_get_gradients():
    edge_index, x, mask = random_graph()
    weight = torch.rand(150, requires_grad=True)
    convs = torch.nn.ModuleList([GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, WIDTH)])
    parameters = [weight, *convs.parameters()]
    check(lambda x: convs[1](convs[0](x, edge_index, weight), edge_index, weight), mask, parameters, x)


def test_sources_and_targets_of_two_kinds():
    edge_index, x = random_edges(NODES, 40, 150), torch.randn(NODES, WIDTH)
    other, mask = torch.randn(40, 5), mask_of('few', 40, 3)
    for conv in (SAGEConv((WIDTH, 5), 4), GATConv((WIDTH, 5), 4, add_self_loops=False)):
        check(lambda x, conv=conv: conv((x, other), edge_index), mask, conv.parameters(), x)
        assert conv.note.forward.rows == int(mask.sum())


def test_a_layer_used_twice_and_a_residual_connection():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)

    def run(x):
        h = conv(x, edge_index).relu()
        return x + h + conv(h, edge_index)

    check(run, mask, conv.parameters(), x)


def test_outputs_elsewhere_raise_or_are_nan():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    expected = conv(x, edge_index)
    with pygfuse.active(mask):
        out = conv(x, edge_index)
    torch.testing.assert_close(out[mask], expected[mask])
    torch.testing.assert_close(out[mask.nonzero().flatten().flip(0)], expected[mask.nonzero().flatten().flip(0)])
    missing = int((~mask).nonzero()[0])
    for read in (lambda: out[~mask], lambda: out[missing], lambda: out.sum(), lambda: out.tolist(), lambda: out[:9]):
        with pytest.raises(ValueError, match='rows outside of the mask given to `pygfuse'):
            read()
    with pygfuse.active(mask, elsewhere='nan'):
        out = conv(x, edge_index)
    torch.testing.assert_close(out + 0.0 * out.clone(), torch.where(mask[:, None], expected, torch.nan), equal_nan=True)
    assert bool(out[~mask].isnan().all())
    assert bool(out.sum().isnan())
    out[mask].sum().backward()
    assert bool(conv.lin.weight.grad.isfinite().all())


ALLOWED = torch.tensor([4, 7, 2])
OTHER_INDICES = [
    ALLOWED.view(3, 1), ALLOWED[0], ALLOWED.numpy(), ALLOWED.numpy()[1], (torch.arange(NODES) == 4).numpy(),
    (torch.arange(NODES) == 7).tolist(), (ALLOWED.view(3, 1), torch.arange(2)),
]  # fmt: skip


@pytest.mark.parametrize('index', OTHER_INDICES, ids=str)
def test_rows_in_the_mask_can_be_read_by_any_index(index):
    edge_index, x, _ = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    with pygfuse.active(torch.isin(torch.arange(NODES), ALLOWED)):
        out = conv(x, edge_index)
    torch.testing.assert_close(out[index], conv(x, edge_index)[index])


def test_within_the_block_everything_can_be_read():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    expected = conv(x, edge_index)
    with pygfuse.active(mask):
        out = conv(x, edge_index)
        torch.testing.assert_close(out[~mask], expected[~mask])
        torch.testing.assert_close(out.sum(0), expected.sum(0))
        assert isinstance(out, Deferred)


def test_what_was_written_to_before_it_was_read_is_noticed():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    for tensor in (x, conv.lin.weight):
        with pygfuse.active(mask):
            out = conv(x, edge_index)
        with torch.no_grad():
            tensor.mul_(2)
        with pytest.raises(RuntimeError, match='was written to after it entered a computation'):
            out[mask]


def test_operations_in_place():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)

    def run(x):
        h = conv(x, edge_index)
        h += 1
        before = h * 2
        h.sub_(3.0)
        return before + torch.nn.functional.relu(h, inplace=True)

    check(run, mask, conv.parameters(), x)
    with pygfuse.active(mask), pytest.raises(NotImplementedError, match='in place on a view'):
        conv(x, edge_index)[:, 2:].relu_()
    with pygfuse.active(mask), pytest.raises(NotImplementedError, match='use the form not in place'):
        conv(x, edge_index).zero_()
    with pygfuse.active(mask), pytest.raises(NotImplementedError, match='use the form not in place'):
        conv(x, edge_index)[3] = 0.0
    with pygfuse.active(mask):
        plain = torch.zeros(NODES, WIDTH).copy_(conv(x, edge_index))
    torch.testing.assert_close(plain, conv(x, edge_index))


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class _Summed(_Doubled):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(0)


@pytest.mark.parametrize('function', [_Doubled, _Summed])
def test_gradients_that_would_be_lost_are_refused(function):
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    with pygfuse.active(mask):
        out = function.apply(conv(x, edge_index))
    with pytest.raises(RuntimeError, match='its gradient would be lost'):
        out[mask].sum().backward()


def test_gradients_of_what_was_not_read_are_refused():
    edge_index, x, mask = random_graph()
    first, second = GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, WIDTH)
    with pygfuse.active(mask):
        hidden = first(x, edge_index).tanh()
        loss = second(hidden, edge_index)[mask].sum()
        with pytest.raises(RuntimeError, match='was not read'):
            torch.autograd.grad(loss, hidden, allow_unused=True)
        values = hidden[:]
        (found,) = torch.autograd.grad(second(values, edge_index)[mask].sum(), values)
    hidden = first(x, edge_index).tanh()
    (expected,) = torch.autograd.grad(second(hidden, edge_index)[mask].sum(), hidden)
    torch.testing.assert_close(found, expected)


def test_values_are_not_read_for_their_shape():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    with pygfuse.active(mask):
        out = conv(x, edge_index)
    assert torch.zeros_like(out).shape == out.shape
    assert conv.note.forward is None


def test_without_gradients():
    edge_index, x, mask = random_graph()
    model = pygfuse.fuse(pyg.GAT(WIDTH, WIDTH, 2)).eval()
    expected = model(x, edge_index)[mask]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), pygfuse.active(mask):
            out = model(x, edge_index)
        assert not out[mask].requires_grad
        torch.testing.assert_close(out[mask], expected.detach())


def test_over_a_hag_only_some_rows_are_computed():
    from torch_geometric.data import Data

    edge_index, x, mask = random_graph()
    data = ToHAG(for_batches=True, min_saving=1)(Data(x=x, edge_index=edge_index))
    conv = GCNConv(WIDTH, WIDTH)
    expected = conv(x, data.edge_index)
    with pygfuse.active(mask):
        out = conv(x, data.edge_index)
    torch.testing.assert_close(out[mask], expected[mask])
    assert conv.note.forward.rows == int(mask.sum())
    assert conv.note.hag == 'only some rows are computed'


@pytest.mark.parametrize('as_sparse', [torch.Tensor.to_sparse_coo, torch.Tensor.to_sparse_csr])
def test_sparse_adjacencies(as_sparse):
    edge_index, x, mask = random_graph()
    matrix = torch.zeros(NODES, NODES)
    matrix[edge_index[1], edge_index[0]] = 1.0
    conv, adjacency = GATConv(WIDTH, WIDTH), as_sparse(matrix)
    check(lambda x: conv(x, adjacency), mask, conv.parameters(), x)


def test_a_compiled_model_computes_all():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    compiled = torch.compile(conv, backend='eager')
    with pygfuse.active(mask):
        out = compiled(x, edge_index)
    assert type(out) is torch.Tensor
    torch.testing.assert_close(out, conv(x, edge_index))


@pytest.mark.parametrize('fuse', [True, False])
def test_a_block_within_a_checkpoint(fuse):
    """What is computed again is deferred and read as before, also in layers that run PyG's path."""
    edge_index, x, mask = random_graph()
    conv, gradients = TransformerConv(WIDTH, WIDTH), []
    if not fuse:
        conv.register_message_forward_hook(lambda module, given, out: 2 * out)

    def read(x):
        with pygfuse.active(mask):
            return conv(x, edge_index)[mask]

    for run in (lambda x: conv(x, edge_index)[mask], lambda x: checkpoint(read, x, use_reentrant=False)):
        leaf = x.detach().clone().requires_grad_()
        gradients.append(torch.autograd.grad(run(leaf).square().sum(), leaf)[0])
    assert (conv.note.reason is None) == fuse
    torch.testing.assert_close(gradients[1], gradients[0])


def test_what_was_read_is_read_again_after_a_step():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(conv.parameters(), lr=1.0)
    for within in (False, True):
        with pygfuse.active(mask):
            out = conv(x, edge_index)
            before = out[mask]
            if within:
                before.sum().backward()
                optimizer.step()
                assert torch.equal(out[mask], before)
                assert torch.equal(out[int(mask.nonzero()[0])], before[0])
        if not within:
            before.sum().backward()
            optimizer.step()
        assert torch.equal(out[mask], before)


def test_rows_that_were_read_without_gradients_have_them_later():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    for without in (torch.no_grad, torch.inference_mode):
        with pygfuse.active(mask):
            out = conv(x, edge_index)
            hidden = out.relu()
            with without():
                assert not out[mask].requires_grad
                assert not hidden[mask].requires_grad
            assert out[mask].requires_grad
            hidden[mask].sum().backward()


@pytest.mark.parametrize('mode', [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize('inside', [False, True])
def test_training_after_inference_with_the_same_mask(mode, inside):
    edge_index, x, _ = random_graph(5)
    model = pygfuse.fuse(pyg.GCN(WIDTH, WIDTH, 2))
    mask = mask_of('few', NODES, 11)
    with mode():
        mask = mask.clone() if inside else mask
        with pygfuse.active(mask):
            out = model(x, edge_index)
        assert not out[mask].requires_grad
    check(lambda x: model(x, edge_index), mask.clone(), model.parameters(), x)


def test_what_is_read_under_autocast_is_computed_without():
    edge_index, x, mask = random_graph()
    conv, lin = GCNConv(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    expected = lin(conv(x, edge_index))[mask]
    with pygfuse.active(mask):
        out = lin(conv(x, edge_index))
        with torch.autocast('cpu', torch.bfloat16):
            found = out[mask]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)


def test_under_autocast_deferred_tensors_are_read():
    edge_index, x, mask = random_graph()
    first, second, lin = GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def run() -> list[torch.Tensor]:
        h = first(x, edge_index)
        with torch.autocast('cpu', torch.bfloat16):
            h.mul_(2)
            return [lin(h), second(h, edge_index), h @ lin.weight, h.relu()]

    expected = run()
    with pygfuse.active(mask):
        found = run()
    for one, other in zip(found, expected, strict=True):
        assert type(one) is torch.Tensor
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)


def test_what_reading_elsewhere_says():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    with pygfuse.active(mask):
        out = conv(x, edge_index)
    missing = int((~mask).nonzero()[0])
    for read, message in (
        (lambda: out[missing], f'Reading row {missing} needs rows outside of the mask'),
        (lambda: out[:9], 'Reading rows :9 needs'),
        (lambda: out[~mask], 'Reading rows by a mask needs'),
        (lambda: out.sum(), 'Calling `sum` needs'),
        (lambda: out.data, 'Reading `data` needs'),
        (lambda: copy.deepcopy(out), 'Copying needs'),
    ):
        with pytest.raises(ValueError, match=message):
            read()
    for read in (lambda: out[NODES], lambda: out[-NODES - 1], lambda: out[[0, NODES]]):
        with pytest.raises(IndexError, match=f'is out of bounds for dimension 0 with size {NODES}'):
            read()


def test_history_is_that_of_the_values():
    edge_index, x, mask = random_graph()
    conv = GCNConv(WIDTH, WIDTH)
    with pygfuse.active(mask):
        out = conv(x, edge_index)
    with torch.no_grad(), pygfuse.active(mask):
        without = conv(x, edge_index)
    assert (out.is_leaf, without.is_leaf) == (False, True)
    assert out.grad_fn is not None
    assert conv.note.forward.rows == int(mask.sum())
    assert without.grad_fn is None


@pytest.mark.parametrize('mask', [torch.ones(3), torch.ones(3, 1) > 0, [True]])
def test_a_mask_is_checked(mask):
    with pytest.raises(ValueError, match="Expected 'mask' to be a bool tensor"), pygfuse.active(mask):
        pass
    with (
        pytest.raises(ValueError, match="Expected 'elsewhere' to be 'raise' or 'nan'"),
        pygfuse.active(torch.ones(3) > 0, elsewhere='zero'),
    ):
        pass
