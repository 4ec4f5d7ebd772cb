"""Random modules that gather and reduce themselves: what `tests.compiler.messages` writes, in steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, TransformerConv
from torch_geometric.utils import degree, scatter, softmax

from tests.compiler.messages import EDGE_DIM, WIDTH, Parts, Writer, frozen, inputs, without_last

try:
    import torch_scatter
except (ImportError, OSError):
    torch_scatter = None

# what a module calls by these names, and how it reduces
GATHERED = {
    'x_i': '{x}[col]', 'x_j': 'x[row]', 'z_j': 'z.index_select(0, row)', 'y_i': 'y[col]', 'a_j': 'a[row]',
    'b_i': 'b[col]',
}  # fmt: skip
REDUCED = (
    'scatter(message, col, 0, {x}.size(0), {how!r})',
    'torch.zeros_like({x}).index_add_(0, col, message)',
    '{x}.new_zeros({x}.size(0), message.size(-1)).scatter_add(0, col.unsqueeze(-1).expand_as(message), message)',
    "torch.zeros_like({x}).scatter_reduce(0, col[:, None].expand(-1, 4), message, 'amax', include_self=False)",
    'torch.zeros({x}.shape, dtype=x.dtype).index_add(0, col, message)',
    '({x} * 2).index_add(0, col, message, alpha=0.5)',
)
# how it names the rows of its edges, and which of them are its targets
ROWS_OF_EDGES = (
    ('row, col = edge_index', 1), ('col, row = edge_index', 0), ('row, col = edge_index[0], edge_index[1]', 1),
)  # fmt: skip


OF_SOURCES = 'edge_index_j, size_j = row, x.size(0)'
# how a step ends
STEPS = '{x} = torch.tanh(self.last(out))', '{x} = {x} + out.tanh()', '{x}, {z} = out.tanh(), {x}'
# what it computes of all nodes, of all edges, and of groups of nodes
OF_ALL = (
    'out - out.mean(0, keepdim=True)', 'out / (out.std(dim=0) + 1)', 'torch.cumsum(out, 0).tanh()',
    'out * message.square().mean()', 'out + message.sum(0).tanh()', 'out / (1 + message.abs().mean(0, keepdim=True))',
    'out + torch.zeros(3, 4, dtype=out.dtype).index_add_(0, group, out)[group]', 'out.softmax(0)',
    "out + scatter(out, group, 0, 3, 'mean')[group]", 'out + torch.linspace(0, 1, 4, dtype=out.dtype)',
    'out * torch.bincount(col, minlength=out.size(0)).clamp(min=1).view(-1, 1).to(out.dtype)',
    "out * scatter(message, group[row], 0, 3, 'mean').tanh().mean()",
    "out + scatter(message.square(), group[row], dim=0, reduce='sum').mean()",
    'out + out.amax(dim=0)', 'out / out.norm()', 'out - out.sum(0, keepdim=True) / out.size(0)',
)  # fmt: skip
# what it weighs messages to sources by
SHARES = (
    '2', '2', 'softmax(edge_weight.view(-1, 1), col, None, {x}.size(0))', 'softmax((x_i * x_j).mean(-1, True), row)',
    'softmax(x_i - x_j, col, None, {x}.size(0))', 'softmax(a_j, row, None, x.size(0))',
)  # fmt: skip


_OF_EDGES = 'edge_index', 'edge_attr', 'edge_weight', 'edge_type'
_CHOSEN = f'{", ".join(_OF_EDGES)} = edge_index[:, chosen], edge_attr[chosen], edge_weight[chosen], edge_type[chosen]'
# how it makes its edges anew, or values of them: between any nodes, and where sources and targets are the same ones
CHOSEN = (
    ['chosen = edge_index[0] != edge_index[1]', _CHOSEN],
    ['chosen = (edge_weight > 0) | (edge_type == 1)', _CHOSEN],
    ['chosen = edge_weight.argsort(descending=True)', _CHOSEN],
    ['edge_weight = edge_weight * torch.where(edge_index[0] < edge_index[1], 0.5, 2.0).to(edge_weight.dtype)'],
    ['edge_type = (edge_index[0] > edge_index[1]).long() + 1', 'edge_index = edge_index.clone()'],
    ['groups = int(group.max()) + 1', 'edge_weight = edge_weight * groups'],
    ['if (edge_index[0] == edge_index[1]).any():', '    edge_weight = edge_weight.tanh()'],
)
JOINED = (
    ['edge_index, edge_attr = torch.cat([edge_index, edge_index.flip(0)], dim=1), edge_attr.repeat(2, 1)',
     'edge_weight, edge_type = torch.cat([edge_weight, -edge_weight]), torch.cat((edge_type, edge_type))'],
    ['loops = torch.arange(x.size(0)).repeat(2, 1)', 'edge_index = torch.cat([edge_index, loops], dim=1)',
     f'edge_attr = torch.cat([edge_attr, edge_attr.new_ones(x.size(0), {EDGE_DIM})])',
     'edge_weight = torch.cat([edge_weight, x.new_zeros(x.size(0))])',
     'edge_type = torch.cat([edge_type, torch.ones(x.size(0), dtype=torch.long)])'],
)  # fmt: skip
PRODUCTS = (
    'torch.sparse_coo_tensor(edge_index, edge_weight, (x.size(0), x.size(0))) @ x',
    'torch.sparse.mm(torch.sparse_coo_tensor(edge_index, edge_weight, (x.size(0), x.size(0))).t(), x)',
)


# what it computes of messages by modules with statistics, which it may leave unread, and how it reduces to one of those
# that tie; and what it counts
BESIDES = (
    ['message = message + torch.tanh(self.norms[{step}](message))'],
    ['message = self.last(F.silu(self.norms[{step}](message * 2))) + 0 * x_j'],
    ['self.norms[{step}](message)'],
    ['message = message - torch.tanh(message[torch.arange(len(row)).flip(0)])'],
    ['self.calls = self.calls + 1', 'if self.calls > 1000:', '    message = message * 2'],
)
# what it does with the dimension of edges at another place than the first
TURNED = (
    'message = message.t().mul(edge_weight).t()',
    'message = torch.stack([message, message * torch.tanh(message), message.cos()], 0)[1:].mean(0)',
    'message = torch.stack((message, -message.sin())).amax(dim=0)',
    'message = (message.view(-1, 2, 2).transpose(0, 1) * edge_weight.unsqueeze(-1)).permute(1, 0, 2).flatten(1)',
    "message = message + torch.einsum('hec->eh', message.view(-1, 2, 2).transpose(0, 1)).repeat(1, 2).tanh()",
    'message = (self.last.weight @ message.T).T + message',
    'message = message.unsqueeze(0).softmax(-1).squeeze(0) * message',
    'message = message * softmax(message.t(), col, None, {x}.size(0), 1).t()',
    'message = message @ torch.tanh({x}.t() @ {x})',
    'message = message / (1 + message.std(0))',
)
OF_ONE = (
    'torch_scatter.scatter_max(message.relu(), col, dim=0, dim_size={x}.size(0))[0]',
    "torch_scatter.scatter(message.clamp(max=0.3), col, dim=0, dim_size={x}.size(0), reduce='min')",
    'torch_scatter.scatter_max(message, col.view(-1), 0, dim_size={x}.size(0))[0]',
)


# layers of PyG's within it
LAYERS = (
    '{x} = self.layers[0]({x}, edge_index)', '{x} = self.layers[1]({x}, edge_index, edge_attr).tanh()',
    '{x} = {x} + self.layers[2]({x}, edge_index=edge_index)',
    '{x} = self.layers[1]({x}, edge_index, edge_attr * torch.tanh(self.of_edges))',
    '{x} = self.layers[0]({x}, edge_index.flip(0), edge_weight.abs())',
    '{x} = self.layers[1]({x}, edge_index[:, edge_type > 0], edge_attr[edge_type > 0])',
    '{x}, edge_attr = self.layers[3]({x}, edge_index, edge_attr)',
)  # fmt: skip


def remade_edges(seed: int, of_two_sets: bool) -> list[str]:
    """Lines that make edges anew, or values of them, perhaps twice."""
    choose = random.Random(f'edges {seed}')
    found: list[str] = []
    for _ in range(choose.choice((0, 0, 0, 1, 1, 2))):
        found += choose.choice(CHOSEN if of_two_sets else CHOSEN + JOINED)
    return found


def further_edges(seed: int) -> tuple[str, ...]:
    """The names of further edges that are arguments, and of their values, perhaps."""
    return tuple([f'{name}_2' for name in _OF_EDGES]) if random.Random(f'further {seed}').randrange(4) == 0 else ()


def other_edges(seed: int, step: int, of_two_sets: bool) -> list[str]:
    """Lines that take other edges for a step and those behind it, perhaps; their rows are to be taken again."""
    choose = random.Random(f'edges {seed} {step}')
    further = further_edges(seed)
    if further and step == random.Random(f'further of {seed}').randrange(3):
        made = choose.choice(CHOSEN) if choose.randrange(4) == 0 else []
        return [f'{", ".join(_OF_EDGES)} = {", ".join(further)}', *made]
    if step == 0 or choose.randrange(3):
        return []
    # the last two make none
    return choose.choice(CHOSEN[:-2] if of_two_sets else CHOSEN[:-2] + JOINED)


class RandomModule(Parts):
    """The same as a module that gathers and reduces itself, twice.

    Attributes:
        seed: What it was drawn by.
        of_two_sets: Whether its sources are other nodes than its targets, ``u``.
        target_row: The row of targets.
    """

    forward: Callable
    seed: int
    of_two_sets: bool
    target_row: int

    def __init__(self, maps: list[tuple[int, int]], vectors: int) -> None:
        super().__init__()
        self.add_parts(maps, vectors)
        self.first, self.last = torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm1d(WIDTH) for _ in range(3)])
        self.calls = 0
        kinds = GCNConv(WIDTH, WIDTH), TransformerConv(WIDTH, WIDTH, edge_dim=EDGE_DIM), GINConv(norm_of_nodes())
        self.layers = torch.nn.ModuleList([*kinds, OfBoth(WIDTH, EDGE_DIM)])
        self.of_edges = torch.nn.Parameter(torch.ones(EDGE_DIM))


class OfBoth(TransformerConv):
    """A layer that returns values of nodes and of edges."""

    def __init__(self, width: int, edge_dim: int) -> None:
        super().__init__(width, width, edge_dim=edge_dim)
        self.of_edges = torch.nn.Linear(2 * width, edge_dim)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Both."""
        row, col = edge_index
        new = torch.tanh(self.of_edges(torch.cat([x[row], x[col]], dim=-1)))
        return super().forward(x, edge_index, edge_attr), edge_attr + new


def norm_of_nodes() -> torch.nn.Module:
    """A network of nodes whose statistics move."""
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH))


# how a module that is given an object reads and stores what it holds
OF_OBJECTS = {Data: ('data.{}', "data['{}']", "data.get('{}')"), dict: ("data['{}']", "data.get('{}', None)")}
OF_MODULES = 'edge_index', 'x', 'z', 'y', 'a', 'b', 'edge_attr', 'edge_weight', 'edge_type', 'group'


class Holder:
    """Whether a random module is given an object, and what it reads and stores of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(~seed)
        self.kind = self.random.choice((None, None, Data, dict))

    def begins(self, arguments: Iterable[str]) -> list[str]:
        """How its forward begins."""
        if self.kind is None:
            return [f'def forward(self, {", ".join(arguments)}):']
        read = [f'{name} = {self._said(name)}' for name in arguments]
        return ['def forward(self, data):', *read]

    def keeps(self, name: str, as_name: str) -> list[str]:
        """Lines in which it stores a value, perhaps, and reads it again."""
        if self.kind is None or self.random.randrange(3):
            return []
        stored = self._said(as_name).replace(".get('", "['").replace("', None)", "']").replace("')", "']")
        return [f'{stored} = {name}', f'{name} = {self._said(as_name)}']

    def _said(self, name: str) -> str:
        return self.random.choice(OF_OBJECTS[self.kind]).format(name)

    def holding(self, given: dict[str, torch.Tensor]) -> dict[str, Any]:
        """The arguments of a call."""
        if self.kind is None:
            return given
        return {'data': dict(given) if self.kind is dict else Data(**given, others=['what it does not read'])}


def module(seed: int) -> tuple[torch.nn.Module, str]:
    """A random module and the source of its forward."""
    writer, holder = Writer(seed), Holder(seed)
    choose = writer.random
    of_two_sets = random.Random(seed).randrange(3) == 0
    x = 'u' if of_two_sets else 'x'
    rows, target_row = choose.choice(ROWS_OF_EDGES)
    arguments = (*OF_MODULES, *further_edges(seed), *(['u'] if of_two_sets else []))
    ends = rows, f'index, ptr, size_i = col, None, {x}.size(0)', OF_SOURCES
    lines = [*holder.begins(arguments), *remade_edges(seed, of_two_sets), *ends]
    returned = []
    turned = random.Random(f'turned {seed}')
    for step in range(choose.randint(1, 3)):
        others = other_edges(seed, step, of_two_sets)
        lines += [*others, *ends] if others else []
        layers = random.Random(f'layers {seed} {step}')
        if not of_two_sets and layers.randrange(6) == 0:
            lines.append(layers.choice(LAYERS).format(x=x))
        lines += [f'{name} = {how.format(x=x)}' for name, how in GATHERED.items()]
        made = writer.expression()
        if made.stored is not None:
            lines.append(f'self.stored = {made.stored}')
        lines.append(f'message = {made.text} + 0 * x_j')
        beside = random.Random(f'beside {seed} {step}')
        if beside.randrange(5) == 0:
            lines += [line.format(step=step) for line in beside.choice(BESIDES)]
        if turned.randrange(4) == 0:
            lines.append(turned.choice(TURNED).format(x=x))
        lines += holder.keeps('message', f'message_{step}')
        how = choose.choice(REDUCED)
        how = beside.choice(OF_ONE) if torch_scatter is not None and beside.randrange(6) == 0 else how
        lines.append(f'out = {how.format(x=x, how=choose.choice(("sum", "mean", "max", "min")))}')
        if choose.randrange(3) == 0:
            lines.append(f'out += self.first(torch.cat([{x}, out], dim=-1))')
            lines.append('out = out.view(-1, 2, 2).flatten(1)')
        if holder.random.randrange(4) == 0:
            # to the sources, too
            reduce = holder.random.choice(('sum', 'mean', 'max', 'min'))
            to, share = 'x' if of_two_sets else 'out', holder.random.choice(SHARES).format(x=x)
            lines.append(f'{to} = {to} + scatter(message * {share}, row, 0, x.size(0), {reduce!r})')
        if holder.random.randrange(4) == 0:
            lines.append(f'out = {holder.random.choice(OF_ALL)}')
        if not of_two_sets and random.Random(f'products {seed} {step}').randrange(8) == 0:
            lines.append(f'out = out + {random.Random(f"product {seed} {step}").choice(PRODUCTS)} * 0.1')
        lines += holder.keeps('out', f'out_{step}')
        if choose.randrange(4) == 0:
            lines.append(f'edge_attr = edge_attr + {writer._map(WIDTH, EDGE_DIM)}(message)')
            returned.append('edge_attr')
        if choose.randrange(4) == 0:
            lines.append(f'score_{step} = ({writer.row(1)} * x_j).sum(dim=-1)')
            returned.append(f'score_{step}')
        how = choose.choice(STEPS)
        lines.append(how.format(x=x, z='y' if of_two_sets else 'z'))
    source = '\n    '.join([*lines, f'return {", ".join([*{"x": 0, x: 0}, *returned])}']) + '\n'
    namespace = {
        'torch': torch,
        'torch_scatter': torch_scatter,
        'F': F,
        'softmax': softmax,
        'frozen': frozen,
        'scatter': scatter,
        'degree': degree,
    }
    exec(source, namespace)
    torch.manual_seed(seed)
    found = {'forward': namespace['forward'], 'seed': seed, 'of_two_sets': of_two_sets, 'target_row': target_row}
    kind = type(f'RandomModule{seed}', (RandomModule,), found)
    return kind(writer.maps, writer.vectors).double(), source


def inputs_of(module: RandomModule, seed: int, num_sources: int = 9) -> dict[str, torch.Tensor]:
    """Arguments of a random module."""
    given = inputs(seed)
    num_nodes = given['x'].shape[0]
    given['group'] = torch.arange(num_nodes) % 3
    further = further_edges(module.seed)
    if further:
        others = inputs(seed + 1, num_nodes, random.Random(f'number {seed}').choice((15, 33)))
        given |= {f'{name}_2': others[name] for name in _OF_EDGES}
    if module.of_two_sets:
        generator = torch.Generator().manual_seed(~seed)
        given['u'] = given['x']
        for name in ('x', 'z', 'a'):
            shape = num_sources, *given[name].shape[1:]
            given[name] = without_last(torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
        for name in ('edge_index', *further[:1]):
            sources = torch.randint(num_sources - 1, (given[name].shape[1],), generator=generator)
            given[name] = torch.stack([sources, given[name][1]][:: 2 * module.target_row - 1])
    return given
