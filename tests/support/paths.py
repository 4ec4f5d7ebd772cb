"""Models and gradients for tests of execution paths."""

from __future__ import annotations

import torch
from torch_geometric.nn.models import JumpingKnowledge

from pygfuse import execution_paths
from pygfuse.graph.graph import Graph

WIDTH = 8


class Model(torch.nn.Module):
    """Layers of one width one after another, with a jumping connection if asked for."""

    def __init__(self, kind: type, depth: int, jump: bool = False, shared: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        conv = kind(WIDTH, WIDTH)
        self.convs = torch.nn.ModuleList(conv if shared else kind(WIDTH, WIDTH) for _ in range(depth))
        self.jump = JumpingKnowledge('cat') if jump else None

    def forward(self, x, edge_index):
        found = []
        for conv in self.convs:
            x = conv(x, edge_index).tanh()
            found.append(x)
        return x if self.jump is None else self.jump(found)


def gradients(model, x, edge_index, mask, on: bool | None = True, repeats: int = 1) -> list[torch.Tensor]:
    for _ in range(repeats):
        model.zero_grad()
        x = x.detach().clone().requires_grad_()
        out = model(x, edge_index)
        loss = (out[mask] * torch.linspace(-1, 1, out.shape[1])).square().sum()
        if on is None:
            loss.backward()
        else:
            with execution_paths(on):
                loss.backward()
    return [x.grad, *(parameter.grad.clone() for parameter in model.parameters())]


def assert_close(found, expected) -> None:
    for one, other in zip(found, expected, strict=True):
        scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * scale)


def graph_with_loops(edge_index, nodes: int) -> Graph:
    return Graph.of(edge_index, num_sources=nodes, num_targets=nodes).with_self_loops(nodes)
