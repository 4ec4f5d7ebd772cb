"""Layers whose edges carry state, as users write them: what the tests compile."""

import torch
from torch.nn import ELU, GELU, SELU, BatchNorm1d, Dropout, LayerNorm, Linear, ReLU, Sequential, SiLU
from torch_geometric.nn import BatchNorm as PyGBatchNorm
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

NODES, EDGES, HIDDEN = 8, 3, 6


class Block(MessagePassing):
    """A block of a mesh simulator: its message is the new state of the edge, which `aggregate` returns too."""

    def __init__(self, aggr='sum', width=3, middle=ReLU, last=LayerNorm):
        super().__init__(aggr)
        ends = [Linear(2 * NODES + width, HIDDEN), middle(), Linear(HIDDEN, width)]
        self.edge_mlp = Sequential(*ends, *([] if last is None else [last(width)]))
        self.node_mlp = Sequential(Linear(NODES + width, HIDDEN), ReLU(), Linear(HIDDEN, NODES), LayerNorm(NODES))

    def forward(self, x, edge_index, edge_attr):
        out, edge_attr = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        own = x[1] if isinstance(x, tuple) else x
        return own + self.node_mlp(torch.cat([own, out], dim=-1)), edge_attr

    def message(self, x_i, x_j, edge_attr):
        return self.edge_mlp(torch.cat([x_i, x_j, edge_attr], dim=-1)) + edge_attr

    def aggregate(self, inputs, index, dim_size=None):
        return scatter(inputs, index, dim=0, dim_size=dim_size, reduce=self.aggr), inputs


class WithoutResidual(Block):
    """The residual is outside; the edges come first; the last stage is a linear map."""

    def __init__(self):
        super().__init__('mean', middle=SiLU, last=None)

    def forward(self, x, edge_index, edge_attr):
        update, out = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        own = x[1] if isinstance(x, tuple) else x
        return self.node_mlp(torch.cat([own, out], dim=-1)), edge_attr + update

    def message(self, x_i, x_j, edge_attr):
        return self.edge_mlp(torch.cat([x_i, x_j, edge_attr], dim=-1))

    def aggregate(self, inputs, index, dim_size=None):
        return super().aggregate(inputs, index, dim_size)[::-1]


class Updated(Block):
    """The edges are updated first; their sum is a message of its own."""

    def forward(self, x, edge_index, edge_attr):
        edge_attr = edge_attr + self.edge_updater(edge_index, x=x, edge_attr=edge_attr)
        own = x[1] if isinstance(x, tuple) else x
        out = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        return own + self.node_mlp(torch.cat([own, out], dim=-1)), edge_attr

    def edge_update(self, x_i, x_j, edge_attr):
        return self.edge_mlp(torch.cat([x_i, x_j, edge_attr], dim=-1))

    def message(self, x_j, edge_attr):
        return edge_attr

    def aggregate(self, inputs, index, dim_size=None):
        return MessagePassing.aggregate(self, inputs, index, None, dim_size)


class Relative(Block):
    """Differences of the ends, two kinds of features of an edge, one of them a number; only a sum is wanted."""

    def __init__(self, middle=GELU):
        super().__init__()
        self.edge_mlp = Sequential(Linear(2 * NODES + EDGES + 1, HIDDEN), middle(), LayerNorm(HIDDEN), SELU())

    def forward(self, x, edge_index, edge_attr):
        length = edge_attr.norm(dim=-1)
        return self.propagate(edge_index, x=x, edge_attr=edge_attr, length=length)

    def message(self, x_i, x_j, edge_attr, length):
        return self.edge_mlp(torch.cat([x_j - x_i, edge_attr, x_j, length.unsqueeze(-1)], dim=-1))

    def aggregate(self, inputs, index, dim_size=None):
        return scatter(inputs, index, dim=0, dim_size=dim_size, reduce='sum')


class OfEdgesAlone(Relative):
    """A network of features of edges and of nothing else."""

    def __init__(self):
        super().__init__()
        self.edge_mlp = Sequential(Linear(EDGES, HIDDEN), ELU(0.5), Linear(HIDDEN, 4, bias=False), LayerNorm(4))

    def message(self, edge_attr, x_j):
        return self.edge_mlp(edge_attr)


class OfSources(Relative):
    """A network of one end and of the edge."""

    def __init__(self):
        super().__init__()
        self.edge_mlp = Sequential(Linear(NODES + EDGES, HIDDEN), GELU('tanh'), Linear(HIDDEN, 4), ReLU())

    def message(self, x_j, edge_attr):
        return self.edge_mlp(torch.cat([x_j, edge_attr], dim=-1))


class Filtering(OfSources):
    """A filter by a network, of sources that are multiplied with the edge's own features before."""

    def __init__(self):
        super().__init__()
        self.edge_mlp = Sequential(Linear(2 * NODES, HIDDEN), SiLU(), Linear(HIDDEN, EDGES))

    def message(self, x_i, x_j, edge_attr):
        return self.edge_mlp(torch.cat([x_i, x_j], dim=-1)) * (x_j[:, :EDGES] * edge_attr)


class FilteringTwice(Filtering):
    """Products of products, on either side."""

    def message(self, x_i, x_j, edge_attr):
        x = x_j[:, :EDGES]
        return ((x * edge_attr) * (edge_attr * x)) * (super().message(x_i, x_j, edge_attr) * (x * (edge_attr * x)))


class Largest(OfSources):
    """A maximum of what a layer normalisation scales."""

    def __init__(self):
        super().__init__()
        self.edge_mlp[3] = LayerNorm(4)

    def aggregate(self, inputs, index, dim_size=None):
        return scatter(inputs, index, dim=0, dim_size=dim_size, reduce='max')


class Batch(Block):
    """Batch normalisations over all edges: of a sum of both ends and features, and at the end."""

    def __init__(self, aggr='sum'):
        super().__init__(aggr, middle=lambda: Sequential(BatchNorm1d(HIDDEN), SiLU()), last=BatchNorm1d)


class BatchOfEnds(OfSources):
    """A batch normalisation before the first map, of values that reside with sources; PyG's at the end of one."""

    def __init__(self):
        super().__init__()
        self.norm, self.pyg_norm = BatchNorm1d(NODES), PyGBatchNorm(4)

    def message(self, x_j, edge_attr):
        return self.pyg_norm(self.edge_mlp[2](self.edge_mlp[1](self.map(self.norm(x_j)))))

    def map(self, x):
        return torch.nn.functional.linear(x, self.edge_mlp[0].weight[:, :NODES])


class BatchRead(Batch):
    """Values of edges, and a sum of others made of them."""

    def aggregate(self, inputs, index, dim_size=None):
        return scatter(inputs.relu(), index, dim=0, dim_size=dim_size, reduce='sum'), inputs


class Dropped(Block):
    def __init__(self):
        super().__init__(middle=lambda: Sequential(ReLU(), Dropout(0.5)))


LAYERS = {
    'block': Block,
    'block of means': lambda: Block('mean'),
    'block of maxima': lambda: Block('max'),
    'without a residual': WithoutResidual,
    'edges are updated first': Updated,
    'differences and lengths': Relative,
    'edges alone': OfEdgesAlone,
    'sources and edges': OfSources,
    'a product with factors': Filtering,
    'products with factors of factors': FilteringTwice,
    'a maximum of scaled values': Largest,
    'batch normalisation': Batch,
    'maxima of batch normalisation': lambda: Batch('max'),
    'batch normalisation of sources': BatchOfEnds,
    'a sum of others made of a batch normalisation': BatchRead,
}


# What is refused


class BySource(Block):
    def aggregate(self, inputs, edge_index, dim_size=None):
        return scatter(inputs, edge_index[0], dim=0, dim_size=dim_size, reduce='sum'), inputs


class Given(Block):
    def message(self, x_i, x_j, edge_attr):
        return edge_attr


class Twice(Block):
    """A sum of two networks."""

    def message(self, x_i, x_j, edge_attr):
        both = torch.cat([x_i, x_j, edge_attr], dim=-1)
        return self.edge_mlp(both) + self.edge_mlp[:3](both)


REFUSED = {
    BySource: 'a reduction of edges by something else than their target',
    Given: 'it returns or stores what it was given',
    Twice: 'it reads a part of a Sequential',
}
