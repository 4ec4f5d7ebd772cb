"""What a compiled layer keeps for backward does not grow with the edges, where it brings no values of edges itself."""

import pytest
import torch

import pygfuse
from pygfuse.memory import saved_bytes
from tests.compiler.cases import Case
from tests.compiler.test_convs import RUNNING
from tests.support.parity import Example, random_edges

NODES, EDGES = 60, 600
_LOOPS = 'its forward makes an index of edges with self-loops'
_NORM = 'its forward makes a norm of each edge'
_BOTH = f'{_LOOPS}, and a norm of each'
# bytes an edge of what the class's own forward makes of the edges; a tensor of edges x features has at least 16
OF_FORWARD = {
    **dict.fromkeys(('TAGConv', 'ARMAConv', 'LGConv'), (4, _NORM)),
    **dict.fromkeys(('ChebConv', 'SGConv', 'SSGConv', 'APPNP', 'MixHopConv', 'ClusterGCNConv', 'GCN2Conv', 'EGConv'),
                    (20, _BOTH)),
    **dict.fromkeys(('SimpleConv', 'FeaStConv', 'PointNetConv', 'PointTransformerConv', 'PPFConv'), (16, _LOOPS)),
    'FiLMConv': (16, 'its forward makes an index of the edges of each relation'),
    'HypergraphConv': (16, 'its forward makes the reverse of the index'),
    'HEATConv': (24, 'three numbers of the type of each edge, which its forward takes a LeakyReLU of'),
    'PDNConv': (64, 'its forward runs a network on features of edges'),
    'PANConv': (100, 'its forward makes powers of the adjacency'),
    'SuperGATConv': (120, f'{_LOOPS}, and scores edges that are not there for its loss'),
}  # fmt: skip


def growth(case: Case) -> int:
    """How many more bytes are saved when the edges double, without those of the call."""
    torch.manual_seed(0)
    conv = pygfuse.compile(case.plain(**case.options))
    return _saved(conv, case, 2 * EDGES) - _saved(conv, case, EDGES)


@pytest.mark.parametrize('case', RUNNING, ids=str)
def test_saved_bytes_do_not_grow_with_edges(case):
    allowed, _ = OF_FORWARD.get(case.name, (0, None))
    assert growth(case) <= allowed * EDGES


def _saved(conv: torch.nn.Module, case: Case, num_edges: int) -> int:
    example = Example(random_edges(NODES, NODES, num_edges), NODES, NODES)
    given = case.arguments(example)
    for tensor in _tensors(given):
        tensor.requires_grad_(tensor.is_floating_point() and tensor.shape[0] == NODES)
    found = saved_bytes(lambda: conv(**given), exclude=list(_tensors(given)))
    assert conv.note.reason is None
    return found


def _tensors(given):
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, (dict, tuple, list)):
        for item in given.values() if isinstance(given, dict) else given:
            yield from _tensors(item)
