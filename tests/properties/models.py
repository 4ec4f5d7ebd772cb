"""Random models of several layers, trained for some steps within ``torch.compile`` beside PyG's.

    python -m tests.properties.models --first 0 --cases 50 --backend inductor

Edges are made anew between layers, and graphs of as many nodes and edges follow each other: torch reuses memory, and
what was derived of edges must not be taken for that of others.
"""

from __future__ import annotations

import argparse
import copy
import random
import warnings
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch._inductor import config
from torch.nn import BatchNorm1d, Identity, LayerNorm, Linear, Module, ModuleList, ReLU, Sequential
from tqdm import tqdm

import pygfuse
from tests.compiler import modules_of_remade_edges, own_convs, own_modules
from tests.support.limits import lift

WIDTH, EDGE_DIM = own_modules.WIDTH, own_modules.OF_EDGES
STEPS = 6


def _network(width: int = WIDTH) -> Module:
    return Sequential(Linear(width, WIDTH), ReLU(), Linear(WIDTH, WIDTH))


# makes a layer, by random options, and what of edges it is given
LAYERS: dict[str, tuple[Callable[[random.Random], Module], str | None]] = {
    'GCNConv': (lambda r: pyg.GCNConv(WIDTH, WIDTH, improved=r.random() < 0.3), 'edge_weight'),
    'GATConv': (lambda r: pyg.GATConv(WIDTH, WIDTH // 2, 2, edge_dim=EDGE_DIM, residual=r.random() < 0.3), 'edge_attr'),
    'GATConv, one head': (lambda r: pyg.GATConv(WIDTH, WIDTH, add_self_loops=r.random() < 0.5), None),
    'GATv2Conv': (lambda r: pyg.GATv2Conv(WIDTH, WIDTH // 2, 2, edge_dim=EDGE_DIM), 'edge_attr'),
    'TransformerConv': (lambda r: pyg.TransformerConv(WIDTH, WIDTH // 2, 2, edge_dim=EDGE_DIM), 'edge_attr'),
    'SAGEConv': (lambda r: pyg.SAGEConv(WIDTH, WIDTH, r.choice(['mean', 'max', 'sum'])), None),
    'GINConv': (lambda r: pyg.GINConv(_network(), train_eps=r.random() < 0.5), None),
    'GINEConv': (lambda r: pyg.GINEConv(_network(), edge_dim=EDGE_DIM), 'edge_attr'),
    'GraphConv': (lambda r: pyg.GraphConv(WIDTH, WIDTH, r.choice(['add', 'mean', 'max'])), 'edge_weight'),
    'ResGatedGraphConv': (lambda r: pyg.ResGatedGraphConv(WIDTH, WIDTH, edge_dim=EDGE_DIM), 'edge_attr'),
    'CGConv': (lambda r: pyg.CGConv(WIDTH, EDGE_DIM, r.choice(['add', 'mean'])), 'edge_attr'),
    'GMMConv': (lambda r: pyg.GMMConv(WIDTH, WIDTH, EDGE_DIM, 2), 'edge_attr'),
    'EdgeConv': (lambda r: pyg.EdgeConv(_network(2 * WIDTH), r.choice(['max', 'add', 'mean'])), None),
    'TAGConv': (lambda r: pyg.TAGConv(WIDTH, WIDTH, 2), 'edge_weight'),
    'ChebConv': (lambda r: pyg.ChebConv(WIDTH, WIDTH, 3), 'edge_weight'),
    'APPNP': (lambda r: pyg.APPNP(2, 0.1), 'edge_weight'),
    'SGConv': (lambda r: pyg.SGConv(WIDTH, WIDTH, 2), 'edge_weight'),
    'LEConv': (lambda r: pyg.LEConv(WIDTH, WIDTH), 'edge_weight'),
    'GENConv': (lambda r: pyg.GENConv(WIDTH, WIDTH, r.choice(['softmax', 'add']), edge_dim=EDGE_DIM), 'edge_attr'),
    'GeneralConv': (lambda r: pyg.GeneralConv(WIDTH, WIDTH, EDGE_DIM, attention=r.random() < 0.5), 'edge_attr'),
    'FeaStConv': (lambda r: pyg.FeaStConv(WIDTH, WIDTH, 2), None),
    'GatedGraphConv': (lambda r: pyg.GatedGraphConv(WIDTH, 2), 'edge_weight'),
    'NNConv': (lambda r: pyg.NNConv(WIDTH, WIDTH, Linear(EDGE_DIM, WIDTH * WIDTH)), 'edge_attr'),
    'FiLMConv': (lambda r: pyg.FiLMConv(WIDTH, WIDTH), None),
    'EGConv': (lambda r: pyg.EGConv(WIDTH, WIDTH, num_heads=2, num_bases=2), None),
    'own attention': (lambda r: own_convs.NaiveAttention(WIDTH), None),
    'own gate': (lambda r: own_convs.Gate(WIDTH, EDGE_DIM), 'edge_attr'),
    'own module': (lambda r: own_modules.Mean(), None),
    'own module, self-loops': (lambda r: modules_of_remade_edges.Normalised(), None),
    'own attention, self-loops': (lambda r: modules_of_remade_edges.Attention(), 'edge_attr'),
}  # fmt: skip

Edges = tuple[Tensor, Tensor, Tensor]


def _chosen(keep: Tensor | slice, edges: Edges) -> Edges:
    edge_index, edge_attr, edge_weight = edges
    return edge_index[:, keep], edge_attr[keep], edge_weight[keep]


def _with_loops(x: Tensor, edges: Edges) -> Edges:
    edge_index, edge_attr, edge_weight = edges
    loops, ones = torch.arange(x.shape[0], device=x.device).repeat(2, 1), x.new_ones(x.shape[0])
    ones_of_edges = ones.unsqueeze(1).expand(-1, EDGE_DIM)
    return torch.cat([edge_index, loops], 1), torch.cat([edge_attr, ones_of_edges]), torch.cat([edge_weight, ones])


def _both_ways(edge_index: Tensor, edge_attr: Tensor, edge_weight: Tensor) -> Edges:
    return torch.cat([edge_index, edge_index.flip(0)], 1), edge_attr.repeat(2, 1), edge_weight.repeat(2)


# what is made of edges before a layer
MADE: dict[str, Callable[[Tensor, Edges], Edges]] = {
    'as they are': lambda x, edges: edges,
    'turned around': lambda x, edges: (edges[0].flip(0), *edges[1:]),
    'self-loops': _with_loops,
    'both ways': lambda x, edges: _both_ways(*edges),
    'every other': lambda x, edges: _chosen(slice(None, None, 2), edges),
    'the first half': lambda x, edges: _chosen(slice(edges[0].shape[1] // 2), edges),
    'sorted': lambda x, edges: _chosen(edges[0][1].argsort(stable=True), edges),
    'a copy': lambda x, edges: (edges[0].clone(), *edges[1:]),
    'other numbers of nodes': lambda x, edges: ((edges[0] + 1) % x.shape[0], *edges[1:]),
    'by weights': lambda x, edges: _chosen(edges[2] > 0.3, edges),
    'no loops': lambda x, edges: _chosen(edges[0][0] != edges[0][1], edges),
    'other values': lambda x, edges: (edges[0], edges[1] * 2, edges[2].square()),
}  # fmt: skip


# those that are as many as before, which torch may write into the memory of each other
AS_MANY = ['turned around', 'sorted', 'a copy', 'other numbers of nodes']


class RandomModel(Module):
    """Layers one after the other, with normalisations and residuals, and sums of graphs or scores of links."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        names = [draw.choice([*LAYERS]) for _ in range(draw.choice([1, 2, 2, 3, 4]))]
        self.kinds = [LAYERS[name][1] for name in names]
        self.layers = ModuleList([LAYERS[name][0](draw) for name in names])
        norms = (Identity, lambda: LayerNorm(WIDTH), lambda: BatchNorm1d(WIDTH), lambda: pyg.GraphNorm(WIDTH))
        self.norms = ModuleList([draw.choice(norms)() for _ in names])
        made = draw.choice([['as they are', *MADE], AS_MANY])
        self.made = [draw.choice(made) for _ in names]
        self.goes_on, self.adds, self.takes = ([draw.random() < share for _ in names] for share in (0.5, 0.4, 0.7))
        self.ends = draw.choice(['nodes', 'graphs', 'links', 'all layers'])
        self.out = Linear(WIDTH * (len(names) if self.ends == 'all layers' else 1), 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, edge_weight: Tensor, batch: Tensor) -> Tensor:
        given = edges = edge_index, edge_attr, edge_weight
        found = []
        for k, layer in enumerate(self.layers):
            edges = MADE[self.made[k]](x, edges if self.goes_on[k] else given)
            h = F.elu(self.norms[k](self._called(k, layer, x, edges)))
            x = (x + h if self.adds[k] else h).tanh()
            found.append(x)
        if self.ends == 'links':
            x = self.out(x)
            return (x[edge_index[0]] * x[edge_index[1]]).sum(dim=-1)
        if self.ends == 'graphs':
            x = pyg.global_mean_pool(x, batch, 2)
        return self.out(torch.cat(found, dim=1) if self.ends == 'all layers' else x)

    def _called(self, k: int, layer: Module, x: Tensor, edges: Edges) -> Tensor:
        edge_index, edge_attr, edge_weight = edges
        kind = self.kinds[k]
        if isinstance(layer, own_convs.Own):
            return layer(edge_index, x=x, **({'edge_attr': edge_attr} if kind else {}))
        if kind == 'edge_attr':
            return layer(x, edge_index, edge_attr)
        return layer(x, edge_index, edge_weight) if kind and self.takes[k] else layer(x, edge_index)


def graphs(draw: random.Random) -> list[tuple[Tensor, ...]]:
    """Graphs, each a tuple of the arguments of a model; of as many nodes and edges in most cases, some met again."""
    shapes = [(draw.randint(6, 20), draw.randint(10, 60)) for _ in range(STEPS - 2)]
    if draw.random() < 0.6:
        shapes = shapes[:1] * len(shapes)
    found = []
    for nodes, edges in shapes:
        of_edges = torch.rand(edges, EDGE_DIM), torch.rand(edges) + 0.05
        batch = (torch.arange(nodes) >= nodes // 2).long()
        found.append((torch.randn(nodes, WIDTH), torch.randint(nodes, (2, edges)), *of_edges, batch))
    return [*found, *found[:2]]


def trained(model: Module, run: Callable[..., Tensor], given: Sequence[tuple[Tensor, ...]]) -> dict[str, Tensor]:
    """What a model gives in each step, gradients of its arguments, its parameters in the end, and what it gives then.

    Args:
        model: The model.
        run: Calls it.
        given: The arguments of each step.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    found: dict[str, Tensor] = {}
    for step, arguments in enumerate(given):
        arguments = [one.clone().requires_grad_(one.is_floating_point()) for one in arguments]
        optimizer.zero_grad()
        out = run(*arguments)
        (out.square().mean() + out.mean()).backward()
        optimizer.step()
        found[f'output of step {step}'] = out.detach()
        for k, one in enumerate(arguments):
            if one.is_floating_point():
                found[f'gradient {k} of step {step}'] = torch.zeros_like(one) if one.grad is None else one.grad
    found |= {name: value.detach().clone() for name, value in model.state_dict().items()}
    # of which torch keeps no memory for a backward pass
    with torch.no_grad():
        return found | {f'output of graph {k} without gradients': run(*one) for k, one in enumerate(given[:2])}


def fault_of(seed: int, backend: str) -> str | None:
    """What a random model gives within ``torch.compile`` that PyG's does not; None if it gives the same, in float64.

    Args:
        seed: Of the model and its graphs.
        backend: Of ``torch.compile``.
    """
    draw = random.Random(seed)
    torch.manual_seed(seed)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        model = RandomModel(draw)
        fused = pygfuse.fuse(copy.deepcopy(model))
        for k, layer in enumerate(fused.layers):
            if not hasattr(layer, 'propagate'):
                fused.layers[k] = pygfuse.compile(layer)
        given = graphs(draw)
        torch._dynamo.reset()
        compiled = torch.compile(fused, backend=backend, dynamic=draw.choice([None, None, True, False]))
        expected = trained(model, model, given)
        # what inductor keeps on disk may be of another state of the package
        with config.patch(force_disable_caches=True):
            found = trained(fused, compiled, given)
    finally:
        torch.set_default_dtype(default)
    for name, value in expected.items():
        scale = 1e-8 * max(1.0, float(value.abs().max())) if value.numel() else 0.0
        if found[name].shape != value.shape or not bool(((found[name] - value).abs() <= scale).all()):
            layers = [f'{type(one).__name__} along {made}' for one, made in zip(model.layers, model.made, strict=True)]
            return f'seed {seed}, {name}: {", ".join(layers)}; {model.ends}'
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--first', type=int, default=0, help='the first seed')
    parser.add_argument('--cases', type=int, default=20)
    parser.add_argument('--backend', default='inductor')
    options = parser.parse_args(arguments)
    warnings.simplefilter('ignore')
    lift()
    faults = []
    for seed in tqdm(range(options.first, options.first + options.cases)):
        fault = fault_of(seed, options.backend)
        if fault is not None:
            faults.append(fault)
            tqdm.write(fault)
    print(f'{options.cases} models: {len(faults)} wrong')
    return len(faults)


if __name__ == '__main__':
    raise SystemExit(main())
