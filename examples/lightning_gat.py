"""Trains a fused GAT with Lightning's Trainer in two CPU processes.

Lightning starts the processes, divides the nodes to train on among them and averages gradients. The gradients of the
first step are compared with those of one process that has the nodes of all. Needs Lightning (``pip install
lightning``). Nothing is downloaded: scikit-learn's digits as a graph of nearest neighbours.

    python examples/lightning_gat.py --processes 2
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.nn import GATConv

import pygfuse

try:
    import lightning
except ImportError as error:
    raise SystemExit('This example needs Lightning: pip install lightning') from error


class GAT(torch.nn.Module):
    """Two layers of attention."""

    def __init__(self, features: int, classes: int, channels: int = 8, heads: int = 8) -> None:
        super().__init__()
        self.conv1 = GATConv(features, channels, heads=heads)
        self.conv2 = GATConv(heads * channels, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(F.elu(self.conv1(x, edge_index)), edge_index)


def digits_graph(neighbors: int) -> Data:
    """An edge to every image from each of its nearest neighbours; a fifth of the images is tested."""
    images, digits = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float() / 16
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[len(x) // 5 :], order[: len(x) // 5]
    return Data(x=x, edge_index=pygfuse.knn_graph(x, neighbors), y=torch.from_numpy(digits), train=train, test=test)


class Classifier(lightning.LightningModule):
    """The GAT, and how a batch of nodes is learnt: all of them see the whole graph."""

    def __init__(self, data: Data) -> None:
        super().__init__()
        self.data = data
        self.model = pygfuse.fuse(GAT(data.num_features, int(data.y.max()) + 1))

    def loss(self, model: GAT, nodes: Tensor) -> Tensor:
        return F.cross_entropy(model(self.data.x, self.data.edge_index)[nodes], self.data.y[nodes])

    def training_step(self, nodes: Tensor) -> Tensor:
        return self.loss(self.model, nodes)

    @torch.no_grad()
    def test_step(self, nodes: Tensor) -> None:
        right = self.model(self.data.x, self.data.edge_index)[nodes].argmax(dim=-1) == self.data.y[nodes]
        self.log('accuracy', right.float().mean(), batch_size=len(nodes), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.005, weight_decay=5e-4)


class Watch(lightning.Callback):
    """Times steps, and compares the gradients of the first with those of one process."""

    def __init__(self) -> None:
        self.apart: float | None = None
        self.times: list[float] = []

    def on_train_batch_start(self, trainer: Any, module: Classifier, batch: Tensor, index: int) -> None:
        self.start, self.nodes = time.perf_counter(), batch

    def on_after_backward(self, trainer: Any, module: Classifier) -> None:
        if self.apart is not None:
            return
        alone = copy.deepcopy(module.model)
        alone.zero_grad()
        batches = module.all_gather(self.nodes).view(-1, len(self.nodes))
        torch.stack([module.loss(alone, nodes) for nodes in batches]).mean().backward()
        pairs = zip(module.model.parameters(), alone.parameters(), strict=True)
        self.apart = max(float((one.grad - other.grad).abs().max()) for one, other in pairs)

    def on_train_batch_end(self, *given: Any) -> None:
        self.times.append(1e3 * (time.perf_counter() - self.start))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--processes', type=int, default=2, help='default: %(default)s')
    parser.add_argument('--neighbors', type=int, default=16, help='edges to every node (default: %(default)s)')
    parser.add_argument('--batch-size', type=int, default=256, help='nodes of each process (default: %(default)s)')
    parser.add_argument('--epochs', type=int, default=10, help='default: %(default)s')
    parser.add_argument('--seed', type=int, default=0, help='default: %(default)s')
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    lightning.seed_everything(arguments.seed)
    data = digits_graph(arguments.neighbors)
    classifier, watch = Classifier(data), Watch()
    trainer = lightning.Trainer(
        accelerator='cpu',
        devices=arguments.processes,
        strategy='ddp',
        max_epochs=arguments.epochs,
        callbacks=[watch],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(classifier, DataLoader(data.train, arguments.batch_size, shuffle=True))
    (found,) = trainer.test(classifier, DataLoader(data.test, arguments.batch_size), verbose=False)
    if trainer.is_global_zero:
        print(f'{trainer.world_size} processes, test accuracy {found["accuracy"]:.1%}')
        print(f'{statistics.median(watch.times):.1f} ms a step')
        print(f'Gradients of the first step are at most {watch.apart:.1e} from those of one process.')
        print(pygfuse.report(classifier.model))


if __name__ == '__main__':
    main()
