"""Sequences of neighbours with common beginnings: HAGs for aggregations in which the order counts.

"Redundancy-Free Computation Graphs for Graph Neural Networks" (Jia et al.), section 3.1 and Theorem 2. An aggregation
step after the first i neighbours depends on these alone, so targets whose lists begin alike share it. The tree of all
prefixes has the fewest steps that are possible; a level of it is one batched step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pygfuse.graph.graph import Graph
from pygfuse.hag.hag import BeforeAfter


@dataclasses.dataclass(frozen=True, eq=False)
class PrefixTree:
    """The prefixes of the ordered neighbour lists of a graph.

    Attributes:
        inputs: For each level the source that each of its steps takes, ascending, int64; `num_sources` stands for
            padding.
        parents: For each level the step of the level before that each of its steps follows, int64; on the first level
            all are 0, the empty list.
        level: The number of steps after which each target's list ends, [targets], int64.
        last: Which step of that level it is, [targets]; 0 for an empty list.
        num_sources: Number of sources.
        num_plain_steps: Steps without the tree: one for each place of each list, padding included.
    """

    inputs: list[Tensor]
    parents: list[Tensor]
    level: Tensor
    last: Tensor
    num_sources: int
    num_plain_steps: int

    @property
    def depth(self) -> int:
        """Length of the longest list."""
        return len(self.inputs)

    @property
    def num_steps(self) -> BeforeAfter:
        """Steps of all lists, and distinct prefixes."""
        return BeforeAfter(self.num_plain_steps, sum(inputs.numel() for inputs in self.inputs))

    @property
    def num_aggregations(self) -> BeforeAfter:
        """Binary aggregations of the paper's count: steps but for the first of each list."""
        lists = int((self.level > 0).sum())
        first = self.inputs[0].numel() if self.inputs else 0
        steps = self.num_steps
        return BeforeAfter(steps.before - lists, steps.after - first)

    def cover(self) -> list[list[int]]:
        """The tree expanded back: the list of each target."""
        found = []
        for depth, step in zip(self.level.tolist(), self.last.tolist(), strict=True):
            taken = []
            for level in range(depth - 1, -1, -1):
                taken.append(int(self.inputs[level][step]))
                step = int(self.parents[level][step])
            found.append(taken[::-1])
        return found

    def run(self, cell: Callable[[int, Tensor, Any], Any], initial: Any) -> Any:
        """Runs a recurrent cell over all lists, a level at a time.

        Args:
            cell: ``cell(level, inputs, states)``: the states after one more step. `inputs` are the sources taken,
                `states` tensors of one row a step, or a tuple of such.
            initial: The state of the empty list, with one row.

        Returns:
            The state at the end of each target's list, a row each.

        Example:
            >>> tree = find_prefix_tree(torch.tensor([[2, 3, 4, 2, 3], [0, 0, 0, 1, 1]]))
            >>> x = torch.arange(5.0).view(5, 1)
            >>> tree.run(lambda level, inputs, states: 10 * states + x[inputs], torch.zeros(1, 1)).flatten()
            tensor([234.,  23.,   0.,   0.,   0.])
        """
        states = initial
        ended = [(torch.nonzero(self.level == 0).flatten(), _taken(states, self.last[self.level == 0]))]
        for level, (inputs, parents) in enumerate(zip(self.inputs, self.parents, strict=True)):
            states = cell(level, inputs, _taken(states, parents))
            here = self.level == level + 1
            if bool(here.any()):
                ended.append((here.nonzero().flatten(), _taken(states, self.last[here])))
        targets = torch.cat([targets for targets, _ in ended])
        return _joined([rows for _, rows in ended], torch.argsort(targets))


def _taken(states: Any, rows: Tensor) -> Any:
    if isinstance(states, tuple):
        return tuple(_taken(state, rows) for state in states)
    return states.index_select(0, rows)


def _joined(parts: list[Any], order: Tensor) -> Any:
    if isinstance(parts[0], tuple):
        return tuple(_joined(list(part), order) for part in zip(*parts, strict=True))
    return torch.cat(parts).index_select(0, order)


def find_prefix_tree(edge_index: Any, num_nodes: int | tuple[int, int] | None = None, pad: bool = False) -> PrefixTree:
    """The tree of the prefixes of the targets' neighbour lists, each in the order of its edges.

    Args:
        edge_index: Any adjacency that PyG takes, or a `Graph`.
        num_nodes: Number of nodes, or of sources and of targets; by default one more than the largest.
        pad: Whether all lists are continued by padding to the length of the longest, as PyG's ``LSTMAggregation``
            continues them by zeros.

    Returns:
        The tree.

    Raises:
        ValueError: If `edge_index` is no adjacency or names nodes that are not there.

    Example:
        >>> edge_index = torch.tensor([[2, 3, 4, 2, 3, 5], [0, 0, 0, 1, 1, 1]])
        >>> tree = find_prefix_tree(edge_index)
        >>> tree.num_steps
        BeforeAfter(before=6, after=4)
        >>> tree.cover()[:2]
        [[2, 3, 4], [2, 3, 5]]
    """
    sizes = num_nodes if isinstance(num_nodes, tuple) else (num_nodes, num_nodes)
    graph = Graph.of(edge_index, num_sources=sizes[0], num_targets=sizes[1])
    csr, degree = graph.csr, graph.degree.long()
    longest = graph.max_degree
    length = torch.full_like(degree, longest) if pad else degree
    begin = csr.indptr[:-1].long()
    # the targets whose lists go on, and where each is
    going, step = torch.arange(graph.num_targets), torch.zeros(graph.num_targets, dtype=torch.int64)
    last, symbols = torch.zeros_like(step), graph.num_sources + 1
    inputs, parents = [], []
    for level in range(longest):
        still = length[going] > level
        going, step = going[still], step[still]
        taken = torch.full_like(going, graph.num_sources)
        has_more = degree[going] > level
        taken[has_more] = csr.index[begin[going[has_more]] + level].long()
        keys, step = torch.unique(step * symbols + taken, return_inverse=True)
        inputs.append(keys % symbols)
        parents.append(keys // symbols)
        last[going] = step
    return PrefixTree(inputs, parents, length, last, graph.num_sources, int(length.sum()))


def lstm_aggregate(tree: PrefixTree, x: Tensor, lstm: torch.nn.LSTM) -> Tensor:
    r"""The hidden state of an LSTM at the end of each target's list, ``[targets, hidden]``.

    With a tree that was made with ``pad=True`` this is what PyG's ``LSTMAggregation`` computes. The part of the gates
    that comes from the input is computed once for a source, not once for an edge.

    Args:
        tree: The prefixes.
        x: ``[sources, channels]``, of the type of the LSTM's parameters.
        lstm: One layer, in one direction, without projection.

    Raises:
        ValueError: If `x` has not a row of the LSTM's input for each source, or `lstm` is none of these.

    Example:
        >>> tree = find_prefix_tree(torch.tensor([[2, 3, 4, 2, 3, 5], [0, 0, 0, 1, 1, 1]]))
        >>> lstm_aggregate(tree, torch.randn(6, 8), torch.nn.LSTM(8, 16)).shape
        torch.Size([6, 16])
    """
    if lstm.num_layers > 1 or lstm.bidirectional or lstm.proj_size:
        raise ValueError(f"Expected 'lstm' of one layer, in one direction, without projection (got {lstm})")
    if x.shape != (tree.num_sources, lstm.input_size):
        raise ValueError(f"Expected 'x' of shape [{tree.num_sources}, {lstm.input_size}] (got {list(x.shape)})")
    bias = (lstm.bias_ih_l0 + lstm.bias_hh_l0) if lstm.bias else x.new_zeros(4 * lstm.hidden_size)
    # the row of padding is that of the input zero
    of_inputs = torch.cat([x @ lstm.weight_ih_l0.t(), x.new_zeros(1, 4 * lstm.hidden_size)]) + bias

    def cell(level: int, inputs: Tensor, states: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        hidden, memory = states
        gates = torch.addmm(of_inputs.index_select(0, inputs), hidden, lstm.weight_hh_l0.t())
        given, forgotten, proposed, shown = gates.chunk(4, dim=1)
        memory = forgotten.sigmoid() * memory + given.sigmoid() * proposed.tanh()
        return shown.sigmoid() * memory.tanh(), memory

    zeros = x.new_zeros(1, lstm.hidden_size)
    return tree.run(cell, (zeros, zeros))[0]
