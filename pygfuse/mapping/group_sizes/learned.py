"""Group sizes by graph classification with self-attention pooling.

The sizes are classes, as in Xu et al., section 5. The classifier is SAGPool ("Self-Attention Graph Pooling", Lee et
al., ICML 2019): graph convolutions over degrees, each followed by a pooling that keeps the nodes of highest attention,
and a readout after each. The width joins the readout, and, since a readout of means and maxima does not tell how large
a graph is, so do its numbers of rows and edges and its largest degree.

Large graphs are seen through a sample of rows, so that choosing takes milliseconds whatever the size of the graph.
"""

from __future__ import annotations

import functools
import itertools
import math
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, SAGPooling, global_max_pool, global_mean_pool

from pygfuse.graph.csr import Csr
from pygfuse.mapping.records import Shape

# the classes: powers of two
SIZES = tuple(2**k for k in range(5, 20))
# of the classifier and all it sees, whatever torch's default type is
DTYPE = torch.float32
# a sample has about so many edges, of each row at most so many
SAMPLED_EDGES, SAMPLED_EDGES_OF_ROW = 2048, 256
# what brings logarithms of sizes and degrees near zero and one
_CENTRE, _SCALE = 12.0, 4.0


class GroupSizeClassifier(torch.nn.Module):
    """A SAGPool graph classifier of group sizes.

    Args:
        hidden: Channels of its convolutions.
        layers: Convolutions, each followed by a pooling.
        ratio: The share of nodes that a pooling keeps.
    """

    def __init__(self, hidden: int = 16, layers: int = 2, ratio: float = 0.5) -> None:
        super().__init__()
        widths = [2, *[hidden] * layers]
        self.convs = torch.nn.ModuleList(GCNConv(*pair) for pair in itertools.pairwise(widths))
        self.pools = torch.nn.ModuleList(SAGPooling(hidden, ratio) for _ in range(layers))
        # a hidden layer learned the measurements' noise
        self.head = torch.nn.Linear(2 * hidden + 4, len(SIZES))

    def readout(self, data: Data) -> Tensor:
        """What pooling makes of graphs' structure, ``[graphs, 2 * hidden]``."""
        x, edge_index, batch = data.x, data.edge_index, data.batch
        found = []
        for conv, pool in zip(self.convs, self.pools, strict=True):
            x = conv(x, edge_index).relu()
            x, edge_index, _, batch, _, _ = pool(x, edge_index, batch=batch)
            found.append(torch.cat([global_mean_pool(x, batch), global_max_pool(x, batch)], dim=1))
        return torch.stack(found).sum(dim=0)

    def forward(self, readout: Tensor, numbers: Tensor) -> Tensor:
        """The classes' logits.

        Args:
            readout: Of `readout`, ``[graphs, 2 * hidden]``.
            numbers: Of `numbers_of`, ``[graphs, 4]``.
        """
        return self.head(torch.cat([readout, numbers], dim=1))


def structure_of(csr: Csr) -> Data:
    """A graph, or a sample of its rows, as the classifier sees it.

    Rows and columns are nodes of their own, since an adjacency may be bipartite. Their features are the logarithm of
    the degree (of columns: in the sample) and which of the two they are.

    Example:
        >>> structure_of(Csr(torch.tensor([0, 2, 2]), torch.tensor([5, 7]), None))
        Data(x=[4, 2], edge_index=[2, 4])
    """
    stride = max(1, -(-max(csr.num_edges, csr.num_rows) // SAMPLED_EDGES))
    sampled = torch.arange(0, csr.num_rows, stride)
    begin = csr.indptr[sampled].to(torch.int64)
    degree = csr.indptr[sampled + 1].to(torch.int64) - begin
    taken = degree.clamp(max=SAMPLED_EDGES_OF_ROW)
    row = torch.arange(len(sampled)).repeat_interleave(taken)
    place = torch.arange(len(row)) - (taken.cumsum(0) - taken)[row]
    columns, column, count = csr.index[begin[row] + place].unique(return_inverse=True, return_counts=True)
    is_row = (torch.arange(len(sampled) + len(columns)) < len(sampled)).to(DTYPE)
    x = torch.stack([torch.cat([degree, count]).add(1).to(DTYPE).log2() / _SCALE, is_row], dim=1)
    pairs = torch.stack([column + len(sampled), row])
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))


def numbers_of(shape: Shape, row_bytes: int) -> Tensor:
    """What the classifier knows beside structure: logarithms of rows, edges, largest degree and width, ``[4]``."""
    numbers = (shape.num_rows, shape.num_edges, shape.max_degree, row_bytes)
    return torch.tensor([(math.log2(number + 1) - _CENTRE) / _SCALE for number in numbers], dtype=DTYPE)


@functools.cache
def _classifier() -> GroupSizeClassifier:
    with torch.random.fork_rng(devices=[]):  # its first weights are random
        classifier = GroupSizeClassifier().to(DTYPE)
    classifier.load_state_dict(torch.load(Path(__file__).with_name('classifier.pt'), weights_only=True))
    return classifier.eval()


def group_size(csr: Csr, row_bytes: int) -> int | None:
    """The size of the most likely class (see `pygfuse.mapping.group_sizes.chooser.Chooser`)."""
    if csr.indptr.device.type != 'cpu':
        return None
    if csr.num_rows == 0:
        return SIZES[0]
    classifier = _classifier()
    with torch.no_grad(), torch.autocast('cpu', enabled=False):
        readout = classifier.readout(Batch.from_data_list([structure_of(csr)]))
        logits = classifier(readout, numbers_of(Shape.of(csr), row_bytes).unsqueeze(0))
    return SIZES[int(logits.argmax())]
