"""Convolutions as published code writes them: they store values of edges, return several, and read tables."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.nn import Embedding, LayerNorm, Linear, ModuleList, Parameter, ReLU, Sequential, SiLU, Softplus, Tanh
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import degree, scatter, softmax

NODES, EDGES, RELATIONS = 8, 6, 5


class Published(MessagePassing):
    """A layer whose ``propagate`` takes what its message asks for."""

    def forward(self, edge_index, **given):
        return self.propagate(edge_index, **given)


class GatedGCN(MessagePassing):
    """Bresson and Laurent's, as the benchmarks of graph networks have it: gates of edges are stored, and returned."""

    def __init__(self):
        super().__init__(aggr='add')
        self.a, self.b, self.d, self.e = (Linear(NODES, NODES) for _ in range(4))
        self.c = Linear(EDGES, NODES)
        self.gates = None

    def forward(self, x, edge_index, edge_attr):
        given = {'a': self.a(x), 'b': self.b(x), 'c': self.c(edge_attr), 'd': self.d(x), 'e': self.e(x)}
        return self.propagate(edge_index, **given)

    def message(self, d_i, e_j, c):
        self.gates = d_i + e_j + c
        return torch.sigmoid(self.gates)

    def aggregate(self, inputs, index, b_j, b):
        total = scatter(inputs * b_j, index, 0, dim_size=b.shape[0], reduce='sum')
        return total / (scatter(inputs, index, 0, dim_size=b.shape[0], reduce='sum') + 1e-6)

    def update(self, inputs, a):
        gates = self.gates
        del self.gates
        return a + inputs, gates


class Interaction(MessagePassing):
    """An interaction network: what its edges become is stored, and summed."""

    def __init__(self, aggr='add'):
        super().__init__(aggr=aggr)
        self.relational = Sequential(Linear(2 * NODES + EDGES, 12), LayerNorm(12), Tanh(), Linear(12, 4), Tanh())
        self.objects = Linear(NODES + 4, 3)
        self.state = None

    def forward(self, x, edge_index, edge_attr):
        return self.objects(torch.cat([x, self.propagate(edge_index, x=x, edge_attr=edge_attr)], dim=1)), self.state

    def message(self, x_i, x_j, edge_attr):
        self.state = self.relational(torch.cat([x_i, x_j, edge_attr], dim=1))
        return self.state


class StoredAttention(MessagePassing):
    """Attention whose weights are stored, for people to look at."""

    def __init__(self, heads=2):
        super().__init__(aggr='add', node_dim=0)
        self.heads, self.lin = heads, Linear(NODES, NODES)
        self.to_source, self.to_target = (Parameter(torch.randn(1, heads, NODES // heads)) for _ in range(2))
        self.attention = None

    def forward(self, x, edge_index):
        x = self.lin(x).view(-1, self.heads, NODES // self.heads)
        alpha = (x * self.to_source).sum(-1), (x * self.to_target).sum(-1)
        return self.propagate(edge_index, x=x, alpha=alpha).flatten(1), self.attention

    def message(self, x_j, alpha_j, alpha_i, index, ptr, size_i):
        alpha = F.leaky_relu(alpha_j + alpha_i, 0.2)
        alpha = softmax(alpha, index, ptr, size_i)
        self.attention = alpha
        return x_j * F.dropout(alpha, 0.0, self.training).unsqueeze(-1)


class SemiGradient(MessagePassing):
    """DeepGCNs' aggregation: weights without gradients, and a stored power of degrees."""

    def __init__(self):
        super().__init__(aggr='add')
        self.lin, self.y, self.power = Linear(EDGES, NODES), Parameter(torch.tensor(0.3)), None

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=self.lin(edge_attr)), self.power

    def message(self, x_j, edge_attr):
        return F.relu(x_j + edge_attr) + 1e-7

    def aggregate(self, inputs, index, dim_size):
        with torch.no_grad():
            weight = softmax(inputs * 0.5, index, num_nodes=dim_size)
        out = scatter(inputs * weight, index, dim=0, dim_size=dim_size, reduce='sum')
        self.power = torch.sigmoid(self.y)
        return degree(index, dim_size).unsqueeze(1).to(out.dtype).pow(self.power) * out


class Composition(MessagePassing):
    """CompGCN's messages: a relation's row is taken off the source's, or multiplied with it."""

    def __init__(self, is_product=False):
        super().__init__(aggr='add')
        self.weight, self.relations = Parameter(torch.randn(NODES, 4)), Parameter(torch.randn(RELATIONS, NODES))
        self.is_product = is_product

    def forward(self, x, edge_index, edge_type, norm):
        return self.propagate(edge_index, x=x, edge_type=edge_type, relations=self.relations, norm=norm)

    def message(self, x_j, edge_type, relations, norm):
        relation = torch.index_select(relations, 0, edge_type)
        return torch.mm(x_j * relation if self.is_product else x_j - relation, self.weight) * norm.view(-1, 1)


class Embedded(MessagePassing):
    """Rows of a module's table, which are mapped with the source's; and a number of another, counted from its end."""

    def __init__(self):
        super().__init__(aggr='mean')
        self.table, self.lin = Embedding(RELATIONS, NODES), Linear(2 * NODES, 4)
        self.scale = Parameter(torch.rand(RELATIONS + 1))

    def forward(self, x, edge_index, edge_type):
        return self.propagate(edge_index, x=x, edge_type=edge_type)

    def message(self, x_j, edge_type):
        mapped = self.lin(torch.cat([x_j, self.table(edge_type)], dim=-1))
        return mapped * self.scale[edge_type - RELATIONS].unsqueeze(-1)


class Equivariant(MessagePassing):
    """A layer of an equivariant transformer: messages are a scalar and a vector part, each summed by itself."""

    def __init__(self, heads=2):
        super().__init__(aggr='add', node_dim=0)
        self.heads, self.width = heads, NODES // heads
        self.q, self.k, self.v = Linear(NODES, NODES), Linear(NODES, NODES), Linear(NODES, 3 * NODES)
        self.dk, self.dv = Linear(EDGES, NODES), Linear(EDGES, 3 * NODES)

    def forward(self, x, vector, edge_index, edge_attr, direction):
        split = -1, self.heads
        given = {'q': self.q(x).view(*split, self.width), 'k': self.k(x).view(*split, self.width)}
        given['v'] = self.v(x).view(*split, 3 * self.width)
        given['dk'] = F.silu(self.dk(edge_attr)).view(*split, self.width)
        given['dv'] = F.silu(self.dv(edge_attr)).view(*split, 3 * self.width)
        vector = vector.view(-1, 3, self.heads, self.width)
        return self.propagate(edge_index, vector=vector, direction=direction, **given)

    def message(self, q_i, k_j, v_j, vector_j, dk, dv, direction):
        weight = F.silu((q_i * k_j * dk).sum(dim=-1))
        x, first, second = torch.split(v_j * dv, self.width, dim=2)
        along = second.unsqueeze(1) * direction.unsqueeze(2).unsqueeze(3)
        return x * weight.unsqueeze(2), vector_j * first.unsqueeze(1) + along

    def aggregate(self, inputs, index, ptr, dim_size):
        return tuple(scatter(part, index, 0, dim_size=dim_size) for part in inputs)

    def update(self, inputs):
        return inputs


class VectorAttention(MessagePassing):
    """A point transformer's layer whose positions and weights each have a network: a weight for each channel."""

    def __init__(self, width=12):
        super().__init__(aggr='add')
        self.q, self.k, self.v = (Linear(NODES, width, bias=False) for _ in range(3))
        self.positions = Sequential(Linear(3, width), ReLU(), Linear(width, width))
        self.weights = Sequential(Linear(width, width), ReLU(), Linear(width, width))

    def forward(self, x, pos, edge_index):
        return self.propagate(edge_index, q=self.q(x), k=self.k(x), v=self.v(x), pos=pos)

    def message(self, q_i, k_j, v_j, pos_i, pos_j, index, ptr, size_i):
        delta = self.positions(pos_i - pos_j)
        return softmax(self.weights(q_i - k_j + delta), index, ptr, size_i) * (v_j + delta)


class GatedBySelf(MessagePassing):
    """A network, times a gate that is a map of its own values."""

    def __init__(self):
        super().__init__(aggr='add')
        self.nn, self.gate = Sequential(Linear(2 * NODES, 12), ReLU(), Linear(12, 10), Tanh()), Linear(10, 1)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        out = self.nn(torch.cat([x_i, x_j], dim=-1))
        return out * torch.sigmoid(self.gate(out))


class EquivariantUpdate(MessagePassing):
    """EGNN's layer with its gate: a message of features, and one of coordinates that reads it."""

    def __init__(self):
        super().__init__(aggr='add')
        self.edges = Sequential(Linear(2 * NODES + 1, 12), SiLU(), Linear(12, 10), SiLU())
        self.gate, self.coordinates = Linear(10, 1), Sequential(Linear(10, 10), SiLU(), Linear(10, 1, bias=False))

    def forward(self, x, pos, edge_index):
        return self.propagate(edge_index, x=x, pos=pos)

    def message(self, x_i, x_j, pos_i, pos_j):
        between = pos_i - pos_j
        message = self.edges(torch.cat([x_i, x_j, (between**2).sum(dim=-1, keepdim=True)], dim=-1))
        message = message * torch.sigmoid(self.gate(message))
        return message, between * self.coordinates(message)

    def aggregate(self, inputs, index, dim_size):
        messages, moves = inputs
        return scatter(messages, index, 0, dim_size, 'sum'), scatter(moves, index, 0, dim_size, 'mean')

    def update(self, inputs):
        return inputs


class TimeEncoded(MessagePassing):
    """Attention over events: cosines of their times are part of keys and values."""

    def __init__(self, heads=2):
        super().__init__(aggr='add')
        self.heads, self.time = heads, Linear(1, 4)
        self.q, self.k, self.v = Linear(NODES, NODES), Linear(NODES + 4, NODES), Linear(NODES + 4, NODES)

    def forward(self, x, edge_index, time):
        return self.propagate(edge_index, x=x, time=time)

    def message(self, x_i, x_j, time, index, ptr, size_i):
        event = torch.cat([x_j, torch.cos(self.time(time.view(-1, 1)))], dim=-1)
        q, k, v = (row.view(-1, self.heads, NODES // self.heads) for row in (self.q(x_i), self.k(event), self.v(event)))
        alpha = softmax((q * k).sum(dim=-1) / 2.0, index, ptr, size_i)
        return (v * alpha.unsqueeze(-1)).flatten(1)


class OfTypes(MessagePassing):
    """Simple-HGN's attention: a relation's score is a sum over its row; weights of a layer before are mixed in."""

    def __init__(self, heads=2):
        super().__init__(aggr='add', node_dim=0)
        self.heads, self.lin, self.types = heads, Linear(NODES, NODES), Embedding(RELATIONS, heads * 3)
        self.of_type = Parameter(torch.randn(1, heads, 3))
        self.alpha = None

    def forward(self, x, edge_index, edge_type, before):
        x = self.lin(x).view(-1, self.heads, NODES // self.heads)
        out = self.propagate(edge_index, x=x, score=x.sum(dim=-1), edge_type=edge_type, before=before)
        return out.flatten(1), self.alpha

    def message(self, x_j, score_i, score_j, edge_type, before, index, ptr, size_i):
        of_type = (self.types(edge_type).view(-1, self.heads, 3) * self.of_type).sum(dim=-1)
        alpha = softmax(F.leaky_relu(score_i + score_j + of_type, 0.2), index, ptr, size_i)
        self.alpha = 0.9 * alpha + 0.1 * before
        return x_j * self.alpha.unsqueeze(-1)


class Categories(MessagePassing):
    """Embeddings of several columns of categories, summed."""

    def __init__(self):
        super().__init__(aggr='add')
        self.tables = ModuleList(Embedding(RELATIONS, NODES) for _ in range(3))

    def forward(self, x, edge_index, categories):
        return self.propagate(edge_index, x=x, categories=categories)

    def message(self, x_j, categories):
        row = 0
        for k in range(categories.shape[1]):
            row = row + self.tables[k](categories[:, k])
        return F.relu(x_j + row)


class Extreme(MessagePassing):
    """The largest or smallest values of a network, times the source's."""

    def __init__(self, aggr):
        super().__init__(aggr=aggr)
        self.nn = Sequential(Linear(EDGES, 12), Softplus(), Linear(12, NODES))

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j, edge_attr):
        return x_j * self.nn(edge_attr)


class CutOff(MessagePassing):
    """A continuous filter that ends at a distance: a condition, as a number."""

    def __init__(self):
        super().__init__(aggr='add')
        self.filter = Sequential(Linear(EDGES, 12), ReLU(), Linear(12, NODES))

    def forward(self, x, pos, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, pos=pos, edge_attr=edge_attr)

    def message(self, x_j, pos_i, pos_j, edge_attr):
        distance = (pos_i - pos_j).square().sum(dim=-1)
        cutoff = torch.exp(-distance) * (distance < 2.0).to(distance.dtype)
        return x_j * (self.filter(edge_attr) * cutoff.view(-1, 1) + (distance > 1.0).to(x_j.dtype).unsqueeze(-1))


class Modulated(MessagePassing):
    """A scale and a shift of each edge's own, halves of one row."""

    def __init__(self, aggr='max'):
        super().__init__(aggr=aggr)
        self.lin = Linear(EDGES, 2 * NODES)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, row=self.lin(edge_attr))

    def message(self, x_j, row):
        scale, shift = row.chunk(2, dim=-1)
        return scale * x_j + shift


def _x(example):
    return {'x': example.x(NODES)}


def _with_features(example):
    return {**_x(example), 'edge_attr': example.edge_attr(EDGES)}


def _with_types(example):
    types = torch.randint(RELATIONS, (example.edge_index.shape[1],), generator=torch.Generator().manual_seed(0))
    return {**_x(example), 'edge_type': types}


def _with_categories(example):
    types = _with_types(example)['edge_type']
    return {**_x(example), 'categories': torch.stack([types, (types + 1) % RELATIONS, types // 2], dim=1)}


# a layer, and what it is called with beside the edges
LAYERS = {
    'gated': (GatedGCN, _with_features),
    'interaction': (Interaction, _with_features),
    'interaction, max': (lambda: Interaction('max'), _with_features),
    'stored attention': (StoredAttention, _x),
    'semi-gradient': (SemiGradient, _with_features),
    'difference of a relation': (Composition, lambda e: {**_with_types(e), 'norm': e.edge_attr()}),
    'product with a relation': (lambda: Composition(True), lambda e: {**_with_types(e), 'norm': e.edge_attr()}),
    'embedded': (Embedded, _with_types),
    'equivariant': (
        Equivariant,
        lambda e: {**_with_features(e), 'vector': e.x(3 * NODES), 'direction': e.edge_attr(3)},
    ),
    'vector attention': (VectorAttention, lambda e: {**_x(e), 'pos': e.x(3)}),
    'gated by itself': (GatedBySelf, _x),
    'equivariant update': (EquivariantUpdate, lambda e: {**_x(e), 'pos': e.x(3)}),
    'time': (TimeEncoded, lambda e: {**_x(e), 'time': e.edge_attr()}),
    'of types': (OfTypes, lambda e: {**_with_types(e), 'before': e.edge_attr(2)}),
    'categories': (Categories, _with_categories),
    'smallest': (lambda: Extreme('min'), _with_features),
    'largest': (lambda: Extreme('max'), _with_features),
    'cut off': (CutOff, lambda e: {**_with_features(e), 'pos': e.x(3)}),
    'modulated': (Modulated, _with_features),
    'modulated, sum': (lambda: Modulated('add'), _with_features),
}
