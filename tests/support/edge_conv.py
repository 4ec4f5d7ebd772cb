"""EdgeConv beside that of PyG, and the networks that it is tested with."""

from __future__ import annotations

import copy

import torch
import torch_geometric.nn as pyg
from torch.nn import (
    ELU,
    GELU,
    SELU,
    BatchNorm1d,
    Dropout,
    Identity,
    LeakyReLU,
    Linear,
    Module,
    PReLU,
    ReLU,
    Sequential,
    Sigmoid,
    SiLU,
    Softplus,
    Tanh,
)

from pygfuse.conv import EdgeConv
from tests.support.parity import GRAPHS, Example, assert_close, random_edges, results

FEATURES, HIDDEN, OUT = 8, 6, 4
WIDE = 2 * FEATURES
RANDOM = GRAPHS['random']()


def one(*rest: Module, width: int = HIDDEN) -> Module:
    return Sequential(Linear(WIDE, width), *rest)


# one linear map and what follows it
SHALLOW = {
    'linear': lambda: Linear(WIDE, HIDDEN),
    'no bias': lambda: one(Identity(), Dropout(0.0), width=HIDDEN),
    'norm': lambda: one(BatchNorm1d(HIDDEN)),
    'norm, relu': lambda: one(BatchNorm1d(HIDDEN), ReLU()),
    "PyG's norm, leaky relu": lambda: one(pyg.BatchNorm(HIDDEN), LeakyReLU(0.2)),
    'relu, norm': lambda: one(ReLU(inplace=True), BatchNorm1d(HIDDEN)),
    'norm, prelu': lambda: one(BatchNorm1d(HIDDEN), PReLU()),
    'norm, norm': lambda: one(BatchNorm1d(HIDDEN), BatchNorm1d(HIDDEN)),
    'norm, sigmoid': lambda: one(BatchNorm1d(HIDDEN), Sigmoid()),
    'relu, norm, relu': lambda: one(ReLU(), BatchNorm1d(HIDDEN), ReLU()),
}
SLOW_SHALLOW = {
    'elu': lambda: one(ELU(0.7)),
    'selu, norm': lambda: one(SELU(), BatchNorm1d(HIDDEN)),
    'gelu': lambda: one(GELU()),
    'gelu, norm': lambda: one(GELU(), BatchNorm1d(HIDDEN)),
    'norm, gelu by tanh': lambda: one(BatchNorm1d(HIDDEN), GELU('tanh')),
    'silu, norm': lambda: one(SiLU(), BatchNorm1d(HIDDEN)),
    'tanh, norm': lambda: one(Tanh(), BatchNorm1d(HIDDEN)),
    'sigmoid, norm': lambda: one(Sigmoid(), BatchNorm1d(HIDDEN)),
    'norm, softplus': lambda: one(BatchNorm1d(HIDDEN), Softplus(2.0)),
    'softplus that falls': lambda: one(Softplus(1.0, 1.0)),
    'leaky relu that falls': lambda: one(LeakyReLU(-0.3)),
    'prelu of channels, norm': lambda: one(PReLU(HIDDEN), BatchNorm1d(HIDDEN)),
}


DEEP = {
    'two': lambda: one(ReLU(), Linear(HIDDEN, OUT)),
    'two, norm between': lambda: pyg.MLP([WIDE, HIDDEN, OUT]),
    'two, norm after each': lambda: one(
        BatchNorm1d(HIDDEN), LeakyReLU(0.2), Linear(HIDDEN, OUT), BatchNorm1d(OUT), LeakyReLU(0.2)
    ),
    'two, activation first': lambda: pyg.MLP([WIDE, HIDDEN, OUT], act='elu', act_first=True, plain_last=False),
    'three': lambda: pyg.MLP([WIDE, HIDDEN, HIDDEN, OUT], bias=False),
    'three, no activation between': lambda: one(Linear(HIDDEN, HIDDEN), BatchNorm1d(HIDDEN), Linear(HIDDEN, OUT)),
    'three, nothing rises': lambda: one(
        PReLU(HIDDEN), BatchNorm1d(HIDDEN), Linear(HIDDEN, HIDDEN), GELU(), BatchNorm1d(HIDDEN), Linear(HIDDEN, OUT),
        PReLU(), BatchNorm1d(OUT),
    ),
    'no norm, no activation': lambda: pyg.MLP([WIDE, HIDDEN, OUT], norm=None, act=None),
    'nested': lambda: Sequential(one(Tanh()), Sequential(Linear(HIDDEN, OUT, bias=False), Sigmoid())),
    'a function': lambda: pyg.MLP([WIDE, HIDDEN, OUT], act=torch.tanh, norm=None),
}  # fmt: skip


NETWORKS = {**SHALLOW, **SLOW_SHALLOW, **DEEP}


def norms(conv: Module) -> list[BatchNorm1d]:
    return [module for module in conv.modules() if isinstance(module, BatchNorm1d)]


def pair(nn: Module, aggr: str = 'max', dtype: torch.dtype = torch.float64) -> tuple[Module, EdgeConv]:
    """PyG's layer and the fused one, with the same random parameters, scales of both signs and running statistics."""
    torch.manual_seed(0)
    conv = pyg.EdgeConv(nn, aggr=aggr)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for norm in norms(conv):
            if norm.affine:
                norm.weight[::2] *= -1
            if norm.track_running_stats:
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2)
    twin = EdgeConv(copy.deepcopy(nn), aggr=aggr)
    twin.load_state_dict(conv.state_dict())
    return conv.to(dtype), twin.to(dtype)


def check(nn: Module, aggr: str, example: Example, dtype: torch.dtype = torch.float64, x=None) -> None:
    """Parity over three steps of training and one of evaluation: outputs, gradients, running statistics."""
    conv, twin = pair(nn, aggr, dtype)
    reference = copy.deepcopy(conv).double()
    x = example.x(FEATURES) if x is None else x
    for step in range(4):
        if step == 3:
            for module in (conv, twin, reference):
                module.eval()
        arguments = {'x': x, 'edge_index': example.edge_index}
        for module in (conv, twin, reference):
            module.zero_grad()
        wanted = results(reference, arguments, torch.float64, step)
        plain = results(conv, arguments, dtype, step)
        assert_close(results(twin, arguments, dtype, step), wanted, None if dtype is torch.float64 else plain)
        assert twin.note.reason is None
        x = tuple(0.5 + 2 * part for part in x) if isinstance(x, tuple) else 0.5 + 2 * x
    states = [dict(module.state_dict()) for module in (twin, reference, conv)]
    assert_close(states[0], states[1], None if dtype is torch.float64 else states[2])


def neighbours(nodes: int, k: int) -> torch.Tensor:
    targets = torch.arange(nodes).repeat_interleave(k)
    return torch.stack([random_edges(nodes, nodes, nodes * k)[0], targets])
