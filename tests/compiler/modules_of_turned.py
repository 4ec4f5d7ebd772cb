"""Modules whose values have their rows at another dimension than the first."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.utils import scatter, softmax

from tests.compiler.own_modules import WIDTH

HEADS = 2


class SparseAttention(nn.Module):
    """Graph attention as one reads it most: both ends of an edge in a column, and a map from the left."""

    def __init__(self):
        super().__init__()
        self.weight, self.a = nn.Parameter(torch.randn(WIDTH, WIDTH) / 4), nn.Parameter(torch.randn(1, 2 * WIDTH) / 4)

    def forward(self, x, edge_index):
        h = torch.mm(x, self.weight)
        both = torch.cat((h[edge_index[0], :], h[edge_index[1], :]), dim=1).t()
        weight = torch.exp(-F.leaky_relu(self.a.mm(both).squeeze(), 0.2))
        total = x.new_zeros(x.size(0)).index_add_(0, edge_index[1], weight)
        return torch.zeros_like(h).index_add_(0, edge_index[1], weight[:, None] * h[edge_index[0]]) / (
            total[:, None] + 1e-16
        )


class HeadsFirst(nn.Module):
    """Attention whose heads stand before nodes and edges."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def heads(self, x):
        return x.view(-1, HEADS, WIDTH // HEADS).permute(1, 0, 2)

    def forward(self, x, edge_index):
        row, col = edge_index
        query, key, value = (self.heads(lin(x)) for lin in (self.query, self.key, self.value))
        score = (query[:, col] * key[:, row]).sum(-1) / math.sqrt(WIDTH)
        share = softmax(score, col, num_nodes=x.size(0), dim=1)
        out = torch.zeros_like(value).index_add(1, col, share.unsqueeze(-1) * value[:, row])
        return out.permute(1, 0, 2).reshape(-1, WIDTH)


class Diffusion(nn.Module):
    """The attention of a diffusion: channels before heads, then both before edges."""

    def __init__(self):
        super().__init__()
        self.lin, self.a = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(WIDTH, 1, 1))

    def forward(self, x, edge_index):
        h = self.lin(x).view(-1, HEADS, WIDTH // HEADS).transpose(1, 2)
        both = torch.cat((h[edge_index[0], :, :], h[edge_index[1], :, :]), dim=1).transpose(0, 1)
        score = F.leaky_relu(torch.sum(self.a * both, dim=0))
        share = softmax(score, edge_index[1], num_nodes=x.size(0)).mean(dim=1)
        return torch.zeros_like(x).index_add(0, edge_index[1], share[:, None] * x[edge_index[0]])


class Reshaped(nn.Module):
    """What is done to dimensions before, behind and beside that of nodes and edges."""

    def __init__(self):
        super().__init__()
        self.lin, self.scale = nn.Linear(WIDTH // HEADS, WIDTH // HEADS), nn.Parameter(torch.randn(HEADS, 1, 1))

    def forward(self, x, edge_index):
        row, col = edge_index
        h = x.reshape(-1, HEADS, WIDTH // HEADS).transpose(0, 1)
        assert h.shape[0] == h.size(0) == HEADS
        assert h.dim() == 3
        h = self.lin(h) * self.scale + 1
        far, near = h[:, row], h[:, col, :]
        both = torch.cat([far, near - far], dim=-1).unflatten(-1, (2, -1)).unsqueeze(0)
        first, second = (both * 1.5).squeeze(0).unbind(dim=2)
        gate = torch.stack([first, second], dim=0).amax(dim=(0, 3), keepdim=True).squeeze(0)
        length = F.normalize(first, dim=2).norm(dim=-1, keepdim=True)
        values = torch.where(gate > 0, first, second.tanh()).clamp(-2, 2) * length
        values += torch.sigmoid(gate)
        values = values.contiguous().view(HEADS, -1, WIDTH // HEADS).relu_()
        parts = values.flatten(2).split(WIDTH // HEADS // 2, dim=-1)
        out = scatter(torch.cat([parts[1], parts[0].mean(dim=0, keepdim=True).expand_as(parts[0])], -1), col, 1,
                      x.size(0))  # fmt: skip
        return torch.einsum('hnd->nhd', out).flatten(1)


class HeadsWithMaps(nn.Module):
    """A matrix for each head, and zeros that are made with heads first."""

    def __init__(self):
        super().__init__()
        self.maps, self.weights = (
            nn.Parameter(torch.randn(HEADS, WIDTH // HEADS, WIDTH)),
            nn.Parameter(torch.randn(HEADS, WIDTH)),
        )

    def forward(self, x, edge_index):
        row, col = edge_index
        h = torch.bmm(x.view(-1, HEADS, WIDTH // HEADS).permute(1, 0, 2), self.maps)
        score = torch.einsum('hed,hd->he', torch.tanh(h[:, row] + h[:, col]) * x[row].cos(), self.weights) + x[col, 0]
        share = torch.sigmoid(score)
        out = x.new_zeros(HEADS, x.shape[0], WIDTH).index_add_(1, col, h[:, row, :] * share[..., None])
        return out.sum(0)


class AllToAll(nn.Module):
    """Linear attention of all nodes to all, beside that along edges."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        query, key, value = self.lin(x).chunk(3, dim=-1)
        key = key.T.softmax(dim=1)
        everywhere = query.softmax(dim=-1) @ (key @ value)
        return everywhere + torch.zeros_like(x).index_add(0, col, (value[row] * query[col]).relu())


class InPlace(nn.Module):
    """Writes into values and into views of them, which are read afterwards by the same name."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        values = self.lin(x)[row].t()
        values *= 0.5
        values.clamp_(min=-1).add_(values.sum(0, keepdim=True))
        return torch.zeros_like(x).index_add(0, col, values.T.tanh())


class Lifted(nn.Module):
    """Nodes and edges as the one sample of a batch."""

    def __init__(self):
        super().__init__()
        self.lin, self.linear = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        h = torch.tanh(self.lin(x)).unsqueeze(0)
        query, key = h[None, ..., None].squeeze(0).squeeze(-1), self.linear(h).view(1, -1, WIDTH)
        dense = torch.softmax(query @ key.transpose(-2, -1), dim=-1) @ h
        score = (x[row] * x[col]).sum(-1).view(1, -1).sigmoid().squeeze(0)
        return torch.zeros_like(x).index_add(0, col, score[:, None] * x[row]) + dense.squeeze(0) + dense[0]


class Returned(nn.Module):
    """Results whose rows are not the first dimension."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        values = self.lin(x)[row].relu()
        scores = values.t().view(HEADS, -1, values.size(0)).sum(1)
        out = torch.zeros_like(x).index_add(0, col, values)
        return out.t().contiguous(), scores + 1


class OverEdges(nn.Module):
    """Sums and means over all edges."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        values = (self.lin(x)[row] * x[col]).t()
        share = torch.sigmoid(values.mean(1))
        return torch.zeros_like(x).index_add(0, col, values.t() * share) + values.sum()


class SortedEdges(nn.Module):
    """A function of all edges that none stands for."""

    def forward(self, x, edge_index):
        row, col = edge_index
        ranks = x[row].t().cumsum(1).tanh()
        return torch.zeros_like(x).index_add(0, col, ranks.t())


class WrittenInto(nn.Module):
    """A write by an index."""

    def forward(self, x, edge_index):
        row, col = edge_index
        values = (x[row] * x[col]).t()
        values[0] = 0.0
        return torch.zeros_like(x).index_add(0, col, values.t())


class PartsOfRows(nn.Module):
    """Rows of nodes, and at once what is in them."""

    def forward(self, x, edge_index):
        row, col = edge_index
        near = x[row, :2] - x[col, ..., -2:] * x[row, 0, None] + x[col, None, 1]
        return torch.zeros_like(x[:, :2]).index_add(0, col, near.tanh() * x[col, :][:, :2])


class WithoutGradients(nn.Module):
    """Functions of all nodes that get no gradient."""

    def forward(self, x, edge_index):
        row, col = edge_index
        with torch.no_grad():
            everywhere, share = x.t() @ x, x.t().softmax(dim=1)
        return torch.zeros_like(x).index_add(0, col, (x @ everywhere * share.t())[row].tanh())


class WrittenDiagonal(nn.Module):
    """A write into a view of nodes by a function that none stands for."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        h = self.lin(x).view(-1, HEADS, WIDTH // HEADS).transpose(0, 1)
        diagonal = h.diagonal(0, 0, 2)
        diagonal *= 2
        return torch.zeros_like(x).index_add(0, col, h.transpose(0, 1).flatten(1)[row].relu())


class OneHead(nn.Module):
    """A head before nodes, and rows of it at once."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        h = self.lin(x).view(-1, HEADS, WIDTH // HEADS).transpose(0, 1)
        first, second = h
        message = h[0, row] * h[1, col] + h[-1, row, :] + h[None, 0, row][0] - first[row] * second[col].cos()
        return torch.zeros_like(h[0]).index_add(0, col, message.tanh())


class WrittenViews(nn.Module):
    """Writes into views whose first dimension is new.

    Args:
        view: How it sees values of edges.
    """

    def __init__(self, view):
        super().__init__()
        self.view, self.lin = view, nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        h = self.lin(x)[row]
        seen = VIEWS[self.view](h)
        seen += 1
        return torch.zeros_like(x).index_add(0, col, h.tanh())


VIEWS = {
    'unsqueeze': lambda h: h.unsqueeze(0),
    'view': lambda h: h.view(1, -1, WIDTH),
    'index': lambda h: h[None],
    't': lambda h: h.t(),
    'part': lambda h: h.t()[0],
    'permute': lambda h: h.view(-1, HEADS, WIDTH // HEADS).permute(2, 0, 1),
}
