"""Modules that make edges of those that they are given by functions of torch: choose some, put others behind."""

import torch
from torch import nn
from torch_geometric.utils import degree, softmax

from tests.compiler.own_modules import OF_EDGES, WIDTH


class ByEnds(nn.Module):
    """No loops, by a mask."""

    def __init__(self):
        super().__init__()
        self.of_edges = nn.Linear(OF_EDGES, WIDTH)

    def forward(self, x, edge_index, edge_attr):
        mask = edge_index[0] != edge_index[1]
        edge_index, edge_attr = edge_index[:, mask], edge_attr[mask]
        row, col = edge_index
        return torch.zeros_like(x).index_add_(0, col, torch.tanh(x[row] - x[col] + self.of_edges(edge_attr)))


class ByWeights(nn.Module):
    """The edges of large weights, row by row, and one type of edges."""

    def forward(self, x, edge_index, edge_weight, edge_type):
        row, col = edge_index
        keep = (edge_weight > -0.3) & ~(edge_type == 2)
        row, col, weight = row[keep], col[keep], edge_weight[keep]
        score = softmax((x[row] * x[col]).sum(dim=-1) * weight, col, num_nodes=x.size(0))
        return torch.zeros_like(x).index_add_(0, col, x[row] * score.unsqueeze(-1))


class BothDirections(nn.Module):
    """Each edge there and back, with its features twice and a sign."""

    def __init__(self):
        super().__init__()
        self.of_edges = nn.Linear(OF_EDGES + 1, WIDTH)

    def forward(self, x, edge_index, edge_attr):
        row, col = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        sign = torch.ones(edge_attr.size(0), 1, dtype=x.dtype)
        attr = torch.cat([edge_attr.repeat(2, 1), torch.cat([sign, -sign])], dim=1)
        return torch.zeros_like(x).index_add_(0, row, x[col].sigmoid() * self.of_edges(attr))


class RowsOfBothDirections(nn.Module):
    def forward(self, x, edge_index, edge_weight):
        src, dst = edge_index[0], edge_index[1]
        src, dst = torch.cat([src, dst]), torch.cat([dst, src])
        weight = torch.cat((edge_weight, edge_weight))
        return torch.zeros_like(x).index_add_(0, dst, x[src] * weight[:, None])


class LoopsBehind(nn.Module):
    """A graph convolution, whose weights of loops are 1."""

    def forward(self, x, edge_index, edge_weight):
        num_nodes = x.size(0)
        loops = torch.arange(num_nodes, device=x.device).unsqueeze(0).repeat(2, 1)
        edge_index = torch.cat([edge_index, loops], dim=1)
        edge_weight = torch.cat([edge_weight.abs(), x.new_ones(num_nodes)])
        row, col = edge_index
        total = x.new_zeros(num_nodes).scatter_add_(0, row, edge_weight)
        scale = total.pow(-0.5)
        norm = scale[row] * edge_weight * scale[col]
        return torch.zeros_like(x).index_add_(0, row, norm.view(-1, 1) * x[col])


class LoopsOfRows(nn.Module):
    """The same by rows, without weights."""

    def forward(self, x, row, col):
        loops = torch.arange(x.size(0))
        row, col = torch.cat([row, loops]), torch.cat([col, loops])
        scale = degree(col, x.size(0), x.dtype).pow(-0.5)
        return torch.zeros_like(x).index_add_(0, col, (scale[row] * scale[col]).unsqueeze(-1) * x[row])


class OfEnds(nn.Module):
    """The edges as they are, and values that their ends tell, of which one counts them."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, WIDTH)

    def forward(self, x, edge_index, edge_weight):
        row, col = edge_index
        upwards = (row < col).to(x.dtype) * edge_weight
        kind = (row + 2 * col) % 3
        first = torch.where(row == col, 0.5, 2.0).to(x.dtype)
        message = x[row] * upwards.unsqueeze(-1) + self.table(kind) * first[:, None] * x[col].cos()
        return torch.zeros_like(x).index_add_(0, col, message)


class SharesOfBothEnds(nn.Module):
    """Weights of both directions, of which sums at either end are taken."""

    def forward(self, x, edge_index, edge_weight):
        row, col = torch.cat([edge_index, edge_index[:, ::2].flip(0)], dim=1)
        weight = torch.cat([edge_weight, edge_weight[::2]]).abs()
        left = x.new_zeros(x.size(0)).scatter_add_(0, row, weight)
        right = x.new_zeros(x.size(0)).scatter_add_(0, col, weight)
        share = weight / (left[row] * right[col] + 1).sqrt()
        return torch.zeros_like(x).index_add_(0, col, share.unsqueeze(-1) * x[row])


class InOrder(nn.Module):
    """Edges in the order of their weights, of which half are taken."""

    def forward(self, x, edge_index, edge_weight):
        weight, order = edge_weight.sort(descending=True)
        edge_index = edge_index[:, order][:, :40]
        row, col = edge_index.unbind(0)
        return torch.zeros_like(x).index_add_(0, col, x[row] * weight[:40].exp().unsqueeze(-1))


class Dropped(nn.Module):
    """Edges that are drawn while it trains."""

    def forward(self, x, edge_index):
        row, col = edge_index
        if self.training:
            keep = torch.rand(row.numel()) > 0.4
            row, col = row[keep], col[keep]
        return torch.zeros_like(x).index_add_(0, col, (x[row] - x[col]).tanh())


class WithoutGradients(nn.Module):
    """Weights that no gradient reaches once they are chosen."""

    def forward(self, x, edge_index, edge_weight):
        mask = edge_index[0] <= edge_index[1]
        with torch.no_grad():
            weight = edge_weight[mask]
        row, col = edge_index[:, mask]
        scaled = torch.zeros_like(x).index_add_(0, col, x[row] * weight.unsqueeze(-1))
        return scaled + torch.zeros_like(x).index_add_(0, col, x[row] * edge_weight[mask].unsqueeze(-1))


class OfOneEnd(nn.Module):
    """Features of the edges that it chooses, added up at one end."""

    def __init__(self):
        super().__init__()
        self.of_edges = nn.Linear(OF_EDGES, WIDTH)

    def forward(self, x, edge_index, edge_attr, edge_type):
        chosen = edge_type != 3
        target = edge_index[1][chosen]
        return x + torch.zeros_like(x).index_add_(0, target, self.of_edges(edge_attr[chosen]).tanh())


class OfTwoSets(nn.Module):
    """Edges of one type between users and items."""

    def forward(self, users, items, edge_index, edge_type):
        user, item = edge_index[:, edge_type == 1]
        out = torch.zeros_like(items).index_add_(0, item, users[user] * items[item].sigmoid())
        return out + items
