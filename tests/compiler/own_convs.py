"""Convolutions as users write them: what the tests compile."""

import torch
import torch.nn.functional as F
from torch.nn import Linear, Parameter
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter, softmax

SCALE = 1.0


class Own(MessagePassing):
    """A layer whose ``propagate`` takes what its message asks for."""

    def __init__(self, aggr='sum', **options):
        super().__init__(aggr, **options)

    def forward(self, edge_index, **given):
        return self.propagate(edge_index, **given)


class NaiveAttention(Own):
    """GAT as a beginner writes it."""

    def __init__(self, width=8):
        super().__init__()
        self.score = Linear(2 * width, 1)

    def message(self, x_i, x_j, index, ptr, size_i):
        alpha = F.leaky_relu(self.score(torch.cat([x_i, x_j], dim=-1)), 0.2)
        return softmax(alpha, index, ptr, size_i) * x_j


class HeadedAttention(Own):
    """Several heads, features of edges, dropout of attention."""

    def __init__(self, width=8, heads=2, edge_dim=3, dropout=0.0):
        super().__init__(node_dim=0)
        self.heads, self.dropout = heads, dropout
        self.lin, self.lin_edge = Linear(width, width), Linear(edge_dim, width, bias=False)
        self.att = Parameter(torch.randn(1, heads, 3 * width // heads))

    def message(self, x_i, x_j, edge_attr, index, ptr, size_i):
        rows = [self.lin(x_i), self.lin(x_j), self.lin_edge(edge_attr)]
        rows = [row.view(-1, self.heads, row.size(-1) // self.heads) for row in rows]
        alpha = (torch.cat(rows, dim=-1) * self.att).sum(dim=-1)
        alpha = softmax(F.leaky_relu(alpha, 0.2), index, ptr, size_i)
        alpha = F.dropout(alpha, self.dropout, self.training)
        return (alpha.unsqueeze(-1) * rows[1]).flatten(1)


class DotAttention(Own):
    def message(self, x_i, x_j, edge_weight, index, ptr, size_i):
        alpha = (x_i * x_j).sum(dim=-1) / x_i.size(-1) ** 0.5 + edge_weight
        return softmax(alpha, index, ptr, size_i).view(-1, 1) * torch.tanh(x_j)


class Gate(Own):
    def __init__(self, width=8, edge_dim=3):
        super().__init__('mean')
        self.gate, self.value = Linear(2 * width + edge_dim, width), Linear(width, width)

    def message(self, x_i, x_j, edge_attr):
        return torch.sigmoid(self.gate(torch.cat([x_i, x_j, edge_attr], dim=1))) * self.value(x_j)


class Distance(Own):
    """What an isolated node must not spoil: a root of something that may be zero."""

    def message(self, x_i, x_j):
        return (x_j / x_j.square().sum(-1, keepdim=True).sqrt() - x_i).abs()


class TwoLayers(Own):
    """A network on edges whose last map is taken after the sum."""

    def __init__(self, width=8):
        super().__init__('mean')
        self.nn = torch.nn.Sequential(Linear(2 * width, 6), torch.nn.ReLU(), Linear(6, 5))

    def message(self, x_i, x_j):
        return self.nn(torch.cat([x_i, x_j - x_i], dim=-1))


class Network(Own):
    """A network on edges before a maximum: it runs on chunks of edges."""

    def __init__(self, width=8, aggr='max'):
        super().__init__(aggr)
        stages = [Linear(2 * width, 6), torch.nn.SiLU(), Linear(6, 7, bias=False), torch.nn.Tanh(), Linear(7, 5)]
        self.nn = torch.nn.Sequential(*stages)

    def message(self, x_i, x_j):
        return self.nn(torch.cat([x_i, x_j - x_i], dim=-1))


class NetworkOfMeans(Network):
    def __init__(self):
        super().__init__(aggr='mean')
        self.nn.append(torch.nn.LeakyReLU(0.2))


class NormalisedTwice(Own):
    """A softmax that is no weight of a program: it is taken apart."""

    def message(self, x_i, x_j, index, ptr, size_i):
        alpha = softmax((x_i - x_j).abs(), index, ptr, size_i)
        return (1 - alpha) * x_j


class Centred(Own):
    """Two reductions in `aggregate`, and one that goes back to the edges."""

    def message(self, x_j, x_i):
        return torch.tanh(x_j + x_i)

    def aggregate(self, inputs, index, dim_size=None):
        mean = scatter(inputs, index, 0, dim_size, reduce='mean')
        return scatter((inputs - mean[index]).square(), index, 0, dim_size, reduce='sum')


class InPlace(Own):
    def message(self, x_i, x_j):
        out = x_i - x_j
        other = out.relu()
        out += 1.0
        out.mul_(2.0)
        return F.relu(out * other, inplace=True)


class ReadTwice(Own):
    """Features of an edge in a weight and in what it weighs, before a maximum."""

    def __init__(self, width=8, edge_dim=3):
        super().__init__('max')
        self.lin = Linear(edge_dim, width)

    def message(self, x_i, x_j, edge_attr):
        edge = self.lin(edge_attr)
        return torch.tanh(x_j + edge) * (x_i * x_j * edge).sum(-1, keepdim=True)


class Chosen(Own):
    def message(self, x_i, x_j):
        far = torch.where(x_j > x_i, x_j, -x_i)
        return torch.maximum(far, x_i).masked_fill(x_j >= 1.0, 0.5) + x_j.clamp(-1, 1)


CONVS = {
    'naive attention': (NaiveAttention, ()),
    'attention of heads': (HeadedAttention, ('edge_attr',)),
    'dot products': (DotAttention, ('edge_weight',)),
    'gate': (Gate, ('edge_attr',)),
    'distance': (Distance, ()),
    'two layers': (TwoLayers, ()),
    'network': (Network, ()),
    'network, mean': (NetworkOfMeans, ()),
    'softmax that is no weight': (NormalisedTwice, ()),
    'two reductions': (Centred, ()),
    'writes in place': (InPlace, ()),
    'comparisons': (Chosen, ()),
    'an edge read twice': (ReadTwice, ('edge_attr',)),
}


# What is refused


class Branches(Own):
    def message(self, x_j):
        return x_j if x_j.sum() > 0 else -x_j


class Draws(Own):
    def message(self, x_j):
        return x_j + torch.randn_like(x_j)


class Counts(Own):
    def message(self, x_j):
        return x_j / x_j.size(0)


class Sorts(Own):
    def message(self, x_j):
        return x_j.sort(dim=0).values


class OverEdges(Own):
    def message(self, x_i, x_j):
        return torch.softmax(x_i + x_j, dim=0)


class Items(Own):
    def message(self, x_j):
        return x_j * float(x_j[0, 0])


class BySource(Own):
    def message(self, x_i, x_j, edge_index_j, size_i):
        return softmax(x_i + x_j, edge_index_j, num_nodes=size_i)


class Products(Own):
    def aggregate(self, inputs, index, dim_size=None):
        return scatter(inputs, index, 0, dim_size, reduce='mul')


class Constant(Own):
    other = torch.ones(8)

    def message(self, x_j):
        return x_j * torch.as_tensor([1.0] * 8)


REFUSED = {
    Branches: 'its control flow depends on values',
    Draws: 'randn_like has no fused form on edges',
    Counts: 'it computes with the number of edges or nodes',
    Sorts: 'sort has no fused form on edges',
    OverEdges: 'an operator over the dimension of edges',
    Items: 'an index over edges',
    BySource: 'a reduction of edges by something else than their target',
    Products: "the reduction 'mul' has no fused form",
    Constant: 'it uses a tensor that is neither an argument nor held by the layer',
}
