"""Learns to evaluate circuits of gates with an N-ary Tree-LSTM that shares what gates begin with alike.

An N-ary Tree-LSTM (Tai et al., 2015, section 3.2) has weights for each place among a node's ordered children, so the
order of neighbours counts. Gates whose inputs begin alike share the sums of these beginnings: the tree of prefixes of
Jia et al. (2020), Theorem 2. A gate of three ordered inputs computes "if a then b else c", its negation, or the
majority. Both runs start from the same parameters; one sums over each gate's own inputs.

    python examples/tree_lstm.py --gates 2000 --epochs 40
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import torch
import torch.nn.functional as F
from torch import Tensor

from pygfuse.hag.prefix_tree import PrefixTree, find_prefix_tree

INPUTS, KINDS = 3, 4  # a gate's inputs; a signal, and three kinds of gates


class TreeLSTM(torch.nn.Module):
    """One step for all nodes: children's states and memories in, new ones out.

    Args:
        features: Width of the nodes' features.
        channels: Width of states and memories.
    """

    def __init__(self, features: int, channels: int) -> None:
        super().__init__()
        self.channels = channels
        # gates: input, output, proposal, and one to forget each child
        width = (3 + INPUTS) * channels
        self.of_node = torch.nn.Linear(features, width)
        self.of_child = torch.nn.ModuleList(torch.nn.Linear(channels, width, bias=False) for _ in range(INPUTS))

    def forward(
        self, x: Tensor, state: Tensor, memory: Tensor, children: Tensor, sums: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`sums` are the children's parts of the gates; `children` ``[nodes, INPUTS]``, the last row for none."""
        gates = (self.of_node(x) + sums).view(len(x), 3 + INPUTS, self.channels)
        given, shown, proposed = gates[:, 0].sigmoid(), gates[:, 1].sigmoid(), gates[:, 2].tanh()
        forgotten = gates[:, 3:].sigmoid()
        kept = (forgotten * F.pad(memory, (0, 0, 0, 1))[children]).sum(dim=1)
        memory = given * proposed + kept
        return shown * memory.tanh(), memory

    def shared_sums(self, tree: PrefixTree, state: Tensor) -> Tensor:
        """The children's parts of the gates, the beginnings of lists computed once."""

        def cell(level: int, inputs: Tensor, sums: Tensor) -> Tensor:
            return sums + self.of_child[level](state[inputs])

        return tree.run(cell, state.new_zeros(1, (3 + INPUTS) * self.channels))

    def own_sums(self, children: Tensor, state: Tensor) -> Tensor:
        """The same, each node for itself."""
        padded = F.pad(state, (0, 0, 0, 1))
        return sum(linear(padded[children[:, place]]) for place, linear in enumerate(self.of_child))


class Evaluator(torch.nn.Module):
    """As many steps as the circuit is deep, then a score for each node's value."""

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        self.cell = TreeLSTM(KINDS + 1, channels)
        self.head = torch.nn.Linear(channels, 1)
        self.depth = depth

    def forward(self, x: Tensor, children: Tensor, tree: PrefixTree | None) -> Tensor:
        state = memory = x.new_zeros(len(x), self.cell.channels)
        for _ in range(self.depth + 1):
            sums = self.cell.own_sums(children, state) if tree is None else self.cell.shared_sums(tree, state)
            state, memory = self.cell(x, state, memory, children, sums)
        return self.head(state).flatten()


def circuit(signals: int, gates: int, depth: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, edges by target, children and values of a circuit in layers; gates prefer the first of a layer."""
    generator = torch.Generator().manual_seed(seed)
    values, kinds = [torch.rand(signals, generator=generator) < 0.5], [torch.zeros(signals, dtype=torch.int64)]
    children = [torch.full((signals, INPUTS), -1)]
    first, size = 0, signals
    for _ in range(depth):
        popular = torch.rand(gates // depth, INPUTS, generator=generator).square()
        inputs = first + (popular * min(size, 24)).long()
        a, b, c = torch.cat(values)[inputs].unbind(dim=1)
        chosen = torch.where(a, b, c)
        kind = torch.randint(1, KINDS, (gates // depth,), generator=generator)
        majority = a.int() + b.int() + c.int() > 1
        values.append(torch.where(kind == 1, chosen, torch.where(kind == 2, ~chosen, majority)))
        kinds.append(kind)
        children.append(inputs)
        first, size = first + size, gates // depth
    kind, value, child = torch.cat(kinds), torch.cat(values).float(), torch.cat(children)
    is_signal = kind == 0
    x = torch.cat([F.one_hot(kind, KINDS).float(), (value * is_signal)[:, None]], dim=1)
    targets = torch.nonzero(~is_signal).flatten().repeat_interleave(INPUTS)
    edge_index = torch.stack([child[~is_signal].flatten(), targets])
    return x, edge_index, child, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--gates', type=int, default=2000, help='default: 2000')
    parser.add_argument('--depth', type=int, default=3, help='layers of gates (default: 3)')
    parser.add_argument('--channels', type=int, default=32, help='default: 32')
    parser.add_argument('--epochs', type=int, default=40, help='default: 40')
    parser.add_argument('--seed', type=int, default=0, help='default: 0')
    arguments = parser.parse_args()
    x, edge_index, children, value = circuit(32, arguments.gates, arguments.depth, arguments.seed)
    children = torch.where(children < 0, len(x), children)
    tree = find_prefix_tree(edge_index, len(x))
    torch.manual_seed(arguments.seed)
    model = Evaluator(arguments.channels, arguments.depth)
    runs = {}
    for name, given in (('own inputs', None), ('shared', tree)):
        twin = copy.deepcopy(model)
        optimizer, losses, seconds = torch.optim.Adam(twin.parameters(), lr=0.01), [], []
        for _ in range(arguments.epochs):
            start = time.perf_counter()
            optimizer.zero_grad()
            scores = twin(x, children, given)
            loss = F.binary_cross_entropy_with_logits(scores, value)
            loss.backward()
            optimizer.step()
            seconds.append(time.perf_counter() - start)
            losses.append(loss.item())
        right = float(((scores > 0) == (value > 0.5)).float().mean())
        runs[name] = losses
        milliseconds = 1e3 * statistics.median(seconds)
        print(
            f'{name:<12}loss {losses[0]:.4f} -> {losses[-1]:.4f}, accuracy {right:.1%}, {milliseconds:.1f} ms per epoch'
        )
    apart = max(abs(a - b) for a, b in zip(*runs.values(), strict=True))
    steps = tree.num_steps
    print(f'steps {steps.before:,} -> {steps.after:,} ({steps.ratio:.2f}x fewer); losses differ by at most {apart:.1e}')


if __name__ == '__main__':
    main()
