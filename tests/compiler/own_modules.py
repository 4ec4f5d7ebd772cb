"""Layers that gather and reduce along edges themselves, as users write them: what the tests compile whole."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GraphNorm
from torch_geometric.utils import degree, scatter, softmax

WIDTH, OF_EDGES, NODES, EDGES = 8, 3, 30, 200


def segment_sum(data, segments, count):
    """As the code of equivariant networks has it."""
    result = data.new_full((count, data.size(1)), 0)
    segments = segments.unsqueeze(-1).expand(-1, data.size(1))
    result.scatter_add_(0, segments, data)
    return result


def segment_mean(data, segments, count):
    shape = (count, data.size(1))
    segments = segments.unsqueeze(-1).expand(-1, data.size(1))
    result, counts = data.new_full(shape, 0), data.new_full(shape, 0)
    result.scatter_add_(0, segments, data)
    counts.scatter_add_(0, segments, torch.ones_like(data))
    return result / counts.clamp(min=1)


class Equivariant(nn.Module):
    """E(n)-equivariant graph convolution, which reduces to row 0."""

    def __init__(self, attention=True, normalize=False, mean=True, tanh=False):
        super().__init__()
        self.normalize, self.mean, self.epsilon = normalize, mean, 1e-8
        self.edge_mlp = nn.Sequential(
            nn.Linear(2 * WIDTH + 1 + OF_EDGES, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()
        )
        self.node_mlp = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        moves = [nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1, bias=False)]
        self.coord_mlp = nn.Sequential(*moves, nn.Tanh()) if tanh else nn.Sequential(*moves)
        self.att_mlp = nn.Sequential(nn.Linear(WIDTH, 1), nn.Sigmoid()) if attention else None

    def between(self, edge_index, coord):
        row, col = edge_index
        difference = coord[row] - coord[col]
        radial = torch.sum(difference**2, 1).unsqueeze(1)
        if self.normalize:
            difference = difference / (torch.sqrt(radial).detach() + self.epsilon)
        return radial, difference

    def forward(self, h, edge_index, coord, edge_attr):
        row, col = edge_index
        radial, difference = self.between(edge_index, coord)
        messages = self.edge_mlp(torch.cat([h[row], h[col], radial, edge_attr], dim=1))
        if self.att_mlp is not None:
            messages = messages * self.att_mlp(messages)
        moved = difference * self.coord_mlp(messages)
        coord = coord + (segment_mean if self.mean else segment_sum)(moved, row, coord.size(0))
        h = h + self.node_mlp(torch.cat([h, segment_sum(messages, row, h.size(0))], dim=1))
        return h, coord, edge_attr


class Attention(nn.Module):
    """Heads of attention over gathered scores, with a skip connection and a bias that is added in place."""

    def __init__(self, heads=2, dropout=0.0):
        super().__init__()
        self.heads, self.channels, self.dropout = heads, WIDTH // heads, nn.Dropout(dropout)
        self.lin, self.skip = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.of_source = nn.Parameter(torch.randn(1, heads, self.channels))
        self.of_target = nn.Parameter(torch.randn(1, heads, self.channels))
        self.bias = nn.Parameter(torch.randn(WIDTH))

    def forward(self, data):
        x, edge_index = data
        h = self.lin(self.dropout(x)).view(-1, self.heads, self.channels)
        source, target = (h * self.of_source).sum(-1), (h * self.of_target).sum(-1)
        score = F.leaky_relu(source.index_select(0, edge_index[0]) + target.index_select(0, edge_index[1]), 0.2)
        weight = softmax(score, edge_index[1], num_nodes=x.shape[0]).unsqueeze(-1)
        weighed = h.index_select(0, edge_index[0]) * self.dropout(weight)
        size = list(weighed.shape)
        size[0] = x.shape[0]
        out = torch.zeros(size, dtype=x.dtype, device=x.device)
        index = edge_index[1]
        for _ in range(index.dim(), weighed.dim()):
            index = index.unsqueeze(-1)
        out.scatter_add_(0, index.expand_as(weighed), weighed)
        if not out.is_contiguous():
            out = out.contiguous()
        out += self.skip(x).view(-1, self.heads, self.channels)
        out = out.view(-1, self.heads * self.channels)
        out += self.bias
        return out, edge_index


class Mean(nn.Module):
    """What most write: a network of both ends, added up and divided by a count."""

    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x, edge_index):
        src, dst = edge_index
        messages = self.mlp(torch.cat([x[src], x[dst]], dim=-1))
        out = torch.zeros_like(x)
        out.index_add_(0, dst, messages)
        count = torch.zeros(x.size(0), device=x.device, dtype=x.dtype)
        count.index_add_(0, dst, torch.ones(dst.size(0), device=x.device, dtype=x.dtype))
        return self.norm(x + out / count.clamp(min=1.0).unsqueeze(1))


class Normalised(nn.Module):
    """GCN by hand: degrees, their roots, several hops."""

    def __init__(self, hops=3):
        super().__init__()
        self.lin, self.hops = nn.Linear(WIDTH, 5), hops

    def forward(self, x, edge_index, num_nodes):
        row, col = edge_index
        deg = torch.zeros(num_nodes, dtype=x.dtype).index_add_(0, col, torch.ones_like(col, dtype=x.dtype))
        roots = deg.pow(-0.5)
        roots[roots == float('inf')] = 0
        norm = roots[row] * roots[col]
        x = self.lin(x)
        for _ in range(self.hops):
            x = x.new_zeros(num_nodes, x.size(1)).index_add(0, col, x[row] * norm.view(-1, 1)) + 0.1 * x
        return x


class Recurrent(nn.Module):
    """Gated updates of nodes by PyG's functions, with batch normalisation of nodes."""

    def __init__(self):
        super().__init__()
        self.lin, self.cell, self.norm = nn.Linear(WIDTH, WIDTH), nn.GRUCell(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)

    def forward(self, h, edge_index, edge_weight=None):
        m = self.lin(h)[edge_index[0]]
        m = m if edge_weight is None else m * edge_weight.view(-1, 1)
        h = self.cell(scatter(m, edge_index[1], dim=0, dim_size=h.size(0), reduce='sum'), h)
        return self.norm(h).relu()


class WrittenSoftmax(nn.Module):
    """Scores that are moved by the largest of all, their exponentials divided by sums."""

    def __init__(self):
        super().__init__()
        self.score = nn.Linear(2 * WIDTH, 2)

    def forward(self, x, edge_index):
        row, col = edge_index
        score = F.leaky_relu(self.score(torch.cat([x[row], x[col]], dim=1)), 0.2)
        score = (score - score.max()).exp()
        total = torch.zeros(x.size(0), 2, dtype=x.dtype).index_add_(0, col, score)
        weight = score / (total.index_select(0, col) + 1e-16)
        return torch.zeros(x.size(0), 2, 4, dtype=x.dtype).index_add_(
            0, col, x[row].view(-1, 2, 4) * weight.unsqueeze(-1)
        )


class Guarded(nn.Module):
    """What stands around a layer in practice: a look at the number of edges, a device, a norm over graphs."""

    def __init__(self):
        super().__init__()
        self.lin, self.norm = nn.Linear(2 * WIDTH, WIDTH), GraphNorm(WIDTH)

    def forward(self, x, edge_index, batch, *others, **more):
        if edge_index.numel() == 0 or not edge_index.size(1) > 0:
            return x
        row, col = edge_index
        out = torch.zeros(x.size(0), x.size(1), dtype=x.dtype).to(x.device)
        out.index_add_(0, col, self.lin(torch.cat([x[row, :], x[col, :]], dim=1)).relu())
        return x + self.norm(out, batch)


class Interaction(nn.Module):
    """Scalars and vectors of atoms, whose neighbours are two arguments."""

    def __init__(self):
        super().__init__()
        self.context = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 3 * WIDTH))
        self.filter = nn.Linear(OF_EDGES, 3 * WIDTH)

    def forward(self, q, mu, basis, direction, idx_i, idx_j, n_atoms):
        x = self.filter(basis) * self.context(q)[idx_j]
        dq, of_direction, of_mu = torch.split(x, q.shape[-1], dim=-1)
        dmu = of_direction.unsqueeze(1) * direction.unsqueeze(2) + of_mu.unsqueeze(1) * mu[idx_j]
        dq = torch.zeros((n_atoms, WIDTH), dtype=q.dtype, device=q.device).index_add(0, idx_i, dq)
        dmu = torch.zeros((n_atoms, 3, WIDTH), dtype=q.dtype, device=q.device).index_add(0, idx_i, dmu)
        return [q + dq, mu + dmu]


class Scores(nn.Module):
    """A score for each edge, and nothing for nodes."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, z, edge_index):
        return (self.lin(z)[edge_index[0]] * z[edge_index[1]]).sum(dim=-1).sigmoid()


class States(nn.Module):
    """New states of edges and of nodes, with what is constant and what was given among the results."""

    def __init__(self):
        super().__init__()
        self.of_edges, self.of_nodes = nn.Linear(2 * WIDTH + OF_EDGES, OF_EDGES), nn.Linear(WIDTH + OF_EDGES, WIDTH)

    def forward(self, x, edge_index, edge_attr, scale=None):
        row, col = edge_index[0], edge_index[1]
        edge_attr = edge_attr + self.of_edges(torch.cat([x[row], x[col], edge_attr], dim=-1)).relu()
        out = scatter(edge_attr, col, dim=0, dim_size=x.size(0), reduce='mean')
        return self.of_nodes(torch.cat([x, out], dim=-1)), edge_attr, scale, x, 3


class Extremes(nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        places = col.view(-1, 1).repeat(1, x.size(1))
        most = torch.zeros_like(x).scatter_reduce(0, places, x[row], 'amax', include_self=False)
        least = x.new_zeros(x.shape).scatter_reduce_(0, places, x[row] + x[col], 'amin', include_self=False)
        mean = x.new_zeros(x.shape).scatter_reduce(0, places, x[row], reduce='mean', include_self=False)
        above = torch.full_like(x, -0.5).scatter_reduce(0, places, x[row], 'amax')
        below = torch.full((x.size(0), x.size(1)), 0.5, dtype=x.dtype).scatter_reduce(0, places, x[row], 'amin')
        others = x.new_full(x.shape, 2.0).scatter_reduce(0, places, x[row], 'amax', include_self=False)
        return torch.cat([most, least, mean, above, below, others], dim=1)


class Onto(nn.Module):
    """Sums that are added to what is there, weighed, and means that count it."""

    def forward(self, x, edge_index):
        row, col = edge_index
        out = (x * 2).index_add(0, col, x[row].sin(), alpha=0.5)
        places = col[:, None].expand(-1, x.shape[1])
        out = out.scatter_add(0, places, x[row] * x[col])
        out = out.scatter_reduce(0, places, x[row].cos(), 'mean')
        mean = torch.zeros_like(x).scatter_reduce_(0, places, x[row] * x[col], 'mean')
        return mean + out.index_add(0, col, torch.ones_like(x[row]))


class Constants(nn.Module):
    """Numbers that all edges have among what a network takes, and among what is added up."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2 * WIDTH + 1, WIDTH)

    def forward(self, x, edge_index):
        row, col = edge_index
        ones = torch.ones(row.size(0), 1, dtype=x.dtype, device=x.device)
        out = scatter(self.lin(torch.cat([x[row], x[col], ones], dim=-1)).relu(), col, 0, x.size(0))
        # of a target without edges nothing is added
        out = out + torch.zeros_like(x).index_add(0, col, torch.full_like(x[row], float('inf'))).clamp(max=1.0)
        return out / (scatter(ones * 2, col, 0, x.size(0)) + scatter(ones, col, 0, x.size(0), reduce='sum') + 1)


class Twice(nn.Module):
    """Two sums into the same zeros."""

    def forward(self, x, edge_index):
        row, col = edge_index
        out = torch.zeros_like(x)
        out.index_add_(0, col, x[row].sin())
        out.index_add_(0, col, x[row] * x[col])
        return out


class Degrees(nn.Module):
    def forward(self, x, edge_index):
        row, col = edge_index
        norm = 1 / degree(col, x.size(0), x.dtype).clamp(min=1).sqrt()
        out = scatter(norm[row].unsqueeze(1) * x[row], col, 0, x.size(0)) * norm.unsqueeze(1)
        return F.normalize(out, dim=-1)


class Typed(nn.Module):
    """Rows of tables by numbers of nodes, of edges and of graphs."""

    def __init__(self):
        super().__init__()
        self.of_nodes, self.of_edges = nn.Embedding(5, WIDTH), nn.Embedding(4, WIDTH)

    def forward(self, z, edge_index, edge_type, u, batch):
        x = self.of_nodes(z) + u[batch]
        out = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * self.of_edges(edge_type))
        return out + x


class WithinOthers(nn.Module):
    """Blocks of its own, one after the other."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Mean() for _ in range(2)])

    def forward(self, x, edge_index):
        for block in self.blocks:
            x = x + block(x, edge_index)
        return x


class Triplets(nn.Module):
    """Edges of molecules as nodes, which send products of what they hold, of numbers of an angle, and of a table."""

    def __init__(self, of_angles=4):
        super().__init__()
        self.lin, self.angles = nn.Linear(WIDTH, WIDTH), nn.Linear(OF_EDGES, of_angles, bias=False)
        self.table = nn.Parameter(torch.randn(WIDTH, of_angles, WIDTH))
        self.product = nn.Bilinear(WIDTH, of_angles, 3)

    def forward(self, x, sbf, of_kj, of_ji):
        sbf, x_kj = self.angles(sbf), F.silu(self.lin(x))
        sent = torch.einsum('wj,wl,ijl->wi', sbf, x_kj[of_kj], self.table)
        out = x + scatter(sent, of_ji, dim=0, dim_size=x.size(0), reduce='sum')
        most = scatter(self.product(x_kj[of_ji], sbf), of_ji, dim=0, dim_size=x.size(0), reduce='max')
        return torch.cat([out, most], dim=-1)


class Both(nn.Module):
    """Reductions to both ends of the edges: of weighed neighbours, of distances, of what all edges have."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5 * WIDTH + 3, WIDTH)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        start, end = edge_index
        weight, count = edge_weight.sigmoid().unsqueeze(-1), x.size(0)
        to_end = scatter(weight * x[start], end, dim=0, dim_size=count)
        to_start = scatter(weight * x[end], start, dim=0, dim_size=count, reduce='mean')
        most = torch.full_like(x, -1.0).scatter_reduce(0, start[:, None].expand(-1, WIDTH), x[end] - x[start], 'amax')
        near = torch.zeros_like(x).index_add_(0, start, x[end] * (x[end] - x[start]).norm(dim=-1, keepdim=True))
        degrees = torch.zeros(count, dtype=x.dtype).index_add_(0, start, torch.ones_like(edge_weight))
        of_edges = torch.zeros(count, 3, dtype=x.dtype).index_add(0, start, edge_attr)
        own = torch.zeros_like(x).index_add_(0, start, x[start].sin())
        x = torch.zeros_like(x).index_add_(0, start, torch.where(x[end] > 0.1, x[end], 0.5 * x[start])) + own
        return self.lin(torch.cat([to_end, to_start, most, near / (1 + degrees).view(-1, 1), x, of_edges], dim=-1))


class Tracks(nn.Module):
    """New states of nodes by what edges hold that arrive and leave, and then of the edges, twice."""

    def __init__(self):
        super().__init__()
        self.nodes = nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.edges = nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.first = nn.Linear(OF_EDGES, WIDTH)

    def forward(self, x, edge_index, edge_attr):
        start, end = edge_index
        e = self.first(edge_attr)
        for _ in range(2):
            sums = [torch.zeros_like(x).index_add(0, place, e) for place in (end, start)]
            x = x + self.nodes(torch.cat([*sums, x], dim=-1))
            e = e + self.edges(torch.cat([x[start], x[end], e], dim=-1))
        return x, e


class SharedNetwork(nn.Module):
    """A network of both ends, whose values go to both, to one with a factor."""

    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x, edge_index, coord):
        row, col = edge_index
        messages = self.mlp(torch.cat([x[row], x[col]], dim=-1))
        factor = torch.cos((coord[row] - coord[col]).pow(2).sum(-1, keepdim=True))
        out = torch.zeros_like(x).index_add_(0, row, messages)
        out.index_add_(0, col, messages * factor)
        return out.index_add(0, col, x[row] * factor)
