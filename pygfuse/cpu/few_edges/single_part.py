"""Walks of few edges: one part, on the calling thread. Nothing is cut, nothing combined, and no mapping chosen.

What is decided of such a call follows from its program and its widths, and is decided once.
"""

from __future__ import annotations

import array
import functools

import torch
from torch import Tensor

from pygfuse._lib.modes import Modes, modes, nothing_is_said
from pygfuse.call.call import Call
from pygfuse.codegen import arguments as shared
from pygfuse.codegen.packing import Packed, packed_when_met_again
from pygfuse.cpu import kernels, row_tiling
from pygfuse.cpu.compilation.kernel import Kernel
from pygfuse.cpu.compilation.launch import Launch
from pygfuse.cpu.edges.walked_edges import THREAD_WORK, Walked, needs_ids, nothing
from pygfuse.cpu.operands import NO_DRAWS, draws_of, operands_of, rows_gathered
from pygfuse.cpu.row_sums import no_states
from pygfuse.cpu.walks.arguments import NumRows
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping import records
from pygfuse.mapping.cost_model import edge_cost
from pygfuse.mapping.records import Shape
from pygfuse.program.program import SOURCE, TARGET, BoundProgram

# what a row takes beside its edges, in edges: it is written, and read once
ROW_WORK = 0.25


def is_single_part(graph: Graph, row_bytes: int) -> bool:
    """Whether walks are one part each: they are worth less than two threads, and nobody says otherwise.

    Args:
        graph: The graph.
        row_bytes: Bytes of a row of channels.
    """
    said = None if nothing_is_said() else modes()
    if said is not None and _decides(said):
        return False
    work = graph.num_edge_ids + ROW_WORK * (graph.num_targets + graph.num_sources)
    if work * edge_cost(row_bytes) >= 2 * THREAD_WORK:
        return False
    # a mapping may have been measured to be best
    return records.TABLE.is_empty() or records.mapping_of(Shape.of(graph.csr)) is None


def _decides(said: Modes) -> bool:
    """Whether somebody decides or collects how walks are cut."""
    is_cut = said.mapping is not None or said.group_sizes is not None
    return is_cut or said.used_once or said.shapes is not None


def single_part_of(call: Call) -> SinglePart:
    """What is decided of calls like this one."""
    return decided(call.bound, call.heads, call.channels, call.reduce, call.like.dtype)


class SinglePart:
    """The walks of calls of one program, over rows of one width and type.

    Args:
        bound: The program, bound to its operands.
        heads, channels: Of the rows.
        reduce: How messages are reduced.
        dtype: The type of the operands.
    """

    def __init__(self, bound: BoundProgram, heads: int, channels: int, reduce: str, dtype: torch.dtype) -> None:
        shape = dtype, heads, channels
        self._softmax, self._reduce = bound.softmax, reduce
        least = row_tiling.least_edges(bound)
        self._tiling = row_tiling.tiling(*shape, row_tiling.FORWARD_REGISTERS, bound.separable, None, least)
        self.backward_tiling = row_tiling.tiling(*shape, row_tiling.BACKWARD_REGISTERS, False, None, least)
        self._forward = kernels.forward_kernel(bound, self._tiling, reduce)
        # the adjoint of a sum or mean of rows sums along the transpose
        self._transposed = kernels.forward_kernel(bound, self._tiling, 'sum')
        self._row = shared.Row(heads, heads * channels)
        self._states = no_states(dtype)
        # by what decides the types of arguments beside the program and its operands
        self._launches: dict[tuple, Launch] = {}

    def forward(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """As `pygfuse.cpu.backend.forward`."""
        num_targets, like = call.graph.num_targets, call.like
        out, statistics = like.new_empty(num_targets, call.width), None
        if self._softmax:
            statistics = like.new_empty(num_targets, 2, call.heads)
        elif self._reduce in ('max', 'min'):
            statistics = like.new_empty(num_targets, call.width)
        results = shared.Results(out, statistics)
        self._run(self._forward, call.graph.csr, operands_of(call, TARGET), draws_of(call), needs_ids(call), results)
        return out, statistics

    def sum_transposed(self, graph: Graph, grad_out: Tensor) -> Tensor:
        """The adjoint of a sum of sources' rows."""
        found = grad_out.new_empty(graph.num_sources, self._row.width)
        self._run(self._transposed, graph.csc, rows_gathered(grad_out), NO_DRAWS, False, shared.Results(found, None))
        return found

    def _run(
        self,
        kernel: Kernel,
        csr: Csr,
        operands: shared.Operands,
        draws: shared.Draws,
        with_ids: bool,
        results: shared.Results,
    ) -> None:
        tiling = self._tiling
        edges = packed_when_met_again(
            csr.memo,
            ('one part', self, with_ids),
            lambda: shared.WalkedEdges(
                tiling.tiles, _bounds_of(csr), csr.indptr, csr.index, csr.edge_id if with_ids else None
            ),
        )
        arguments = edges, operands, self._row, NumRows(csr.num_rows), draws, results, self._states
        if type(edges) is not Packed:
            kernel(tiling.count, *arguments, threads=1)
            return
        # equal kinds are one object
        key = kernel, id(edges.kinds), draws is NO_DRAWS
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = kernel.untested(arguments)
        launch.run(launch.pack(tiling.count, *arguments), 1)

    def walked(self, call: Call, side: str) -> Walked:
        """The edges that a walk of the adjoint takes, by rows of a side."""
        csr = call.graph.csc if side == SOURCE else call.graph.csr
        bounds = _bounds_of(csr)
        return Walked(csr, self.backward_tiling, None, bounds, nothing(csr.indptr.dtype), needs_ids(call), 1, 0)


decided = functools.lru_cache(maxsize=1024)(SinglePart)


def _bounds_of(csr: Csr) -> Tensor:
    """The bounds of all edges as one part, laid out as those of a `pygfuse.mapping.mapping.Cut`."""
    found = csr.memo.get(('bounds of one part',))
    if found is None:
        bounds = torch.frombuffer(array.array('q', (0, 0, csr.num_rows, csr.num_edges)), dtype=torch.int64)
        found = csr.memo.put(('bounds of one part',), bounds)
    return found
