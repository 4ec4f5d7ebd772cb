"""Modules that take all nodes, all edges or groups of nodes together, beside what they gather and reduce."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.utils import scatter

from tests.compiler.own_modules import WIDTH


class Centred(nn.Module):
    """Layers whose results are centred and of unit scale, by hand."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x, edge_index):
        row, col = edge_index
        for lin in self.lins:
            x = lin(torch.zeros_like(x).index_add_(0, col, x[row]))
            x = x - x.mean(dim=0, keepdim=True)
            x = x / (x.pow(2).sum(dim=1).mean() + 1e-5).sqrt()
        return F.log_softmax(x, dim=1), x.std(dim=0)


class Energy(nn.Module):
    """Dirichlet's energy, of which there is one number."""

    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        return (edge_weight * (x[row] - x[col]).pow(2).sum(dim=-1)).sum()


class Ranking(nn.Module):
    """A loss of links, and how large scores are."""

    def forward(self, x, edge_index):
        row, col = edge_index
        score = (x[row] * x[col]).sum(dim=-1)
        return (
            -F.logsigmoid(score).mean(),
            (x[row] * x[col]).mean(dim=(0, 1)),
            (x[row] - x[col]).abs().mean(0, keepdim=True),
        )


class Readout(nn.Module):
    """Sums and averages of the nodes of graphs, which their nodes read again."""

    def forward(self, x, edge_index, batch):
        row, col = edge_index
        x = F.relu(x + torch.zeros_like(x).index_add_(0, col, x[row] * x[col]))
        sums = torch.zeros(3, WIDTH, dtype=x.dtype).index_add_(0, batch, x)
        averages = scatter(x, batch, dim=0, dim_size=3, reduce='mean')
        return x + torch.zeros_like(x).index_add_(0, col, averages[batch][row]), sums


class Counts(nn.Module):
    """Averages by counts of integers, and a basis that is made in each call."""

    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        count = torch.bincount(col, minlength=x.size(0)).clamp(min=1).to(x.dtype)
        centres, width = torch.linspace(0, 1, WIDTH, dtype=x.dtype), torch.tensor([0.5], dtype=x.dtype)
        basis = torch.exp(-(((edge_weight.sigmoid().unsqueeze(1) - centres) / width) ** 2))
        return torch.zeros_like(x).index_add_(0, col, x[row] * basis) / count.unsqueeze(-1)


class Parts(nn.Module):
    """What torch gives in parts, of nodes and of all of them."""

    def forward(self, x, edge_index):
        row, col = edge_index
        x = torch.zeros_like(x).index_add_(0, col, x[row])
        highest, _ = x.max(dim=0)
        q, _ = torch.linalg.qr(torch.einsum('ni,nj->ij', x, x) + torch.eye(WIDTH, dtype=x.dtype))
        return torch.zeros_like(x).index_add_(0, col, (x / (highest.abs() + 1))[row]) @ q.abs(), x.cumsum(0)


class PartsOfParameters(nn.Module):
    """Weights that one parameter holds, some of them normalised."""

    def __init__(self):
        super().__init__()
        self.factors = nn.Parameter(torch.randn(2, WIDTH))
        self.matrices = nn.Parameter(torch.randn(3, WIDTH, WIDTH) / WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        of_sources, of_targets = self.factors.unbind(0)
        first, second, third = self.matrices.chunk(3)
        message = torch.tanh((x[row] * of_sources) @ first.squeeze(0)) + (x[col] * of_targets) @ second.squeeze(0)
        out = torch.zeros_like(x).index_add_(0, col, message)
        return out @ F.normalize(third.squeeze(0), dim=-1)


class Spread(nn.Module):
    """What all nodes share, repeated for each node and each edge."""

    def __init__(self):
        super().__init__()
        self.lin, self.shift = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x, edge_index):
        row, col = edge_index
        h = self.lin(x)
        mean = h.mean(0, keepdim=True).repeat(x.shape[0], 1)
        shift = self.shift.expand(row.numel(), WIDTH)
        heads = self.shift.view(2, 1, -1).expand(-1, x.size(0), -1)
        return torch.zeros_like(h).index_add(0, col, torch.relu(h[row] + mean[col] + shift)) + heads.sum(0).repeat(1, 2)


class Tiled(nn.Module):
    """A repetition that is more than one for each node."""

    def forward(self, x, edge_index):
        row, col = edge_index
        return torch.zeros_like(x).index_add(0, col, x[row]) + x.mean(0).repeat(x.shape[0]).view(x.shape[0], -1)


class Ones(nn.Module):
    """Numbers that are the same everywhere, of several widths."""

    def forward(self, x, edge_index):
        row, col = edge_index
        narrow, wide = torch.ones(x.size(0), 1, dtype=x.dtype), torch.ones(x.size(0), 2 * WIDTH, dtype=x.dtype)
        return torch.zeros_like(x).index_add(0, col, x[row].relu()) * narrow, narrow + 0.5, wide + 0.5


class Standardised(nn.Module):
    """Deviations of all edges, and of what an edge has, from their means."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        values = self.lin(x)[row] * x[col]
        values = (values - values.mean(0)) / (values.std(0, keepdim=True) + values.std())
        within = values / (values.var(-1, unbiased=False, keepdim=True) + torch.var(values, dim=0, correction=0))
        # of one number, nothing deviates
        return torch.zeros_like(x).index_add(0, col, within + values[:, :1].std(1, correction=0, keepdim=True))


class Detached(nn.Module):
    """A softmax that is written out over the edges of each source, by detached maxima."""

    def forward(self, x, edge_index):
        row, col = edge_index
        score = (x[row] * x[col]).sum(-1)
        largest = scatter(score.detach(), row, 0, x.size(0), 'max')
        share = (score - largest[row]).exp()
        share = share / scatter(share, row, 0, x.size(0), 'sum')[row]
        return torch.zeros_like(x).index_add(0, col, share.unsqueeze(-1) * x[row])


class Extremes(nn.Module):
    """The larger of two values, and the largest of what an edge has, of which one that ties has the gradient."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        one, other = self.first(x)[row].relu(), self.second(x)[col].relu()
        larger = torch.max(one, other) - torch.min(one.t(), x[col].t()).t()
        largest, _ = torch.stack([one, other, larger]).max(dim=0)
        smallest = one.view(-1, 2, WIDTH // 2).min(1, keepdim=True).values.flatten(1)
        scale = torch.max(other, dim=-1, keepdim=True)[0] + smallest.sum(-1, keepdim=True)
        return torch.zeros_like(x).index_add(0, col, largest * scale) + x.max(0).values
