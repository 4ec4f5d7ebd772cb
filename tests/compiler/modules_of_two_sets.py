"""Modules whose edges lead from nodes of one set to those of another, as their authors write them."""

import torch
from torch import nn
from torch_geometric.utils import degree, scatter, softmax

from tests.compiler.own_modules import OF_EDGES, WIDTH


class Classifier(nn.Module):
    """Scores of links between users and films, which nothing is computed of."""

    def forward(self, x_user, x_movie, edge_label_index):
        return (x_user[edge_label_index[0]] * x_movie[edge_label_index[1]]).sum(dim=-1)


class Decoder(nn.Module):
    """The same by a network, of the states that a dict holds."""

    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, z_dict, edge_label_index):
        row, col = edge_label_index
        z = torch.cat([z_dict['user'][row], z_dict['movie'][col]], dim=-1)
        return self.lin2(self.lin1(z).relu()).view(-1)


class Encoder(nn.Module):
    """From a grid to a mesh: states of edges and of both ends."""

    def __init__(self):
        super().__init__()
        self.of_edges = nn.Sequential(nn.Linear(OF_EDGES + 2 * WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, OF_EDGES))
        self.of_mesh = nn.Linear(WIDTH + OF_EDGES, WIDTH)
        self.of_grid = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU())

    def forward(self, grid, mesh, edge_attr, edge_index):
        src, dst = edge_index
        states = edge_attr + self.of_edges(torch.cat([edge_attr, grid[src], mesh[dst]], dim=-1))
        received = mesh.new_zeros(mesh.size(0), OF_EDGES).index_add_(0, dst, states)
        return grid + self.of_grid(grid), mesh + self.of_mesh(torch.cat([mesh, received], dim=-1)), states


class CrossAttention(nn.Module):
    """Attention of targets to sources, of which those without targets have any rows."""

    def __init__(self, heads=2):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x_src, x_dst, edge_index):
        src, dst = edge_index
        query = self.query(x_dst).unflatten(-1, (self.heads, -1))
        key, value = (lin(x_src).unflatten(-1, (self.heads, -1)) for lin in (self.key, self.value))
        score = (query[dst] * key[src]).sum(-1) * (WIDTH / self.heads) ** -0.5
        share = softmax(score, dst, num_nodes=x_dst.size(0)).unsqueeze(-1)
        return scatter(share * value[src], dst, dim=0, dim_size=x_dst.size(0), reduce='sum').flatten(1)


class Hyperedges(nn.Module):
    """From nodes to the hyperedges that hold them and back, as averages."""

    def __init__(self):
        super().__init__()
        self.lin, self.back = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, e, node_idx, edge_idx):
        sizes = x.new_zeros(e.size(0)).index_add_(0, edge_idx, torch.ones_like(edge_idx, dtype=x.dtype)).clamp(min=1)
        held = x.new_zeros(e.size(0), WIDTH).index_add_(0, edge_idx, self.lin(x)[node_idx]) / sizes.unsqueeze(-1)
        e = torch.relu(self.back(held)) + e
        return x + scatter(e[edge_idx], node_idx, dim=0, dim_size=x.size(0), reduce='mean'), e


class ToSenders(nn.Module):
    """Reduces to the nodes of the first row alone."""

    def forward(self, x, y, edge_index, num_senders):
        row, col = edge_index
        messages = torch.tanh(x[row] + y[col])
        return x.new_zeros(num_senders, WIDTH).index_add_(0, row, messages)


class WeighedBothWays(nn.Module):
    """Shares of what targets receive, and of what sources send, at both ends."""

    def forward(self, x, y, edge_index, edge_attr):
        row, col = edge_index
        received = softmax(edge_attr[:, :1], col, num_nodes=y.size(0))
        message = x[row] * y[col]
        sent = softmax(message - x[row], row)
        to_targets = scatter(message * received, col, dim=0, dim_size=y.size(0), reduce='sum')
        to_sources = scatter(message * received, row, dim=0, dim_size=x.size(0), reduce='sum')
        return to_targets, to_sources + scatter(message * sent, row, dim=0, dim_size=x.size(0), reduce='max')


class SentInShares(nn.Module):
    """Shares of what sources send, of numbers of theirs alone, of what no program has words for."""

    def forward(self, x, y, a, edge_index):
        row, col = edge_index
        y = y + scatter(x[row] + y[col], col, dim=0, dim_size=y.size(0), reduce='sum')
        sent = torch.cumsum(x[row] * y[col], dim=-1)
        return x + scatter(sent * softmax(a[row], row), row, dim=0, dim_size=x.size(0), reduce='max'), y


class Listeners(nn.Module):
    """What targets hear of sources, of which the call brings the targets first."""

    def forward(self, x_dst, x_src, edge_index):
        src, dst = edge_index
        heard = torch.relu(x_src[src] - x_dst[dst])
        return scatter(heard, dst, dim=0, dim_size=x_dst.size(0), reduce='mean')


class SharesOfShares(nn.Module):
    """What sources send of shares that targets decide alone."""

    def forward(self, x, y, a, edge_index):
        row, col = edge_index
        share = softmax(softmax(y[:, :1][col], col, num_nodes=y.size(0)), row)
        return y + scatter(x[row] * a[row] * share, col, dim=0, dim_size=y.size(0), reduce='sum')


class LikedBy(nn.Module):
    """Scores of links, of which the call brings the nodes of the second row first."""

    def forward(self, x_movie, x_user, edge_label_index):
        return (x_user[edge_label_index[0]] - x_movie[edge_label_index[1]]).tanh()


class Counted(nn.Module):
    """What a message by hand makes of numbers of nodes: rows of ones for both, and the edges of both."""

    def forward(self, x, y, edge_index):
        row, col = edge_index
        ones = torch.ones_like(x), x.new_full((y.size(0), WIDTH), 2.0)
        degrees = degree(row, x.size(0), x.dtype).unsqueeze(-1), degree(col, y.size(0), x.dtype).unsqueeze(-1)
        sent = ones[1].index_add(0, col, x[row] / degrees[0][row])
        return sent * degrees[1], ones[0].index_add(0, row, y[col]) * degrees[0]
