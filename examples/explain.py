"""Explains a fused model with PyG's GNNExplainer, and shows that the explanation is that of PyG's own model.

Houses of five nodes are attached to a random graph, as in the paper of the GNNExplainer
(https://arxiv.org/abs/1903.03894), and a GCN or GAT learns which part of a house a node is, if any. What the model
says of a node of a house depends on the edges of this house, so the explanation is right where it ranks these first:
the area under the ROC curve says how often it does. The explainer masks messages, so layers run PyG's path while it
works, and are fused again afterwards.

    python examples/explain.py                      # houses on a generated graph
    python examples/explain.py --root data/Planetoid  # Cora, downloaded if it is not there
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import networkx
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import ExplainerDataset, Planetoid
from torch_geometric.datasets.graph_generator import BAGraph
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.utils import k_hop_subgraph
from tqdm import tqdm

import pygfuse

matplotlib.use('Agg')
import matplotlib.pyplot as plt

LAYERS = 3


@dataclass
class Run:
    """One of the two models, its training and what was explained of it."""

    name: str
    model: torch.nn.Module
    seconds: list[float] = field(default_factory=list)  # an epoch each
    edge_masks: list[Tensor] = field(default_factory=list)
    node_masks: list[Tensor] = field(default_factory=list)
    explaining: list[float] = field(default_factory=list)  # seconds, a node each


def houses(num_nodes: int, num_houses: int) -> Data:
    """A Barabasi-Albert graph with houses; ``edge_mask`` tells their edges. All features are one."""
    dataset = ExplainerDataset(BAGraph(num_nodes, num_edges=5), 'house', num_houses)
    data = dataset[0]
    part = torch.rand(data.num_nodes)
    return Data(
        x=torch.ones(data.num_nodes, 10),
        edge_index=data.edge_index,
        y=data.y,
        edge_mask=data.edge_mask,
        train_mask=part < 0.8,
        test_mask=part >= 0.8,
    )


def model_of(conv: str, data: Data, channels: int) -> torch.nn.Module:
    kind = {'gcn': pyg.GCN, 'gat': pyg.GAT}[conv]
    return kind(data.num_features, channels, LAYERS, int(data.y.max()) + 1)


def train_epoch(run: Run, optimizer: torch.optim.Optimizer, data: Data) -> None:
    start = time.perf_counter()
    optimizer.zero_grad()
    out = run.model(data.x, data.edge_index)
    F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()
    run.seconds.append(time.perf_counter() - start)


def train(runs: list[Run], data: Data, epochs: int) -> None:
    """Trains both models, one epoch of each in turn."""
    optimizers = [torch.optim.Adam(run.model.parameters(), lr=0.01, weight_decay=5e-4) for run in runs]
    for _ in tqdm(range(epochs), desc='Training', unit=' epochs'):
        for run, optimizer in zip(runs, optimizers, strict=True):
            train_epoch(run, optimizer, data)


@torch.no_grad()
def accuracy(run: Run, data: Data) -> float:
    """Of the test nodes."""
    right = run.model.eval()(data.x, data.edge_index).argmax(dim=-1) == data.y
    return float(right[data.test_mask].float().mean())


def explain(run: Run, data: Data, node: int, epochs: int) -> None:
    """Explains what the model says of a node, from the same random masks for every model."""
    explainer = Explainer(
        run.model.eval(),
        # a higher price for edges than PyG's: some thirty edges, rather than all that help a little
        GNNExplainer(epochs=epochs, lr=0.03, edge_size=0.02),
        explanation_type='model',
        # features that are all one say nothing
        node_mask_type=None if 'edge_mask' in data else 'attributes',
        edge_mask_type='object',
        model_config={'mode': 'multiclass_classification', 'task_level': 'node', 'return_type': 'raw'},
    )
    torch.manual_seed(node)
    start = time.perf_counter()
    explanation = explainer(data.x, data.edge_index, index=node)
    run.explaining.append(time.perf_counter() - start)
    run.edge_masks.append(explanation.edge_mask)
    if explanation.get('node_mask') is not None:
        run.node_masks.append(explanation.node_mask)


def nodes_to_explain(data: Data, count: int, seed: int) -> list[int]:
    """Nodes of houses, or any test nodes where there are none."""
    candidates = (data.y > 0).nonzero() if 'edge_mask' in data else data.test_mask.nonzero()
    order = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(seed))
    return candidates.flatten()[order[:count]].tolist()


def edges_in_reach(data: Data, node: int) -> Tensor:
    """Which edges the model's answer at a node depends on."""
    return k_hop_subgraph(node, LAYERS, data.edge_index, num_nodes=data.num_nodes)[3]


def motif_score(run: Run, data: Data, nodes: list[int]) -> float:
    """How often an edge of a house is ranked before another edge, among those in reach."""
    found = []
    for node, mask in zip(nodes, run.edge_masks, strict=True):
        reach = edges_in_reach(data, node)
        found.append(roc_auc_score(data.edge_mask[reach], mask[reach]))
    return statistics.mean(found)


def picture(run: Run, data: Data, node: int, path: Path) -> None:
    """The strongest edges of the first explanation, edges of houses in colour."""
    mask = run.edge_masks[0]
    # as wide as the edges of a house and a few more
    strongest = torch.topk(mask * edges_in_reach(data, node), min(30, int(edges_in_reach(data, node).sum()))).indices
    graph = networkx.Graph()
    graph.add_node(node)
    for edge in strongest.flip(0).tolist():
        planted = 'edge_mask' in data and bool(data.edge_mask[edge])
        graph.add_edge(*data.edge_index[:, edge].tolist(), weight=float(mask[edge]), planted=planted)
    edges = graph.edges(data=True)
    figure, axes = plt.subplots(figsize=(6, 5), layout='constrained')
    place = networkx.spring_layout(graph, seed=0)
    networkx.draw_networkx_edges(
        graph,
        place,
        ax=axes,
        width=[0.5 + 4 * values['weight'] / float(mask.max()) for *_, values in edges],
        edge_color=['#0b7a75' if values['planted'] else '#9aa3ad' for *_, values in edges],
    )
    colors = ['#d1495b' if one == node else '#ffffff' for one in graph]
    networkx.draw_networkx_nodes(graph, place, ax=axes, node_color=colors, edgecolors='#333333', node_size=220)
    networkx.draw_networkx_labels(graph, place, {one: int(data.y[one]) for one in graph}, ax=axes, font_size=9)
    axes.set_title(f'Why is node {node} (red) of class {int(data.y[node])}? The strongest edges; green: of a house')
    axes.title.set_fontsize(10)
    axes.set_axis_off()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def table(runs: list[Run], data: Data, nodes: list[int]) -> str:
    """The figures of both models side by side."""
    rows = [
        ('test accuracy', '{:.1%}', [accuracy(run, data) for run in runs]),
        ('ms per epoch', '{:.2f}', [1e3 * statistics.median(run.seconds[1:]) for run in runs]),
        ('s per explanation', '{:.2f}', [statistics.median(run.explaining) for run in runs]),
    ]
    if 'edge_mask' in data:
        rows.append(('AUC of house edges', '{:.3f}', [motif_score(run, data, nodes) for run in runs]))
    lines = [f'{"":<20}{runs[0].name:>14}{runs[1].name:>14}{"ratio":>10}']
    for name, form, (of_pyg, fused) in rows:
        lines.append(f'{name:<20}{form.format(of_pyg):>14}{form.format(fused):>14}{of_pyg / fused:>10.2f}')
    return '\n'.join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', help='where Cora lies or is downloaded to (default: houses are generated)')
    parser.add_argument('--conv', choices=['gcn', 'gat'], default='gcn', help='default: gcn')
    parser.add_argument('--nodes', type=int, default=300, help='of the graph without houses (default: 300)')
    parser.add_argument('--houses', type=int, default=80, help='default: 80')
    parser.add_argument('--channels', type=int, default=20, help='of hidden layers (default: 20)')
    parser.add_argument('--epochs', type=int, default=1000, help='of training (default: 1000)')
    parser.add_argument('--explanations', type=int, default=10, help='how many nodes (default: 10)')
    parser.add_argument('--explainer-epochs', type=int, default=200, help='default: 200')
    parser.add_argument('--seed', type=int, default=0, help='default: 0')
    parser.add_argument('--output', type=Path, default=Path('explanation.png'), help='default: explanation.png')
    arguments = parser.parse_args()
    if min(arguments.epochs - 1, arguments.explanations, arguments.explainer_epochs, arguments.houses) < 1:
        parser.error('--epochs must be at least 2, --explanations, --explainer-epochs and --houses at least 1')
    return arguments


def main() -> None:
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    if arguments.root is None:
        data = houses(arguments.nodes, arguments.houses)
    else:
        data = Planetoid(arguments.root, 'Cora')[0]
    model = model_of(arguments.conv, data, arguments.channels)
    runs = [Run('PyG', model), Run('pygfuse', pygfuse.fuse(copy.deepcopy(model)))]
    train(runs, data, arguments.epochs)
    # from here on the same parameters: rounding errors of many epochs are not what is compared
    model.load_state_dict(runs[1].model.state_dict())
    nodes = nodes_to_explain(data, arguments.explanations, arguments.seed)
    for node in tqdm(nodes, desc='Explaining', unit=' nodes'):
        for run in runs:
            explain(run, data, node, arguments.explainer_epochs)

    print(f'\n{data.num_nodes:,} nodes, {data.num_edges:,} edges; {len(nodes)} nodes explained')
    print(table(runs, data, nodes))
    masks = [[*run.edge_masks, *run.node_masks] for run in runs]
    apart = max(float((first - second).abs().max()) for first, second in zip(*masks, strict=True))
    print(f'The {len(masks[0])} masks of the two differ by at most {apart:.1e}.')
    print(pygfuse.report(runs[1].model))
    picture(runs[1], data, nodes[0], arguments.output)
    print(f'Picture: {arguments.output}')


if __name__ == '__main__':
    main()
