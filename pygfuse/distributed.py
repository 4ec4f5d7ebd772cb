"""Full-batch training of a graph whose nodes are divided among processes: convolutions as they are, halos exchanged.

Each process holds the features of its own nodes and the edges into them. What these edges read of other processes'
nodes (the halo) comes by one all-to-all before a convolution, and its gradients go back by one after it. Nothing is
sampled and nothing is stale: losses and gradients are those of one process with the whole graph.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch_geometric.utils import add_remaining_self_loops, scatter

from pygfuse.ops.within_torch.lazy_values import given_values

__all__ = ['Partition']


class Partition:
    r"""The share of a graph that belongs to this process: its own nodes, the edges into them, and the halo.

    Every process of the group makes its own, at the same time; they tell each other which nodes they need. A
    convolution is called on own nodes and halo, and the rows of own nodes are taken of what it returns::

        x = conv(partition.exchange(x), partition.edge_index)[: partition.num_own]

    This is exact for convolutions that take one step along the edges, whatever they do on it (attention, edge features,
    any aggregation), as all edges into a node are in one place. It is not for those that take several steps in one call
    (``APPNP``, ``ChebConv``, ``SGConv``, ``TAGConv``, ...), nor for what is computed over all nodes or edges (batch
    normalisation, pooling). ``GCNConv`` reads degrees of sources: give it ``normalize=False`` and what `gcn_norm`
    returns.

    Args:
        edge_index: ``[2, E]``, sources in row 0 and targets in row 1, by their numbers in the whole graph. Edges into
            nodes of other processes are left out, so that a process needs to read no edges but its own.
        part: The process that each node of the whole graph belongs to, ``[num_nodes]``, integers, the same in all
            processes: of METIS, or any other.
        group: The group of processes; None stands for all.

    Attributes:
        own: Numbers of this process' nodes in the whole graph, ascending.
        halo: Numbers of other processes' nodes that edges into these come from, by process, ascending within one.
        num_own, num_nodes: How many own nodes there are, and nodes with the halo.
        edge_id: Places in the given ``edge_index`` of the edges that were kept: ``edge_attr[partition.edge_id]``.
        edge_index: The kept edges, by local numbers: own nodes first, then the halo.
        num_sent: Rows that an `exchange` sends to other processes; its backward sends ``len(halo)``.
        bytes_sent: Bytes of features and gradients that this process has sent so far.

    Raises:
        ValueError: If ``edge_index`` or ``part`` is not of the kind that is expected, or processes were given different
            parts.

    Example:
        >>> import torch.distributed as dist
        >>> dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 0, 1]])
        >>> partition = Partition(edge_index, torch.tensor([0, 0, 0]))
        >>> partition.own, partition.halo
        (tensor([0, 1, 2]), tensor([], dtype=torch.int64))
        >>> partition.exchange(torch.ones(3, 4)).shape
        torch.Size([3, 4])
        >>> dist.destroy_process_group()
    """

    def __init__(self, edge_index: Tensor, part: Tensor, group: dist.ProcessGroup | None = None) -> None:
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        _check(edge_index, part, size)
        self._group = group
        self.bytes_sent = 0
        self.own = (part == rank).nonzero().flatten()
        self.edge_id = (part[edge_index[1]] == rank).nonzero().flatten()
        edges = edge_index[:, self.edge_id]
        foreign = edges[0].unique()
        foreign = foreign[part[foreign] != rank]
        self.halo = foreign[part[foreign].argsort(stable=True)]
        self.num_own, self.num_nodes = self.own.numel(), self.own.numel() + self.halo.numel()
        # local numbers by those of the whole graph
        place = torch.empty(part.numel(), dtype=torch.int64, device=edge_index.device)
        place[torch.cat([self.own, self.halo])] = torch.arange(self.num_nodes, device=edge_index.device)
        self.edge_index = place[edges]
        self._receive_counts = part[self.halo].bincount(minlength=size).tolist()
        wanted = self._wanted_by_others(edge_index.device)
        if not bool((wanted < part.numel()).all()) or not bool((part[wanted] == rank).all()):
            raise ValueError(
                "Expected 'part' to be the same in all processes (others want nodes of this one that belong elsewhere)"
            )
        self._send_rows = place[wanted]
        self.num_sent = self._send_rows.numel()

    def _wanted_by_others(self, device: torch.device) -> Tensor:
        """The nodes that other processes need from this one, by process; notes how many each does."""
        counts = torch.tensor(self._receive_counts, device=device)
        wanted = torch.empty_like(counts)
        dist.all_to_all_single(wanted, counts, group=self._group)
        self._send_counts = wanted.tolist()
        nodes = torch.empty(sum(self._send_counts), dtype=torch.int64, device=device)
        dist.all_to_all_single(nodes, self.halo, self._send_counts, self._receive_counts, group=self._group)
        return nodes

    def exchange(self, x: Tensor) -> Tensor:
        """The rows of own nodes, followed by those of the halo; gradients go the same way back and are added up.

        All processes of the group have to call it, and backward, in the same order.

        Args:
            x: One row for each own node, ``[num_own, ...]``.

        Returns:
            ``[num_nodes, ...]``.

        Raises:
            ValueError: If ``x`` has another number of rows.
        """
        if x.shape[:1] != (self.num_own,):
            raise ValueError(f"Expected 'x' to have {self.num_own} rows, those of own nodes (got shape {[*x.shape]})")
        return torch.cat(
            [x, _AllToAll.apply(x.index_select(0, self._send_rows), self, self._send_counts, self._receive_counts)]
        )

    def gcn_norm(
        self, edge_weight: Tensor | None = None, improved: bool = False, dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        r"""The edges with self-loops, and their symmetric normalisation by degrees in the whole graph.

        Args:
            edge_weight: One number for each edge of ``edge_index``, or None for ones.
            improved: As in ``GCNConv``: whether self-loops that are put in beside edge weights have weight 2.
            dtype: Type of the ones; None stands for torch's default.

        Returns:
            Edges and weights for ``GCNConv(..., normalize=False)``, which then computes what it does on the whole graph
            with ``normalize=True``.
        """
        fill = 2.0 if improved else 1.0
        edge_index, weight = add_remaining_self_loops(self.edge_index, edge_weight, fill, self.num_own)
        if weight is None:
            weight = torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device)
        degree = scatter(weight, edge_index[1], dim_size=self.num_own, reduce='sum')
        factor = degree.pow(-0.5)
        factor = self.exchange(factor.masked_fill(factor == float('inf'), 0.0))
        return edge_index, factor[edge_index[0]] * weight * factor[edge_index[1]]

    def __repr__(self) -> str:
        return f'Partition(num_own={self.num_own}, halo={len(self.halo)}, edges={len(self.edge_id)})'


class _AllToAll(torch.autograd.Function):
    """Rows to other processes, and others' rows from them; backward is the same with both exchanged."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, partition: Partition, sent: list[int], received: list[int]) -> Tensor:
        ctx.partition, ctx.sent, ctx.received = partition, sent, received
        out = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), received, sent, group=partition._group)
        partition.bytes_sent += rows.numel() * rows.element_size()
        return out

    @staticmethod
    @given_values
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _AllToAll.apply(grad, ctx.partition, ctx.received, ctx.sent), None, None, None


def _check(edge_index: Tensor, part: Tensor, size: int) -> None:
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64:
        raise ValueError(
            f"Expected 'edge_index' to be of shape [2, E] and type torch.int64 (got shape {[*edge_index.shape]}, "
            f'{edge_index.dtype})'
        )
    if part.dim() != 1 or part.is_floating_point() or part.dtype == torch.bool:
        raise ValueError(f"Expected 'part' to be one integer for each node (got shape {[*part.shape]}, {part.dtype})")
    for name, values, most in (('part', part, size), ('edge_index', edge_index, part.numel())):
        if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < most:
            got = f'{int(values.min())} to {int(values.max())}'
            raise ValueError(f"Expected '{name}' to hold numbers from 0 to {most - 1} (got {got})")
