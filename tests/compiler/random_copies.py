"""Random modules whose features have dimensions before that of nodes."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
import torch_geometric.utils
from torch_geometric.utils import degree

from tests.compiler.messages import WIDTH, Parts, Writer, frozen, inputs, without_last

# how it gathers and reduces, where `{all}` is all of the dimensions before, and `{dim}` that of nodes
GATHERED = {
    'x_i': ('x[{all}, col]', 'x[{all}, col, :]'), 'x_j': ('x[..., row, :]', 'x.index_select({dim}, row)'),
    'z_j': ('z[..., row, :]', 'z.index_select(-2, row)'), 'y_i': ('y[..., col, :]',), 'a_j': ('a[..., row, :]',),
    'b_i': ('b.index_select(-2, col)',),
}  # fmt: skip
REDUCED = (
    'scatter(message, col, {dim}, x.size({dim}), {how!r})',
    'scatter(message, col, -2, x.shape[-2], {how!r})',
    'torch.zeros_like(x).index_add_({dim}, col, message)',
    'x.new_zeros(*x.shape[:-1], message.size(-1)).index_add({dim}, col, message)',
    'torch.zeros_like(x).scatter_add({dim}, col.unsqueeze(-1).expand_as(message), message)',
    'torch.zeros_like(x).scatter_add_(-2, col.view({ones}, -1, 1).expand(*message.shape), message)',
    "torch.zeros_like(x).scatter_reduce({dim}, col[:, None].expand_as(message), message, 'amax', include_self=False)",
    'torch.zeros(x.shape, dtype=x.dtype).index_add(-2, col, message)',
    '(x * 2).index_add({dim}, col, message, alpha=0.5)',
)
STEPS = 'x = torch.tanh(self.last(out))', 'x = x + out.tanh()', 'x, z = out.tanh(), x'
# what it does to rows of nodes, and what is none of one copy
OF_NODES = (
    'out + self.first(torch.cat([x, out], dim=-1))', 'out.unflatten(-1, (2, 2)).flatten(-2)', 'out.softmax(-1)',
    'out.view(*out.shape[:-1], 2, 2).transpose(-1, -2).reshape(*out.shape)', 'out - out.mean(dim=-1, keepdim=True)',
    'out * torch.bincount(col, minlength=x.size({dim})).clamp(min=1).view(-1, 1).to(out.dtype)',
    'torch.stack([out, x], dim=-1).sum(-1)', 'F.layer_norm(out, out.shape[-1:])', 'out[..., :2].repeat({ones}, 1, 2)',
    'out - out.mean(dim={dim}, keepdim=True)', 'out / out.norm()', 'out + out.mean(0)',
    'out.flatten(0, 1).view(x.shape)',
)  # fmt: skip
LOOPS = ('edge_index, _ = add_self_loops(edge_index, num_nodes=x.size({dim}))',)
# of messages of one copy
AS_OF_COPIES = {
    'edge_weight.view(-1, 1)': 'edge_weight.unsqueeze(-1)', '[:, ': '[..., ', 'dim=1)': 'dim=-1)',
    'mean(0)': 'mean(-2, keepdim=True)', 'sum(dim=0': 'sum(dim=-2',
}  # fmt: skip
BATCHED = ('z', 'y', 'a', 'b', 'edge_attr', 'edge_weight')


def softmax(src: torch.Tensor, *given) -> torch.Tensor:
    """PyG's, along the dimension before the last."""
    return torch_geometric.utils.softmax(src, *given, dim=src.dim() - 2)


class RandomCopies(Parts):
    """The same as a module of several copies of nodes.

    Attributes:
        sizes: The dimensions before that of nodes.
        batched: The names of what has these.
    """

    forward: Callable
    sizes: tuple[int, ...]
    batched: tuple[str, ...]

    def __init__(self, maps: list[tuple[int, int]], vectors: int) -> None:
        super().__init__()
        self.add_parts(maps, vectors)
        self.first, self.last = torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)


def module(seed: int) -> tuple[torch.nn.Module, str]:
    """A random module and the source of its forward."""
    writer = Writer(seed)
    choose = random.Random(f'copies {seed}')
    sizes = choose.choice(((3,), (3,), (1,), (2, 3)))
    batched = tuple([name for name in BATCHED if choose.randrange(3)])
    words = {'all': ', '.join([':'] * len(sizes)), 'dim': len(sizes), 'ones': ', '.join(['1'] * len(sizes))}
    lines = ['def forward(self, x, z, y, a, b, edge_index, edge_attr, edge_weight, edge_type):']
    if choose.randrange(6) == 0:
        lines.append(choose.choice(LOOPS).format(**words))
    lines += ['row, col = edge_index', 'index, ptr, size_i = col, None, x.size(-2)']
    lines += ['edge_index_j, size_j = row, x.size(-2)']
    returned = ['x']
    for step in range(choose.randint(1, 3)):
        lines += [f'{name} = {choose.choice(how).format(**words)}' for name, how in GATHERED.items()]
        text = writer.row(choose.randint(1, 4))
        for one, of_copies in AS_OF_COPIES.items():
            text = text.replace(one, of_copies)
        lines.append(f'message = {text} + 0 * x_j')
        how = choose.choice(REDUCED).format(how=choose.choice(('sum', 'mean', 'max', 'min')), **words)
        lines.append(f'out = {how}')
        if choose.randrange(3) == 0:
            lines.append(f'out = {choose.choice(OF_NODES).format(**words)}')
        if choose.randrange(5) == 0:
            lines.append(f'score_{step} = (message * x_j).sum(dim=-1)')
            returned.append(f'score_{step}')
        lines.append(choose.choice(STEPS))
    source = '\n    '.join([*lines, f'return {", ".join(returned)}']) + '\n'
    functions = {name: getattr(torch_geometric.utils, name) for name in ('scatter', 'add_self_loops')}
    namespace = {'torch': torch, 'F': F, 'softmax': softmax, 'frozen': frozen, 'degree': degree, **functions}
    exec(source, namespace)
    torch.manual_seed(seed)
    found = {'forward': namespace['forward'], 'sizes': sizes, 'batched': batched}
    kind = type(f'RandomCopies{seed}', (RandomCopies,), found)
    return kind(writer.maps, writer.vectors).double(), source


def inputs_of(module: RandomCopies, seed: int) -> dict[str, torch.Tensor]:
    """Arguments of a random module."""
    given = inputs(seed)
    generator = torch.Generator().manual_seed(~seed)
    for name in ('x', *module.batched):
        shape = *module.sizes, *given[name].shape
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name not in ('edge_attr', 'edge_weight'):
            without_last(values.transpose(0, -2))
        given[name] = values.requires_grad_()
    return given
