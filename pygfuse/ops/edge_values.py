"""Any function of an edge's ends and features, run by PyTorch's operators on chunks of edges.

What no kernel is written for still needs no memory that grows with edges times features: forward keeps the operands
alone, and backward computes the values of each chunk again, with a graph of that chunk. So does a backward pass that is
differentiated again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from pygfuse._lib.backends import edge_chunks_of
from pygfuse._lib.row_products import ROWS_AT_ONCE
from pygfuse.graph.csr import Csr
from pygfuse.mapping.edge_chunks import EdgeChunk, chunks_of, rows_of
from pygfuse.ops.edge_mlp.reference import largest_at, reduced
from pygfuse.ops.edges import Edges
from pygfuse.ops.listed import are_taken_at_once, ends_of
from pygfuse.ops.within_torch.autocast import in_types_of_forward
from pygfuse.ops.within_torch.batched import is_batched
from pygfuse.ops.within_torch.differentiable import differentiable
from pygfuse.ops.within_torch.intercepted import is_watched
from pygfuse.ops.within_torch.lazy_values import in_memory
from pygfuse.program.program import EDGE, SOURCE, TARGET

DTYPES = (torch.float32, torch.float64)
_OF_ROWS = (SOURCE, TARGET, EDGE)

# of operands as a chunk has them, and a generator of random numbers that are the chunk's own: [edges, *]
EdgeFunction = Callable[[Sequence[Tensor], torch.Generator | None], Tensor]


def edge_values(
    function: EdgeFunction,
    edges: Edges,
    operands: Sequence[tuple[str, Tensor]],
    width: int,
    widest: int,
    reduce: str,
    seed: int | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The values that a function gives for all edges, or their sum or maximum over the edges of each target.

    Among edges that tie in a maximum, the first by target has the gradient; where so few edges are taken at once that
    all have a row (`pygfuse.ops.listed.are_taken_at_once`), they share it.

    Args:
        function: What is computed of the edges of a chunk. It reads no other tensors.
        edges: The edges.
        operands: Its operands, each with where its rows reside: ``'source'``, ``'target'``, ``'edge'`` or ``'shared'``;
            those with values of float32 or float64 have one type.
        width: Numbers of an edge in its result.
        widest: Numbers of an edge in the widest value that it computes.
        reduce: ``'sum'``, ``'max'`` or ``'none'``.
        seed: Of random numbers; without one, the function gets no generator.
        dtype: The type of its result, if that is not the type of operands.

    Returns:
        ``[num_targets, width]``, or ``[edges, width]`` in the user's order.

    Example:
        >>> edges = Edges(torch.tensor([[0, 1, 2], [1, 1, 0]]), 3, 3)
        >>> x = torch.tensor([[1.0], [2.0], [3.0]])
        >>> operands = [('source', x), ('target', x)]
        >>> edge_values(lambda ends, _: (ends[0] - ends[1]).abs(), edges, operands, 1, 1, 'sum')
        tensor([[2.],
                [1.],
                [0.]])
    """
    tensors = [tensor for _, tensor in operands]
    dtype = next(tensor.dtype for tensor in tensors if tensor.is_floating_point()) if dtype is None else dtype
    if are_taken_at_once(edges, max(widest, width), dtype.itemsize) and not is_watched(tensors):
        return _at_once(function, edges, operands, width, reduce, seed)
    # what all edges share has a gradient that is a sum over the edges of a chunk
    is_summed = any(side not in _OF_ROWS and tensor.requires_grad for side, tensor in operands)
    most = ROWS_AT_ONCE if is_summed else None
    work = _Work(function, edges, tuple(side for side, _ in operands), width, widest, reduce, seed, most, dtype)
    return _EdgeValues.apply(work, edges.token, *tensors)[0]


def _at_once(
    function: EdgeFunction, edges: Edges, operands: Sequence[tuple[str, Tensor]], width: int, reduce: str,
    seed: int | None,
) -> Tensor:  # fmt: skip
    """The result by operators that autograd follows, with a row for each edge."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    reads = {side for side, _ in operands} | ({TARGET} if reduce != 'none' else set())
    with ends_of(edges, reads) as (sources, targets):
        places = {SOURCE: sources, TARGET: targets}
        rows = [tensor.index_select(0, places[side]) if side in places else tensor for side, tensor in operands]
        values = function(rows, generator).reshape(len(targets), width)
        return values if reduce == 'none' else reduced(values, targets, edges.num_targets, reduce)


@dataclasses.dataclass(frozen=True, eq=False)
class _Work:
    """What is done to each chunk: the arguments of `edge_values`, and the most edges of one, if fewer than usual."""

    function: EdgeFunction
    edges: Edges
    sides: tuple[str, ...]
    width: int
    widest: int
    reduce: str
    seed: int | None
    most: int | None
    dtype: torch.dtype

    def like(self, tensors: Sequence[Tensor]) -> Tensor:
        """No values, of the result's type and device."""
        return tensors[0].new_empty(0, dtype=self.dtype)

    @property
    def csr(self) -> Csr:
        """The edges by target."""
        return self.edges.graph().csr

    def chunks(self, like: Tensor) -> list[EdgeChunk]:
        """The chunks of values of a tensor's type."""
        size = edge_chunks_of(like.device).chunk_size(self.widest * like.element_size(), self.most)
        return chunks_of(self.csr, size)

    def values(self, rows: Sequence[Tensor], chunk: EdgeChunk) -> Tensor:
        """The values of a chunk, of its operands' rows."""
        device = rows[0].device
        generator = (
            None if self.seed is None else torch.Generator(device).manual_seed((self.seed + chunk.first) % 2**63)
        )
        return self.function(rows, generator).reshape(chunk.edges, self.width)

    def rows(self, chunk: EdgeChunk, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The operands as the edges of a chunk have them."""
        csr, of_edges = self.csr, slice(chunk.first, chunk.last)
        places = {SOURCE: csr.index[of_edges]}
        if TARGET in self.sides:
            places[TARGET] = rows_of(csr, chunk)
        if csr.edge_id is not None:
            places[EDGE] = csr.edge_id[of_edges]
        found = []
        for side, tensor in zip(self.sides, tensors, strict=True):
            if side in places:
                found.append(tensor.index_select(0, places[side]))
            else:
                found.append(tensor[of_edges] if side == EDGE else tensor)
        return found

    def leaves(self, chunk: EdgeChunk, tensors: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor]:
        """The operands' rows as the beginning of a graph."""
        rows = zip(self.rows(chunk, tensors), needed, strict=True)
        return [row.detach().requires_grad_(is_needed) for row, is_needed in rows]

    def grad_of_values(self, chunk: EdgeChunk, grad: Tensor, winners: Tensor, out: Tensor) -> Tensor:
        """The gradient of a chunk's values, of that of the result."""
        kernels, found = edge_chunks_of(grad.device), out[: chunk.edges]
        if self.reduce == 'none':
            kernels.take_edges(self.csr, chunk, grad, found)
        else:
            kernels.spread(self.csr, chunk, grad, winners if self.reduce == 'max' else None, found)
        return found

    def add(self, side: str, chunk: EdgeChunk, rows: Tensor, total: Tensor) -> None:
        """Adds what a chunk gives for an operand to what all give."""
        kernels = edge_chunks_of(rows.device)
        add = {SOURCE: kernels.add_to_sources, TARGET: kernels.add_to_targets, EDGE: kernels.put_edges}.get(side)
        if add is None:
            total.add_(rows)
            return
        width = rows.shape[1:].numel()
        add(self.csr, chunk, rows.reshape(chunk.edges, width).contiguous(), total.view(total.shape[0], width))

    def reference(self, tensors: Sequence[Tensor], winners: Tensor) -> Tensor:
        """The result with values of all edges at once, to be differentiated as often as one likes."""
        csr, like = self.csr, self.like(tensors)
        found = [self.values(self.rows(chunk, tensors), chunk) for chunk in self.chunks(like)]
        values = torch.cat(found) if found else like.new_zeros(0, self.width)
        if self.reduce == 'none':
            return values if csr.edge_id is None else torch.empty_like(values).index_copy(0, csr.edge_id.long(), values)
        out = values.new_zeros(self.edges.num_targets, self.width)
        return out.index_add(0, csr.rows(), values) if self.reduce == 'sum' else largest_at(winners, values, csr, out)


class _EdgeValues(torch.autograd.Function):
    """The values or what they are reduced to, and of a maximum where it is."""

    @staticmethod
    def forward(ctx, work: _Work, token: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        like, csr = work.like(tensors), work.csr
        kernels = edge_chunks_of(like.device)
        out = like.new_zeros(csr.num_edges if work.reduce == 'none' else work.edges.num_targets, work.width)
        winners = out.new_zeros(out.shape if work.reduce == 'max' else 0)
        for chunk in work.chunks(like):
            values = work.values(work.rows(chunk, tensors), chunk).contiguous()
            if work.reduce == 'max':
                kernels.keep_largest(csr, chunk, values, out, winners)
            else:
                (kernels.put_edges if work.reduce == 'none' else kernels.add_to_targets)(csr, chunk, values, out)
        ctx.save_for_backward(token, winners, *tensors)
        ctx.mark_non_differentiable(winners)
        ctx.work = work
        return out, winners

    @staticmethod
    @in_types_of_forward
    def backward(ctx, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        token, winners, *tensors = ctx.saved_tensors
        needed = ctx.needs_input_grad[2:]
        if is_batched(grad):
            found = differentiable(lambda *given: ctx.work.reference(given, winners), tensors, grad, needed)
        elif torch.is_grad_enabled():
            given = iter(_EdgeGradients.apply(ctx.work, needed, token, winners, grad, *tensors))
            found = [next(given) if is_needed else None for is_needed in needed]
        else:
            found = _gradients(ctx.work, needed, winners, grad, tensors)
        return None, None, *found


def _gradients(
    work: _Work, needed: Sequence[bool], winners: Tensor, grad: Tensor, tensors: Sequence[Tensor]
) -> list[Tensor | None]:
    """The gradients of the operands, chunk by chunk."""
    grad = grad.contiguous()
    found = [_zeros(tensor) if is_needed else None for tensor, is_needed in zip(tensors, needed, strict=True)]
    for chunk, of_values in _with_buffers(work, grad):
        leaves = work.leaves(chunk, tensors, needed)
        with torch.enable_grad():
            values = work.values(leaves, chunk)
        if not values.requires_grad:
            # computed of what is detached
            continue
        of_values = work.grad_of_values(chunk, grad, winners, of_values)
        _add_gradients(work, chunk, values, leaves, of_values, found)
    return found


def _zeros(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor, memory_format=torch.contiguous_format)


def _with_buffers(work: _Work, like: Tensor) -> Iterator[tuple[EdgeChunk, Tensor]]:
    """The chunks, each with memory for a value of its edges that all share."""
    chunks = work.chunks(like)
    buffer = like.new_empty(max((chunk.edges for chunk in chunks), default=0), work.width)
    for chunk in chunks:
        yield chunk, buffer


def _add_gradients(
    work: _Work, chunk: EdgeChunk, values: Sequence[Tensor] | Tensor, leaves: Sequence[Tensor],
    of_values: Sequence[Tensor] | Tensor, totals: Sequence[Tensor | None],
) -> None:  # fmt: skip
    """Adds the gradients that a chunk's values give for the operands that have a total."""
    wanted = [i for i, total in enumerate(totals) if total is not None]
    given = torch.autograd.grad(values, [leaves[i] for i in wanted], of_values, allow_unused=True)
    for i, of_rows in zip(wanted, given, strict=True):
        if of_rows is not None:
            work.add(work.sides[i], chunk, in_memory(of_rows), totals[i])


class _EdgeGradients(torch.autograd.Function):
    """`_gradients` of the operands that need one, to be differentiated again: chunk by chunk, too."""

    @staticmethod
    def forward(
        ctx, work: _Work, needed: Sequence[bool], token: Tensor, winners: Tensor, grad: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(token, winners, grad, *tensors)
        ctx.work, ctx.needed = work, needed
        return tuple(found for found in _gradients(work, needed, winners, grad, tensors) if found is not None)

    @staticmethod
    @in_types_of_forward
    def backward(ctx, *incoming: Tensor) -> tuple[Tensor | None, ...]:
        _, winners, grad, *tensors = ctx.saved_tensors
        work, needed = ctx.work, (ctx.needs_input_grad[4], *ctx.needs_input_grad[5:])
        if torch.is_grad_enabled() or any(map(is_batched, incoming)):
            found = _by_operators(work, ctx.needed, winners, grad, tensors, incoming, needed)
        else:
            found = _second_gradients(work, ctx.needed, winners, grad, tensors, incoming, needed)
        return None, None, None, None, *found


def _by_operators(
    work: _Work, first: Sequence[bool], winners: Tensor, grad: Tensor, tensors: Sequence[Tensor],
    incoming: Sequence[Tensor], needed: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """The gradients of `_gradients` as functions of everything again."""
    with_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        given = [tensor.view_as(tensor) for tensor in (grad, *tensors)]
        given = [t if t.requires_grad or not t.is_floating_point() else t.requires_grad_() for t in given]
        of = [tensor for tensor, is_needed in zip(given[1:], first, strict=True) if is_needed]
        out = work.reference(given[1:], winners)
        if not out.requires_grad:
            return [None] * len(needed)
        found = torch.autograd.grad(out, of, given[0], create_graph=True, allow_unused=True, materialize_grads=True)
        wanted = [tensor for tensor, is_needed in zip(given, needed, strict=True) if is_needed]
        pairs = [(one, of_one) for one, of_one in zip(found, incoming, strict=True) if one.requires_grad]
        second = iter(
            torch.autograd.grad(
                [one for one, _ in pairs], wanted, [of_one for _, of_one in pairs], create_graph=with_graph,
                allow_unused=True,
            )
        )  # fmt: skip
    return [next(second) if is_needed else None for is_needed in needed]


def _second_gradients(
    work: _Work, first: Sequence[bool], winners: Tensor, grad: Tensor, tensors: Sequence[Tensor],
    incoming: Sequence[Tensor], needed: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """The gradients of what `_gradients` gives: of the gradient of the result, and of the operands."""
    grad = grad.contiguous()
    given = iter(incoming)
    of_firsts = [next(given) if is_needed else tensor for tensor, is_needed in zip(tensors, first, strict=True)]
    of_grad = _zeros(grad) if needed[0] else None
    found = [_zeros(tensor) if is_needed else None for tensor, is_needed in zip(tensors, needed[1:], strict=True)]
    both = [is_first or is_second for is_first, is_second in zip(first, needed[1:], strict=True)]
    for chunk, of_values in _with_buffers(work, grad):
        leaves = work.leaves(chunk, tensors, both)
        of_values = work.grad_of_values(chunk, grad, winners, of_values).detach().requires_grad_()
        with torch.enable_grad():
            values = work.values(leaves, chunk)
            if not values.requires_grad:
                continue
            wanted = [leaf for leaf, is_first in zip(leaves, first, strict=True) if is_first]
            gradients = torch.autograd.grad(values, wanted, of_values, create_graph=True, allow_unused=True)
        rows = [row for row, is_first in zip(work.rows(chunk, of_firsts), first, strict=True) if is_first]
        pairs = [(one, row) for one, row in zip(gradients, rows, strict=True) if one is not None and one.requires_grad]
        outputs, of_outputs = [one for one, _ in pairs], [row for _, row in pairs]
        if not outputs:
            continue
        if of_grad is not None:
            (of_chunk,) = torch.autograd.grad(outputs, [of_values], of_outputs, retain_graph=True, allow_unused=True)
            if of_chunk is not None:
                _add_to_result(work, chunk, in_memory(of_chunk), winners, of_grad)
        _add_gradients(work, chunk, outputs, leaves, of_outputs, found)
    return [of_grad, *found]


def _add_to_result(work: _Work, chunk: EdgeChunk, rows: Tensor, winners: Tensor, total: Tensor) -> None:
    """Adds rows of a chunk's edges where forward put, or added, their values."""
    if work.reduce == 'max':
        rows = rows * work.grad_of_values(chunk, torch.ones_like(total), winners, torch.empty_like(rows))
    work.add(EDGE if work.reduce == 'none' else TARGET, chunk, rows, total)
