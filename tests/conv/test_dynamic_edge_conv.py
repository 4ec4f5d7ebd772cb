from __future__ import annotations

import copy
import re

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, ReLU, Sequential

import pygfuse
from pygfuse.conv import DynamicEdgeConv
from pygfuse.ops.points.knn import knn, knn_graph
from tests.support.pyg_lib import with_pyg_lib  # noqa: F401 (a fixture)

FEATURES, CHANNELS, K = 3, 8, 5
BATCH = torch.arange(4).repeat_interleave(torch.tensor([20, 3, 30, 7]))


def points(count: int = len(BATCH), seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(count, FEATURES, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def plain_of(conv: DynamicEdgeConv) -> Module:
    """PyG's EdgeConv with the same parameters."""
    plain = pyg.EdgeConv(copy.deepcopy(conv.nn), conv.aggr)  # which draws them anew
    plain.load_state_dict(conv.state_dict())
    return plain


def gradients(conv: Module, inputs: list[Tensor], out: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return list(torch.autograd.grad((out * weights).sum(), [*inputs, *conv.parameters()]))


@pytest.mark.parametrize('aggr', ['max', 'add', 'mean'])
def test_is_edge_conv_on_the_nearest_neighbours(aggr):
    conv = DynamicEdgeConv(Linear(2 * FEATURES, CHANNELS), K, aggr).double()
    plain = plain_of(conv)
    x = points().requires_grad_()
    out, expected = conv(x, BATCH), plain(x, knn_graph(x, K, BATCH, loop=True))
    assert conv.note.reason is None
    torch.testing.assert_close(out, expected)
    for got, wanted in zip(gradients(conv, [x], out), gradients(plain, [x], expected), strict=True):
        torch.testing.assert_close(got, wanted)


def test_runs_whatever_edge_conv_runs():
    conv = DynamicEdgeConv(Sequential(Linear(2 * FEATURES, CHANNELS), BatchNorm1d(CHANNELS), ReLU()), K).double()
    plain = plain_of(conv)
    for training in (True, False):
        conv.train(training), plain.train(training)
        expected = plain(points(), knn_graph(points(), K, BATCH, loop=True))
        torch.testing.assert_close(conv(points(), BATCH), expected)
    torch.testing.assert_close(conv.state_dict(), plain.state_dict())


@pytest.mark.parametrize('batched', [True, False])
def test_points_and_queries(batched):
    conv = DynamicEdgeConv(Linear(2 * FEATURES, CHANNELS), K).double()
    plain = plain_of(conv)
    x, y = points().requires_grad_(), points(12, seed=1).requires_grad_()
    batch = torch.arange(4).repeat_interleave(3) if batched else None
    batches = (BATCH, batch) if batched else None
    edge_index = knn(x, y, K, *(batches or (None, None))).flip(0)
    out, expected = conv((x, y), batches), plain((x, y), edge_index)
    assert conv.note.reason is None
    torch.testing.assert_close(out, expected)
    for got, wanted in zip(gradients(conv, [x, y], out), gradients(plain, [x, y], expected), strict=True):
        torch.testing.assert_close(got, wanted)


def test_clouds_of_few_points_and_none():
    conv = DynamicEdgeConv(Linear(2 * FEATURES, CHANNELS), 50).double()
    expected = plain_of(conv)(points(), knn_graph(points(), 50, BATCH, loop=True))
    torch.testing.assert_close(conv(points(), BATCH), expected)
    assert conv(points(0)).shape == (0, CHANNELS)
    assert conv(points(0), BATCH[:0]).shape == (0, CHANNELS)
    assert conv(points(1)).shape == (1, CHANNELS)


@pytest.mark.usefixtures('with_pyg_lib')
def test_constructor_parameters_and_printed_form():
    made = []
    for kind in (pyg.DynamicEdgeConv, DynamicEdgeConv):
        torch.manual_seed(0)
        made.append(kind(Sequential(Linear(2 * FEATURES, CHANNELS), ReLU()), K, aggr='mean', num_workers=2))
    plain, fused = made
    assert repr(fused) == repr(plain)
    assert (fused.k, fused.num_workers, fused.flow) == (plain.k, plain.num_workers, plain.flow)
    state = plain.state_dict()
    assert list(fused.state_dict()) == list(state)
    for name, tensor in fused.state_dict().items():
        assert torch.equal(tensor, state[name])
    x = points(dtype=torch.float32)
    torch.testing.assert_close(fused(x, BATCH), plain(x, BATCH))
    torch.manual_seed(1)
    plain.reset_parameters()
    torch.manual_seed(1)
    fused.reset_parameters()
    torch.testing.assert_close(fused.state_dict(), plain.state_dict())


@pytest.mark.usefixtures('with_pyg_lib')
def test_layers_of_pyg_are_swapped():
    model = torch.nn.ModuleList([pyg.DynamicEdgeConv(Linear(2 * FEATURES, CHANNELS), K)])
    x = points(dtype=torch.float32)
    expected = model[0](x, BATCH)
    assert [row.why_not for row in pygfuse.report(model)] == ['call pygfuse.fuse(model)']
    pygfuse.fuse(model)
    assert type(model[0]) is DynamicEdgeConv
    torch.testing.assert_close(model[0](x, BATCH), expected)
    assert [row.why_not for row in pygfuse.report(model)] == [None]
    pygfuse.unfuse(model)
    assert type(model[0]) is pyg.DynamicEdgeConv
    torch.testing.assert_close(model[0](x, BATCH), expected)


def test_copies_and_files(tmp_path):
    conv = DynamicEdgeConv(Linear(2 * FEATURES, CHANNELS), K).double()
    expected = conv(points(), BATCH)
    torch.testing.assert_close(copy.deepcopy(conv)(points(), BATCH), expected)
    torch.save(conv, tmp_path / 'conv.pt')
    torch.testing.assert_close(torch.load(tmp_path / 'conv.pt', weights_only=False)(points(), BATCH), expected)


class DGCNN(Module):
    """Two dynamic layers and a head, as a whole on the neighbours that either way finds."""

    def __init__(self, fused: bool, *maps: Module) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(DynamicEdgeConv(nn, K) if fused else pyg.EdgeConv(nn) for nn in maps)
        self.norms = torch.nn.ModuleList(BatchNorm1d(CHANNELS) for _ in maps)
        self.head = Linear(2 * CHANNELS, 4)

    def forward(self, x: Tensor, batch: Tensor) -> Tensor:
        found = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            edges = batch if isinstance(conv, DynamicEdgeConv) else knn_graph(x, K, batch, loop=True).clone()
            x = norm(conv(x, edges)).relu()
            found.append(x)
        return self.head(pyg.global_max_pool(torch.cat(found, dim=1), batch))


def losses(model: Module) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batch = torch.arange(12).repeat_interleave(40)
    x = points(len(batch), dtype=torch.float32) * (1 + torch.arange(12) % 4)[batch].unsqueeze(1)
    found = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, batch), torch.arange(12) % 4)
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def test_losses_of_twenty_steps():
    torch.manual_seed(0)
    plain = DGCNN(False, Linear(2 * FEATURES, CHANNELS), Linear(2 * CHANNELS, CHANNELS))
    fused = DGCNN(True, Linear(2 * FEATURES, CHANNELS), Linear(2 * CHANNELS, CHANNELS))
    fused.load_state_dict(plain.state_dict())
    expected = losses(plain)
    assert losses(fused) == pytest.approx(expected, abs=1e-4)
    assert expected[-1] < 0.5 * expected[0]
    assert all(conv.note.reason is None for conv in fused.convs)


WRONG = {
    'unsorted': (lambda conv, x: conv(x, BATCH.flip(0)), "Expected 'batch' to ascend from 0"),
    'short': (lambda conv, x: conv(x, BATCH[:5]), "Expected 'batch' to hold one number for each of 60 points"),
    'of queries': (lambda conv, x: conv((x, x), (BATCH, BATCH[:5])), "Expected 'batch[1]' to hold one number for each"),
    'of points': (lambda conv, x: conv((x, x), (BATCH.flip(0), BATCH)), "Expected 'batch[0]' to ascend from 0"),
    'queries': (lambda conv, x: conv((x, x[:, :2])), "Expected 'x[1]' to have as many features as 'x[0]', 3 (got"),
    'one dimension': (lambda conv, x: conv(x[:, 0]), "Expected 'x' to be two-dimensional, [nodes, features] (got"),
    'no queries': (lambda conv, x: conv((x, None)), "Expected 'x' to hold points and queries (got None in x[1])"),
    'no points': (lambda conv, x: conv((None, x)), "Expected 'x' to hold points and queries (got None in x[0])"),
    'three': (lambda conv, x: conv((x.unsqueeze(0), x)), "Expected 'x[0]' to be two-dimensional, [nodes, features]"),
    'width': (lambda conv, x: conv(x[:, :2]), "Expected 'x' to have 3 features, half of what nn takes"),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_arguments_are_named(name):
    call, message = WRONG[name]
    conv = DynamicEdgeConv(Linear(2 * FEATURES, CHANNELS), K).double()
    with pytest.raises(ValueError, match=re.escape(message)):
        call(conv, points())


def test_k_must_be_positive():
    with pytest.raises(ValueError, match=re.escape("Expected 'k' to be a positive integer (got 0)")):
        DynamicEdgeConv(Linear(2 * FEATURES, CHANNELS), 0)
