"""Messages of any other kind, taken on chunks of edges by PyTorch's operators."""

from __future__ import annotations

import dataclasses
import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import EDGE, OF_ALL_EDGES, SHARED, Node, computed_on_edges, is_brought, mapped, text
from pygfuse.compiler.refusal import Refused
from pygfuse.ops import Edges, new_seed
from pygfuse.ops.degrees import mean_of
from pygfuse.ops.edge_mlp import why_no_edge_chunks
from pygfuse.ops.edge_values import DTYPES, edge_values

# numbers of an edge that are computed of others in memory without chunks
_NARROW = 4
# a reduction by another one
_BY = {'sum': 'sum', 'mean': 'sum', 'max': 'max', 'min': 'max'}


@dataclasses.dataclass(frozen=True)
class Chunked:
    """Values of edges, of which a chunk at a time is in memory.

    Attributes:
        message: The values.
        reduction: The value of their reduction, if they are reduced.
        operands: What they are computed of, by name: values of nodes, shared ones, and what the call brings for edges.
        order: The values of edges in the order in which they are computed.
    """

    message: Node
    reduction: Node | None
    operands: dict[str, Node]
    order: tuple[Node, ...]

    title = 'operators on chunks of edges'

    @property
    def text(self) -> str:
        """The values, for people."""
        return text(self.message)

    def why_not(self, edges: Edges, dtype: torch.dtype) -> str | None:
        """The reason, if any, for which edges like these and values of a type have no such form."""
        return why_no_edge_chunks(dtype)

    def run(self, edges: Edges, operands: dict[str, Tensor]) -> tuple[Tensor | None, Tensor | None]:
        """The reduction, or the values themselves."""
        if self.is_small:
            # chunks would take longer than the few numbers, and keep as many
            out = self._values(list(operands.values()), None)
            return None, out.view(out.shape[0], *self.message.shape)
        reduce = 'none' if self.reduction is None else self.reduction.attributes['reduce']
        sides = [(self.operands[name].residency, tensor) for name, tensor in operands.items()]
        widest = max((one.width for one in self.order), default=self.message.width)
        seed = int(new_seed()) if self.draws else None
        function = self._negated if reduce == 'min' else self._values
        out = edge_values(
            function, edges, sides, self.message.width, widest, _BY.get(reduce, reduce), seed, self.message.dtype
        )
        if reduce == 'mean':
            out = mean_of(out, edges)
        if reduce == 'min':
            out = -out
        out = out.view(out.shape[0], *self.message.shape)
        return (None, out) if self.reduction is None else (out, None)

    @property
    def draws(self) -> bool:
        """Whether it drops some of its values."""
        return any(node.op == 'dropout' for node in self.order)

    @functools.cached_property
    def is_small(self) -> bool:
        """Whether these are few numbers of an edge, computed of others in memory."""
        are_of_edges = all(operand.residency in (EDGE, SHARED) for operand in self.operands.values())
        are_narrow = all(one.width <= _NARROW and one.op != 'dropout' for one in self.order)
        return self.reduction is None and are_of_edges and are_narrow

    def _negated(self, rows: list[Tensor], generator: torch.Generator | None) -> Tensor:
        return -self._values(rows, generator)

    def _values(self, rows: list[Tensor], generator: torch.Generator | None) -> Tensor:
        found = {id(node): row for node, row in zip(self.operands.values(), rows, strict=True)}
        for node in self.order:
            given = mapped(node.args, lambda parent: found[id(parent)])
            if node.op == 'dropout':
                found[id(node)] = _dropped(*given, **node.attributes, generator=generator)
            else:
                found[id(node)] = OPERATIONS[node.op].run(*given, **node.attributes)
        return found[id(self.message)]


def _dropped(x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """Dropout by a generator, which gives the same in backward."""
    if p >= 1.0:
        return F.dropout(x, 1.0)
    kept = torch.rand(x.shape, generator=generator, device=x.device) >= p
    return torch.where(kept, x / (1.0 - p), 0.0)


def chunked(message: Node, reduction: Node | None = None) -> Chunked:
    """The form of values of edges that are computed by PyTorch's operators.

    Args:
        message: The values.
        reduction: The value of their reduction; None: they themselves are wanted.

    Raises:
        Refused: If they need all edges at once, or have no such form.

    Example:
        >>> from pygfuse.compiler.ir.values import leaf, value
        >>> x_i, x_j = leaf('x_i', 'target', (4,), torch.float32), leaf('x_j', 'source', (4,), torch.float32)
        >>> message = value('softmax_of_row', value('mul', x_i, x_j), dim=-1)
        >>> chunked(message, value('reduce', message, reduce='sum')).title
        'operators on chunks of edges'
    """
    if reduction is not None and reduction.attributes['reduce'] not in _BY:
        raise Refused(f'the reduction {reduction.attributes["reduce"]!r} of values that each edge has of its own')
    if message.dtype not in DTYPES or message.residency != EDGE:
        raise Refused('messages that are no floating values of edges')
    order, operands = [], {id(message): message} if is_brought(message) else {}
    for node in computed_on_edges(message):
        if node.op in OF_ALL_EDGES:
            raise Refused(f'{node.op} of values that each edge has of its own')
        order.append(node)
        for parent in node.parents():
            if is_brought(parent):
                operands.setdefault(id(parent), parent)
    named = {f'operand {i}': node for i, node in enumerate(operands.values())}
    return Chunked(message, reduction, named, tuple(order))
