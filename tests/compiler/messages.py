"""Random message functions: small well-typed expressions of what PyG hands to a message."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import degree, scatter, softmax

WIDTH, EDGE_DIM, TYPES = 4, 3, 5
ROWS = ('x_i', 'x_j', 'z_j', 'y_i')
TABLES = ('self.table[edge_type]', 'self.table[edge_type - 2]', 'self.table.index_select(0, edge_type)')
# products by the matrix of a type
MATRICES = (
    "torch.einsum('ei,eio->eo', {}, self.matrices[edge_type])",
    'torch.bmm({}.unsqueeze(1), self.matrices[edge_type]).squeeze(1)',
    '(self.matrices.index_select(0, edge_type).mT @ {}.unsqueeze(-1)).squeeze(-1)',
    '({}.view(-1, 2, 1, 2) @ self.matrices[:, :2].view(-1, 2, 2, 2)[edge_type]).flatten(1)',
)
UNARY = (
    'torch.relu({})', 'F.leaky_relu({}, 0.1)', 'torch.sigmoid({})', 'torch.tanh({})', '{}.abs()', 'F.silu({})',
    'F.elu({})', 'F.softplus({})', '{}.clamp(-0.5, 0.7)', '{}.square()', '(-{})', '({} * 0.5)', '(1 - {})',
    'torch.exp(torch.tanh({}))', '(torch.sigmoid({}) + 0.5).log()', '(torch.sigmoid({}) + 0.1).sqrt()', '({} ** 2)',
    'F.relu6({})', "F.gelu({}, approximate='tanh')", 'F.selu({})', 'F.gelu({})',
)  # fmt: skip
# of rows whose numbers are taken together
OF_ROWS = (
    'F.normalize({} + 0.5, dim=-1)', '({0} / ({0}.norm(dim=-1, keepdim=True) + 0.5))', '{}.cumsum(dim=-1)',
    'F.layer_norm({}, (4,))', 'F.softmax({}, dim=-1)', '{}.masked_fill(edge_weight.view(-1, 1) > 0, 0.5)',
    '({0} - {0}.mean(dim=-1, keepdim=True))', '({0} * {0}.amax(dim=-1, keepdim=True))',
    'torch.where(edge_weight.view(-1, 1) > 0, {0}, -{0})',
    '({0} / (1 + {0}.abs().mean()))', '({0} - {0}.mean(0))', '({0} * {0}.sum(dim=0, keepdim=True).tanh())',
)  # fmt: skip
# of nodes that have edges alone it is a number
UNIT = '({0} / {0}.norm(dim=-1, keepdim=True))'
# numbers of edges at each end, and shares of what sources send
DEGREES = (
    'degree(index, size_i, x_j.dtype).view(-1, 1)[index]',
    'degree(edge_index_j, size_j, x_j.dtype).view(-1, 1)[edge_index_j]',
)
SENT = 'softmax({}, edge_index_j, None, size_j)'
BINARY = (
    '({} + {})', '({} - {})', '({} * {})', 'torch.maximum({}, {})', 'torch.minimum({}, {})',
    '({} / (1.5 + torch.sigmoid({})))',
)  # fmt: skip
AGGREGATIONS = ('sum', 'mean', 'max', 'min', ['mean', 'std'], ['sum', 'max', 'var'], 'softmax', 'powermean')


@dataclasses.dataclass
class Expression:
    """The source of a message and how many linear maps of which widths it uses.

    Attributes:
        text: What it returns.
        maps: Widths of the linear maps.
        vectors: How many parameters.
        stored: What is stored before, if anything is.
        second: What it returns beside, if it returns two values.
    """

    text: str
    maps: list[tuple[int, int]]
    vectors: int
    stored: str | None = None
    second: str | None = None


class Writer:
    """Writes random expressions of ``[edges, 4]`` (rows) and ``[edges, 1]`` (numbers)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.maps: list[tuple[int, int]] = []
        self.vectors = 0
        self.rows = [*ROWS]

    def expression(self) -> Expression:
        stored = second = None
        if self.random.randrange(4) == 0:
            # perhaps of nodes alone, but not what is given
            more = self.random.choice(('0 * edge_weight.view(-1, 1)', '1'))
            stored = f'{self.row(self.random.randint(0, 3))} + {more}'
            self.rows += ['self.stored'] * 2
        text = self.row(self.random.randint(1, 4))
        if self.random.randrange(4) == 0:
            second = self.row(self.random.randint(0, 3))
        return Expression(text, self.maps, self.vectors, stored, second)

    def _map(self, width: int, out: int) -> str:
        self.maps.append((width, out))
        return f'self.maps[{len(self.maps) - 1}]'

    def _vector(self) -> str:
        self.vectors += 1
        return f'self.vectors[{self.vectors - 1}]'

    def row(self, depth: int) -> str:
        choose = self.random
        if depth == 0:
            of_edges = [f'{self._map(EDGE_DIM, WIDTH)}(edge_attr)', choose.choice(TABLES)]
            return choose.choice([*self.rows, *self.rows, *of_edges, self._vector()])
        kind = choose.randrange(17)
        if kind > 14:
            is_of_nodes = choose.randrange(5) == 0
            return (
                UNIT.format(choose.choice(ROWS)) if is_of_nodes else choose.choice(OF_ROWS).format(self.row(depth - 1))
            )
        if kind == 14:
            return choose.choice(MATRICES).format(self.row(depth - 1))
        if kind == 13:
            return f'frozen(lambda: {self.row(depth - 1)})'
        if kind < 2:
            return choose.choice(UNARY).format(self.row(depth - 1))
        if kind < 6:
            return choose.choice(BINARY).format(self.row(depth - 1), self.row(depth - 1))
        if kind < 9:
            return choose.choice(['({} * {})', '({1} * {0})']).format(self.number(depth - 1), self.row(depth - 1))
        if kind == 9:
            parts = choose.sample(['x_i', 'x_j', 'z_j', 'edge_attr', 'x_j - x_i', self.row(0)], choose.randint(2, 3))
            width = sum(EDGE_DIM if part == 'edge_attr' else WIDTH for part in parts)
            return f'{self._map(width, WIDTH)}(torch.cat([{", ".join(parts)}], dim=-1))'
        if kind == 10:
            half = self._map(WIDTH, 2 * WIDTH)
            return f'{half}({self.row(0)}).chunk(2, dim=-1)[{choose.randrange(2)}]'
        if kind == 12:
            activation = choose.choice(('torch.relu({})', 'F.silu({})', 'F.gelu({})', 'torch.tanh({})'))
            return f'{self._map(WIDTH, WIDTH)}({activation.format(self.row(depth - 1))})'
        return choose.choice(
            [
                f'softmax({self.row(depth - 1)}, index, ptr, size_i)',
                f'torch.where({self.row(0)} > {self.row(0)}, {self.row(depth - 1)}, {self.row(0)})',
                f'{self._map(WIDTH, WIDTH)}({self.row(depth - 1)})',
                f'torch.cat([{choose.choice(ROWS)}[:, :2], {choose.choice(ROWS)}[:, 2:]], dim=1)',
                f'torch.cat([{self.row(0)}[:, 1:], {self.row(0)}[:, :1]], dim=1)',
            ]
        )

    def number(self, depth: int) -> str:
        choose = self.random
        if depth == 0:
            leaves = ['edge_weight.view(-1, 1)', 'a_j', 'b_i', 'edge_weight.unsqueeze(-1)']
            leaves += ['self.scale[edge_type].view(-1, 1)', choose.choice(DEGREES)]
            return choose.choice([*leaves, f'{self._map(EDGE_DIM, 1)}(edge_attr)'])
        kind = choose.randrange(11)
        if kind == 10:
            return f'({self.number(0)} / {choose.choice(DEGREES)})'
        if kind == 9:
            return SENT.format(self.number(depth - 1))
        if kind == 8:
            return f'frozen(lambda: {self.number(depth - 1)})'
        if kind < 2:
            return choose.choice(UNARY).format(self.number(depth - 1))
        if kind < 4:
            return choose.choice(BINARY).format(self.number(depth - 1), self.number(depth - 1))
        if kind < 6:
            return f'softmax({self.number(depth - 1)}, index, ptr, size_i)'
        if kind == 6:
            return f'({self.row(depth - 1)} * {self.row(0)}).sum(dim=-1, keepdim=True)'
        parts = choose.sample(['x_i', 'x_j', 'z_j'], 2)
        return f'{self._map(2 * WIDTH, 1)}(torch.cat([{", ".join(parts)}], dim=-1))'


def frozen(compute: Callable[[], Tensor]) -> Tensor:
    """What a function gives, without gradients."""
    with torch.no_grad():
        return compute()


class Parts(torch.nn.Module):
    """What random expressions read of what they are in."""

    stored: Tensor

    def add_parts(self, maps: list[tuple[int, int]], vectors: int) -> None:
        self.table, self.scale = (torch.nn.Parameter(torch.randn(TYPES, *width)) for width in ((WIDTH,), ()))
        self.matrices = torch.nn.Parameter(torch.randn(TYPES, WIDTH, WIDTH))
        self.maps = torch.nn.ModuleList(torch.nn.Linear(*widths, bias=k % 2 == 0) for k, widths in enumerate(maps))
        self.vectors = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(WIDTH)) for _ in range(vectors))


class RandomConv(Parts, MessagePassing):
    """A layer with a random message."""

    def __init__(self, maps: list[tuple[int, int]], vectors: int, aggr) -> None:
        MessagePassing.__init__(self, aggr)
        self.add_parts(maps, vectors)

    def forward(self, edge_index, **given):
        return self.propagate(edge_index, **given)


class RandomPairs(RandomConv):
    """The same of two messages, each with a reduction of its own."""

    def __init__(self, maps: list[tuple[int, int]], vectors: int, aggr) -> None:
        super().__init__(maps, vectors, 'sum')
        self.reductions = aggr

    def aggregate(self, inputs, index, dim_size=None):
        pairs = zip(inputs, self.reductions, strict=True)
        return tuple(scatter(message, index, 0, dim_size, reduce) for message, reduce in pairs)

    def update(self, inputs):
        return inputs


ARGUMENTS = 'x_i, x_j, z_j, y_i, a_j, b_i, edge_attr, edge_weight, edge_type, index, ptr, size_i, edge_index_j, size_j'


def layer(seed: int) -> tuple[RandomConv, str]:
    """A random layer and the source of its message."""
    writer = Writer(seed)
    made = writer.expression()
    aggr = writer.random.choice(AGGREGATIONS)
    lines = [f'def message(self, {ARGUMENTS}):', f'    return {made.text} + 0 * x_j']
    if made.second is not None:
        aggr = tuple(writer.random.choice(('sum', 'mean', 'max', 'min')) for _ in range(2))
        lines[-1] += f', {made.second} + 0 * x_j'
    if made.stored is not None:
        lines.insert(1, f'    self.stored = {made.stored}')
    source = '\n'.join([*lines, ''])
    namespace = {'torch': torch, 'F': F, 'softmax': softmax, 'frozen': frozen, 'degree': degree}
    exec(source, namespace)
    torch.manual_seed(seed)
    base = RandomConv if made.second is None else RandomPairs
    kind = type(f'RandomConv{seed}', (base,), {'message': namespace['message']})
    return kind(made.maps, made.vectors, aggr).double(), f'{source}aggr={aggr!r}'


def inputs(seed: int, num_nodes: int = 7, num_edges: int = 20) -> dict[str, torch.Tensor]:
    """Arguments of a random layer; every node but the last has edges into it, some are repeated; the last is zero."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    targets = torch.arange(num_edges) % (num_nodes - 1)
    sources = torch.randint(num_nodes - 1, (num_edges,), generator=generator)
    of_nodes = {name: without_last(normal(num_nodes, WIDTH)) for name in ('x', 'z', 'y')}
    numbers = {name: without_last(normal(num_nodes, 1)) for name in ('a', 'b')}
    of_edges = {'edge_attr': normal(num_edges, EDGE_DIM), 'edge_weight': normal(num_edges)}
    of_edges['edge_type'] = torch.randint(TYPES, (num_edges,), generator=generator)
    return {'edge_index': torch.stack([sources, targets]), **of_nodes, **numbers, **of_edges}


def without_last(x: Tensor) -> Tensor:
    """Rows of nodes, of which the last is zero."""
    with torch.no_grad():
        x[-1] = 0.0
    return x
