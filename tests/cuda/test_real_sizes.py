"""Layers and programs on 700,000 edges and on hubs, by a GPU's kernels on this machine's processor, beside the CPU
backend.

Each kernel is the PTX that a GPU would get, see `tests.support.processor`.
"""

import contextlib
import copy
import os

import numpy as np
import pytest
import torch

import pygfuse
from pygfuse.call.call import Call
from pygfuse.call.gradient import Gradient
from pygfuse.cuda import backend
from pygfuse.graph.graph import Graph
from pygfuse.program.library.neighbours import NEIGHBOURS
from pygfuse.program.program import PROGRAMS
from tests.support import comparison
from tests.support.cases import (
    AGNN,
    CG,
    EDGE_CONV,
    EDGES,
    EVERY,
    GAT,
    GAT_EDGES,
    GATV2,
    GIN,
    GMM,
    NN,
    PLAIN,
    SAGE,
)
from tests.support.comparison import WITH_EDGE_ROWS, check, random_call, random_graph
from tests.support.in_place import in_place_of_the_cpu
from tests.support.parity import GRAPHS, assert_close, results
from tests.support.real_sizes import many_edges

pytestmark = pytest.mark.slow

# a layer with features of edges launches what it does without: with them on 700,000 edges, without on a hub
# and one class with other options what it launches with these
_LAYERS = {str(layer): layer for layer in (GAT_EDGES, SAGE, GIN, EDGE_CONV, AGNN, *EDGES) if layer is not NN}
ON_MANY_EDGES = [*_LAYERS.values()]
ON_A_HUB = (GAT, *PLAIN)
# what none of these layers launches; of activations those with a parameter, and the longest
PROGRAMS_OF_OTHERS = (
    'film_prelu', 'film_gelu_tanh', 'edge_conv_prelu', 'unreorganised_gat', 'multiplicative_gat',
    'gate_attention', 'heat_edges', 'winners',
)  # fmt: skip
TOLERANCE = 2e-5
# where the CPU's kernels are kept; those of the stand-in for the driver are not to be found there
_FOLDER = os.environ.get('PYGFUSE_CACHE_DIR')


@contextlib.contextmanager
def kept_as_usual():
    """A ``with`` block in which kernels are kept where other tests find them."""
    with pytest.MonkeyPatch.context() as patch:
        if _FOLDER is None:
            patch.delenv('PYGFUSE_CACHE_DIR', raising=False)
        else:
            patch.setenv('PYGFUSE_CACHE_DIR', _FOLDER)
        yield


def by_cpu(*arguments):
    with kept_as_usual():
        return comparison.by_cpu(*arguments)


def check_layer(layer, example):
    """That a layer gives what the CPU backend gives: the error is at most twice that of the backend in float32."""
    _, conv = layer.pair()

    def found(dtype):
        given = {**layer.inputs(example), 'edge_index': example.edge_index.clone()}
        return results(copy.deepcopy(conv).to(dtype), given, dtype, 0)

    with kept_as_usual():
        reference, plain = found(torch.float64), found(torch.float32)
    with in_place_of_the_cpu():
        assert_close(found(torch.float32), reference, plain)


@pytest.mark.parametrize('layer', ON_MANY_EDGES, ids=str)
def test_layers_on_many_edges(processor, layer):
    check_layer(layer, many_edges())
    names = [launch.name for launch in processor.launches]
    assert any('backward' in name for name in names) or names.count(names[0]) > 1
    # rows with more pieces than one team combines, in both directions
    assert sum('pieces of rows' in name for name in names) > 1


@pytest.mark.parametrize('name', ['SAGEConv', 'GCNConv', 'CGConv'])
@pytest.mark.usefixtures('processor')
def test_maxima_on_many_edges(name):
    check_layer(EVERY[f'{name}, max'], many_edges())


@pytest.mark.parametrize('layer', ON_A_HUB, ids=str)
@pytest.mark.usefixtures('processor')
def test_layers_on_a_hub(layer):
    check_layer(layer, GRAPHS['hub']())


# few edges a node have kernels of their own, which the interpreter runs of all layers
@pytest.mark.parametrize('layer', [GATV2, GIN, GMM, CG], ids=str)
@pytest.mark.usefixtures('processor')
def test_layers_on_few_edges(layer):
    check_layer(layer, GRAPHS['self-loops']())


def graph_of(example):
    return Graph.of(example.edge_index, num_sources=example.num_sources, num_targets=example.num_targets)


@pytest.mark.parametrize('name', PROGRAMS_OF_OTHERS)
@pytest.mark.usefixtures('processor')
def test_programs_of_other_layers_on_a_hub(name):
    call = random_call(PROGRAMS[name], graph_of(GRAPHS['hub']()), 2, 8, torch.float32)
    check(backend, call, TOLERANCE, against=by_cpu)


@pytest.mark.parametrize(
    ('dtype', 'tolerance'), [(torch.float64, 1e-10), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)]
)
@pytest.mark.usefixtures('processor')
def test_types_on_many_edges(dtype, tolerance):
    call = random_call(PROGRAMS['gat'], graph_of(many_edges()), 2, 8, dtype)
    with pygfuse.execution_paths(False):
        check(backend, call, tolerance, against=by_cpu)


@pytest.mark.usefixtures('processor')
def test_dropout_on_many_edges():
    call = random_call(PROGRAMS['gat'], graph_of(many_edges()), 2, 8, torch.float32, dropout=0.4)
    check(backend, call, TOLERANCE, against=by_cpu)


@pytest.mark.usefixtures('processor')
def test_rows_of_602_channels_on_many_edges():
    call = random_call(PROGRAMS['neighbours'], graph_of(many_edges()), 1, 602, torch.float32)
    check(backend, call, TOLERANCE, against=by_cpu)


@pytest.mark.parametrize('channels', [602, 601])
@pytest.mark.parametrize('products', [False, True])
@pytest.mark.parametrize('name', ['crystal', 'gine', 'film_prelu', 'edge_conv_prelu'])
@pytest.mark.usefixtures('processor')
def test_gradients_of_wide_rows(name, products, channels):
    """Tiles of a head overlap where nothing is added up, divide it, or are one."""
    if products and name not in WITH_EDGE_ROWS:
        pytest.skip('no rows of edges')
    call = random_call(PROGRAMS[name], random_graph(30, 20, 300, hub=80), 1, channels, products=products)
    check(backend, call)


@pytest.mark.parametrize(
    ('name', 'products', 'channels', 'dtype'),
    [
        ('gatv2', False, 602, torch.float64),
        ('transformer', True, 1030, torch.float32),
        ('unreorganised_gat', False, 602, torch.float64),
    ],
)
@pytest.mark.usefixtures('processor')
def test_heads_that_are_dealt_to_a_block(name, products, channels, dtype):
    graph = random_graph(30, 20, 300, hub=80)
    call = random_call(PROGRAMS[name], graph, 1, channels, dtype, products=products, dropout=0.3)
    check(backend, call, 1e-4 if dtype is torch.float32 else 1e-10, against=by_cpu)


def test_the_same_bits_in_any_order_of_warps(processor):
    call, runs = random_call(PROGRAMS['gat'], graph_of(many_edges()), 2, 8, torch.float32), []
    for _ in range(2):
        out, statistics = backend.forward(call)
        asked = Gradient(call, out, statistics, torch.ones_like(out), list(call.tensors))
        runs.append([out, *backend.backward(asked).values()])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
    # the second run's launches have other seeds
    assert len(processor.launches) > 10


@pytest.mark.usefixtures('processor')
def test_rows_beyond_32_bits(tmp_path):
    """Rows are summed of a tensor of more than 2^32 numbers, which takes no room but where something was written."""
    channels, num_sources = 64, 2**26 + 3
    numbers = np.memmap(tmp_path / 'numbers', dtype=np.float16, mode='w+', shape=(num_sources, channels))
    sources = torch.tensor([0, 2**24 + 1, 2**25 + 1, 2**26 - 1, 2**26, 2**26 + 2])
    x = torch.from_numpy(numbers)
    x[sources] = torch.randn(len(sources), channels, dtype=torch.float16)
    targets = torch.tensor([0, 0, 0, 1, 1, 2])
    graph = Graph.of(torch.stack([sources, targets]), num_sources=num_sources, num_targets=3)
    found, _ = backend.forward(Call(NEIGHBOURS.bind(('x',)), graph, {'x': x}, {}, 1, channels))
    expected = torch.zeros(3, channels).index_add(0, targets, x[sources].float())
    torch.testing.assert_close(found, expected.half())
