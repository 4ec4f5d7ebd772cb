"""Numbers at the edge: NaN, infinity and scores beyond the range of their type."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import GATConv as PyGATConv

from pygfuse.conv import GATConv
from tests.support.gat_conv import FEATURES, RANDOM, layers

pytestmark = pytest.mark.filterwarnings('ignore:Sparse')


@pytest.mark.parametrize('bad', [float('nan'), float('inf'), -float('inf')])
def test_nan_and_infinity_spread_as_in_pyg(bad):
    pyg, fused = layers()
    x = RANDOM.x(FEATURES)
    x[7, 2] = bad
    expected, got = pyg(x, RANDOM.edge_index), fused(x, RANDOM.edge_index)
    assert expected.isnan().any()
    assert torch.equal(got.isnan(), expected.isnan())
    finite = expected.isfinite()
    torch.testing.assert_close(got[finite], expected[finite])


def one_score_per_edge(scores: torch.Tensor, dtype: torch.dtype):
    """Layers whose scores are the edge feature itself, for edges into one node."""
    options = {'in_channels': 1, 'out_channels': 1, 'edge_dim': 1, 'add_self_loops': False, 'negative_slope': 1.0}
    pyg, fused = (cls(**options).to(dtype) for cls in (PyGATConv, GATConv))
    with torch.no_grad():
        for layer in (pyg, fused):
            for name, parameter in layer.named_parameters():
                parameter.fill_(0.0 if name in ('att_src', 'att_dst', 'bias') else 1.0)
    x = torch.arange(1.0, len(scores) + 1, dtype=dtype).view(-1, 1)
    edge_index = torch.stack([torch.arange(len(scores)), torch.zeros(len(scores), dtype=torch.int64)])
    return [layer(x, edge_index, scores.to(dtype))[0, 0] for layer in (pyg, fused)]


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize(
    'scores',
    [
        [1e4, 1e4 - 1, 0.0, -1e4],
        [-1e4, -1e4 - 1, -1e4 + 1],
        [-float('inf'), -float('inf')],
        [float('inf'), 1.0],
        [1.0, float('nan')],
        [-3.2e38, -3.3e38],
        [3.2e38, 3.3e38],
        [*range(100)],
        [*range(100, 0, -1)],
        [7.9 * i for i in range(20)],
    ],
    ids=lambda scores: ' '.join(map(str, scores[:4])),
)
@pytest.mark.parametrize('few', [True, False])
def test_extreme_scores(scores, dtype, few, monkeypatch):
    if not few:
        monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    pyg, fused = one_score_per_edge(torch.tensor(scores), dtype)
    torch.testing.assert_close(fused, pyg, equal_nan=True)


def test_an_infinite_feature_of_an_edge_shows():
    # of several channels PyG's maps may add infinities of both signs, which one contracted map cannot tell
    _, fused = one_score_per_edge(torch.tensor([-float('inf'), 1.0, 2.0]), torch.float32)
    assert fused.isnan()


def test_scores_beyond_the_range_of_float32():
    pyg, fused = one_score_per_edge(torch.tensor([-1e100, -1.0001e100, -2e100], dtype=torch.float64), torch.float64)
    torch.testing.assert_close(fused, pyg)
