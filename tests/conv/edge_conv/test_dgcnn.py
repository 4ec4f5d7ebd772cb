"""A DGCNN of EdgeConvs trains as that of PyG, in a fraction of the memory."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d, LeakyReLU, Linear, Module, Sequential

from pygfuse.conv import EdgeConv
from pygfuse.memory import peak_bytes
from tests.support.edge_conv import neighbours


class Dgcnn(Module):
    def __init__(self, kind: type, network) -> None:
        super().__init__()
        widths = (3, 16, 16, 32, 64)
        self.convs = torch.nn.ModuleList([kind(network(i, o)) for i, o in itertools.pairwise(widths)])
        self.head = Linear(sum(widths[1:]), 5)

    def forward(self, x, edge_index, clouds):
        found = []
        for conv in self.convs:
            x = conv(x, edge_index)
            found.append(x)
        return self.head(torch.cat(found, dim=1).view(clouds, -1, self.head.in_features).amax(1))


def single(i: int, o: int) -> Module:
    return Sequential(Linear(2 * i, o), BatchNorm1d(o), LeakyReLU(0.2))


def double(i: int, o: int) -> Module:
    return Sequential(Linear(2 * i, o), BatchNorm1d(o), LeakyReLU(0.2), Linear(o, o), BatchNorm1d(o), LeakyReLU(0.2))


def cloud_neighbours(x: torch.Tensor, clouds: int, k: int) -> torch.Tensor:
    points = x.view(clouds, -1, 3)
    nearest = torch.cdist(points, points).topk(k, largest=False).indices
    nearest = nearest + torch.arange(clouds).view(-1, 1, 1) * points.shape[1]
    return torch.stack([nearest.flatten(), torch.arange(len(x)).repeat_interleave(k)])


@pytest.mark.parametrize(
    ('network', 'dtype', 'rate', 'tolerance'),
    [
        (single, torch.float64, 0.02, 1e-9),
        # where another maximum wins, on some processors, paths part: PyG's own in float32 and float64 by up to 2 %
        # (28 % at a rate of 0.02 in the double network)
        (single, torch.float32, 0.02, 4e-2),
        pytest.param(double, torch.float32, 0.002, 4e-2, marks=pytest.mark.slow),
        pytest.param(double, torch.float64, 0.02, 1e-9, marks=pytest.mark.slow),
    ],
)
def test_a_dgcnn_on_fixed_neighbours_trains_to_the_same_losses(network, dtype, rate, tolerance):
    clouds, points, k = 6, 32, 8
    torch.manual_seed(0)
    x, labels = torch.randn(clouds * points, 3), torch.arange(clouds) % 5
    edge_index = cloud_neighbours(x, clouds, k)
    model = Dgcnn(pyg.EdgeConv, network)
    twin = Dgcnn(EdgeConv, network)
    twin.load_state_dict(model.state_dict())
    losses = []
    for net in (model.to(dtype), twin.to(dtype)):
        optimizer = torch.optim.SGD(net.parameters(), lr=rate)
        losses.append([])
        for _ in range(20):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x.to(dtype), edge_index, clouds), labels)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=tolerance)
    assert losses[0][-1] < 0.5 * losses[0][0]
    assert [conv.note.reason for conv in twin.convs] == [None] * 4


@pytest.mark.slow
@pytest.mark.parametrize('network', [single, double])
def test_the_peak_of_a_step_is_a_fifth_of_that_of_pyg(network):
    torch.manual_seed(0)
    clouds, points, k = 4, 1024, 40
    x = torch.randn(clouds * points, 3)
    edge_index = neighbours(clouds * points, k)

    def peak(kind) -> int:
        model = Dgcnn(kind, network)

        def step():
            model.zero_grad()
            model(x, edge_index, clouds).sum().backward()

        return peak_bytes(step, warmup=1)

    assert 5 * peak(EdgeConv) <= peak(pyg.EdgeConv)
