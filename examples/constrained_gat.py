"""Trains the constrained GAT of Wang et al. (2019), whose attention keeps margins, with PyG's path and compiled.

Scores of neighbours are to exceed those of nodes that are no neighbours, drawn anew in each epoch, and scores of
neighbours of one's own class those of neighbours of other classes: hinge losses over pairs of an edge and a node, and
pairs of edges into one node. Each is the message of a layer of one's own, as the attention is, and pygfuse compiles
all three. Both models start from the same parameters and train in turn.

    python examples/constrained_gat.py --dataset Cora
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import remove_self_loops, softmax
from tqdm import tqdm

import pygfuse
from pygfuse.memory import saved_bytes

DATASETS = ('Cora', 'CiteSeer', 'PubMed')
SLOPE, DROPOUT = 0.2, 0.6


class Scores(NamedTuple):
    """What the score of an edge is a function of the sum of: a value of its source and one of its target, per head."""

    source: Tensor
    target: Tensor


class Pairs(NamedTuple):
    """Edges into the same node, one of which is to have the higher score.

    Attributes:
        winners: Edges from nodes of the target's class, ``[2, winners]``.
        rivals: Edges from nodes of other classes, ``[2, rivals]``.
        index: For each pair, the place of the rival and that of the winner.
    """

    winners: Tensor
    rivals: Tensor
    index: Tensor


def score(source: Tensor, target: Tensor) -> Tensor:
    return F.leaky_relu(source + target, SLOPE)


class AttentionConv(MessagePassing):
    """A GAT layer that returns what its scores are made of, too."""

    def __init__(self, in_channels: int, channels: int, heads: int) -> None:
        super().__init__(aggr='sum', node_dim=0)
        self.heads, self.channels = heads, channels
        self.lin = torch.nn.Linear(in_channels, heads * channels, bias=False)
        self.att = torch.nn.Parameter(torch.empty(2, heads, channels))
        self.bias = torch.nn.Parameter(torch.zeros(heads * channels))
        torch.nn.init.xavier_uniform_(self.lin.weight)
        torch.nn.init.xavier_uniform_(self.att)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Scores]:
        rows = self.lin(x).view(-1, self.heads, self.channels)
        scores = Scores(*((rows * att).sum(dim=-1) for att in self.att))
        out = self.propagate(edge_index, x=rows, source=scores.source, target=scores.target)
        return out.flatten(1) + self.bias, scores

    def message(self, x_j: Tensor, source_j: Tensor, target_i: Tensor, index: Tensor, ptr: Any, size_i: Any) -> Tensor:
        alpha = softmax(score(source_j, target_i), index, ptr, size_i)
        return F.dropout(alpha, DROPOUT, self.training).unsqueeze(-1) * x_j


class StructureConstraint(MessagePassing):
    """How far scores of nodes that are no neighbours reach over those of neighbours less a margin, per target."""

    def __init__(self, margin: float) -> None:
        super().__init__(aggr='sum', node_dim=0)
        self.margin = margin

    def forward(self, scores: Scores, edge_index: Tensor, strangers: Tensor) -> Tensor:
        rivals = score(scores.source[strangers], scores.target.unsqueeze(1))
        excess = self.propagate(edge_index, source=scores.source, target=scores.target, rivals=rivals)
        return excess.sum() / (edge_index.shape[1] * rivals[0].numel())

    def message(self, source_j: Tensor, target_i: Tensor, rivals_i: Tensor) -> Tensor:
        return F.relu(rivals_i + self.margin - score(source_j, target_i).unsqueeze(1))


class BoundaryConstraint(MessagePassing):
    """The same of neighbours of other classes and neighbours of one's own: the nodes of this layer are edges."""

    def __init__(self, margin: float) -> None:
        super().__init__(aggr='sum', node_dim=0)
        self.margin = margin

    def forward(self, scores: Scores, pairs: Pairs) -> Tensor:
        rivals, winners = (
            score(scores.source[source], scores.target[target]) for source, target in (pairs.rivals, pairs.winners)
        )
        return self.propagate(pairs.index, x=(rivals, winners)).sum() / max(pairs.index.shape[1] * rivals.shape[1], 1)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return F.relu(x_j + self.margin - x_i)


class ConstrainedGAT(torch.nn.Module):
    """Two layers of attention, and the constraints on the scores of both."""

    def __init__(self, features: int, classes: int, options: argparse.Namespace) -> None:
        super().__init__()
        self.conv1 = AttentionConv(features, options.channels, options.heads)
        self.conv2 = AttentionConv(options.heads * options.channels, classes, 1)
        self.structure, self.boundary = StructureConstraint(options.margin), BoundaryConstraint(options.margin)
        self.weights = options.structure, options.boundary

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, list[Scores]]:
        x, first = self.conv1(F.dropout(x, DROPOUT, self.training), edge_index)
        x, second = self.conv2(F.dropout(F.elu(x), DROPOUT, self.training), edge_index)
        return x, [first, second]

    def loss(self, data: Data, pairs: Pairs, strangers: Tensor) -> Tensor:
        out, scores = self(data.x, data.edge_index)
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        structure, boundary = self.weights
        for one in scores:
            loss = loss + structure * self.structure(one, data.edge_index, strangers)
            loss = loss + boundary * self.boundary(one, pairs)
        return loss


def pairs_of(data: Data) -> Pairs:
    """The pairs of edges between nodes that are trained on."""
    edge_index, _ = remove_self_loops(data.edge_index)
    edge_index = edge_index[:, data.train_mask[edge_index].all(dim=0)]
    is_same = data.y[edge_index[0]] == data.y[edge_index[1]]
    winners, rivals = edge_index[:, is_same], edge_index[:, ~is_same]
    return Pairs(winners, rivals, (rivals[1].unsqueeze(1) == winners[1]).nonzero().t().contiguous())


def strangers_of(data: Data, number: int) -> Tensor:
    """So many nodes for each node, drawn from all: of a sparse graph hardly any is a neighbour."""
    return torch.randint(data.num_nodes, (data.num_nodes, number))


@dataclass
class Run:
    """One of the two trainings."""

    name: str
    model: ConstrainedGAT
    optimizer: torch.optim.Optimizer
    seconds: list[float] = field(default_factory=list)  # an epoch each, the first left out

    @property
    def milliseconds(self) -> float:
        return 1e3 * statistics.median(self.seconds)


def train(runs: list[Run], data: Data, pairs: Pairs, epochs: int, number: int) -> None:
    """Trains all models, one epoch of each in turn."""
    for epoch in tqdm(range(epochs), desc='Training', unit=' epochs'):
        strangers = strangers_of(data, number)
        for run in runs:
            start = time.perf_counter()
            run.optimizer.zero_grad()
            run.model.loss(data, pairs, strangers).backward()
            run.optimizer.step()
            if epoch > 0:
                run.seconds.append(time.perf_counter() - start)


@torch.no_grad()
def accuracy(run: Run, data: Data) -> float:
    """The share of test nodes that are classified right."""
    predicted = run.model.eval()(data.x, data.edge_index)[0].argmax(dim=-1)
    return float((predicted == data.y)[data.test_mask].float().mean())


def table(runs: list[Run], data: Data, pairs: Pairs, number: int) -> str:
    """The figures of both runs side by side."""
    strangers = strangers_of(data, number)
    given = [data.x, data.edge_index, data.y, data.train_mask, strangers, *pairs]
    saved = [
        saved_bytes(lambda r=r: r.model.train().loss(data, pairs, strangers), exclude=[*given, *r.model.parameters()])
        for r in runs
    ]
    rows = [
        ('test accuracy', '{:.1%}', [accuracy(run, data) for run in runs]),
        ('ms per epoch', '{:.1f}', [run.milliseconds for run in runs]),
        ('saved for backward', '{:.1f} MB', [bytes / 1e6 for bytes in saved]),
    ]
    lines = [f'{"":<20}{runs[0].name:>14}{runs[1].name:>14}{"ratio":>10}']
    for name, form, (pyg, fused) in rows:
        lines.append(f'{name:<20}{form.format(pyg):>14}{form.format(fused):>14}{pyg / max(fused, 1e-9):>10.2f}')
    return '\n'.join(lines)


@torch.no_grad()
def difference(runs: list[Run], data: Data, pairs: Pairs, number: int) -> float:
    """By how much the two models' losses differ before training, without dropout."""
    strangers = strangers_of(data, number)
    losses = [float(run.model.eval().loss(data, pairs, strangers)) for run in runs]
    for run in runs:
        run.model.train()
    return abs(losses[0] - losses[1])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dataset', choices=DATASETS, default='Cora', help='default: Cora')
    parser.add_argument(
        '--root', default='data/Planetoid', help='where the data lie or are downloaded to (default: %(default)s)'
    )
    parser.add_argument('--channels', type=int, default=8, help='of a head of the hidden layer (default: 8)')
    parser.add_argument('--heads', type=int, default=8, help='default: 8')
    parser.add_argument('--margin', type=float, default=0.1, help='default: 0.1')
    parser.add_argument(
        '--structure', type=float, default=0.1, help='weight of the constraint on strangers (default: 0.1)'
    )
    parser.add_argument(
        '--boundary', type=float, default=0.1, help='weight of the constraint on classes (default: 0.1)'
    )
    parser.add_argument('--strangers', type=int, default=5, help='nodes drawn for each node (default: 5)')
    parser.add_argument('--epochs', type=int, default=200, help='default: 200')
    parser.add_argument('--seed', type=int, default=0, help='default: 0')
    arguments = parser.parse_args()
    if arguments.epochs < 2:
        parser.error('--epochs must be at least 2: the first is timed apart')
    return arguments


def main() -> None:
    options = parse_arguments()
    transform = T.Compose([T.NormalizeFeatures(), T.AddSelfLoops()])
    # of the few labels of the public split no two are of one node's neighbours
    dataset = Planetoid(options.root, options.dataset, split='full', transform=transform)
    data = dataset[0]
    torch.manual_seed(options.seed)
    model = ConstrainedGAT(dataset.num_features, dataset.num_classes, options)
    runs = [
        Run(name, made, torch.optim.Adam(made.parameters(), lr=0.005, weight_decay=5e-4))
        for name, made in (('PyG', model), ('pygfuse', pygfuse.fuse(copy.deepcopy(model))))
    ]
    pairs = pairs_of(data)
    apart = difference(runs, data, pairs, options.strangers)
    train(runs, data, pairs, options.epochs, options.strangers)
    size = f'{data.num_nodes:,} nodes, {data.num_edges:,} edges, {pairs.index.shape[1]:,} pairs of edges'
    print(f'{options.dataset}: {size}')
    print(table(runs, data, pairs, options.strangers))
    print(f'Before training the losses of the two differ by {apart:.1e}.')
    print(pygfuse.report(runs[1].model))


if __name__ == '__main__':
    main()
