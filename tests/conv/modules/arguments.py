"""What modules that gather and reduce themselves are called with, and what is asked of them."""

from __future__ import annotations

import copy

import torch
from torch_geometric.data import Data

import pygfuse
from tests.compiler import modules_of_objects as objects
from tests.compiler import own_modules as own
from tests.compiler.own_modules import EDGES, NODES, OF_EDGES, WIDTH
from tests.support import parity


def given(seed=0, nodes=NODES, edges=EDGES):
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(shape, generator=generator)

    return {
        'x': random(nodes, WIDTH),
        'edge_index': torch.randint(nodes, (2, edges), generator=generator),
        'edge_attr': random(edges, OF_EDGES),
        'edge_weight': random(edges),
        'coord': random(nodes, 3),
        'mu': random(nodes, 3, WIDTH),
        'direction': random(edges, 3),
        'z': torch.randint(5, (nodes,), generator=generator),
        'edge_type': torch.randint(4, (edges,), generator=generator),
        'u': random(3, WIDTH),
        'others': torch.randint(nodes, (2, 2 * edges), generator=generator),
        'of_others': random(2 * edges, OF_EDGES),
        'batch': torch.randint(3, (nodes,), generator=generator),
    }


ARGUMENTS = {
    own.Equivariant: lambda d: {'h': d['x'], **{k: d[k] for k in ('edge_index', 'coord', 'edge_attr')}},
    own.Attention: lambda d: {'data': (d['x'], d['edge_index'])},
    own.Normalised: lambda d: {'x': d['x'], 'edge_index': d['edge_index'], 'num_nodes': d['x'].shape[0]},
    own.Recurrent: lambda d: {'h': d['x'], 'edge_index': d['edge_index'], 'edge_weight': d['edge_weight']},
    own.Interaction: lambda d: {
        **{'q': d['x'], 'mu': d['mu'], 'basis': d['edge_attr'], 'direction': d['direction']},
        **{'idx_i': d['edge_index'][0], 'idx_j': d['edge_index'][1], 'n_atoms': d['x'].shape[0]},
    },
    own.Guarded: lambda d: {k: d[k] for k in ('x', 'edge_index', 'batch')},
    own.Scores: lambda d: {'z': d['x'], 'edge_index': d['edge_index']},
    own.States: lambda d: {k: d[k] for k in ('x', 'edge_index', 'edge_attr')},
    own.Typed: lambda d: {k: d[k] for k in ('z', 'edge_index', 'edge_type', 'u', 'batch')},
    objects.Expander: lambda d: {
        'batch': Data(
            *(d['x'], d['edge_index'], d['edge_attr']),
            **{'expander_edge_index': d['others'], 'expander_edge_attr': d['of_others'], 'smiles': ['C', 'CC']},
        )
    },
    objects.Transformed: lambda d: {'batch': Data(d['x'], d['edge_index'], d['edge_attr'], y=d['u'])},
    objects.Updated: lambda d: {'data': {k: d[k] for k in ('x', 'edge_index', 'edge_weight', 'batch')}},
    own.Both: lambda d: {k: d[k] for k in ('x', 'edge_index', 'edge_weight', 'edge_attr')},
    own.Tracks: lambda d: {k: d[k] for k in ('x', 'edge_index', 'edge_attr')},
    own.SharedNetwork: lambda d: {k: d[k] for k in ('x', 'edge_index', 'coord')},
    own.Triplets: lambda d: {
        **{'x': d['x'], 'sbf': d['edge_attr']},
        **{'of_kj': d['edge_index'][0], 'of_ji': d['edge_index'][1]},
    },
}


MODULES = [
    *ARGUMENTS, own.Mean, own.Extremes, own.Onto,
    own.Twice,
    own.Constants,
    own.WrittenSoftmax, own.Degrees, own.WithinOthers,
]  # fmt: skip


def arguments_of(kind, data):
    return ARGUMENTS.get(kind, lambda d: {'x': d['x'], 'edge_index': d['edge_index']})(data)


def as_int64(argument):
    if isinstance(argument, tuple):
        return tuple(map(as_int64, argument))
    is_int32 = isinstance(argument, torch.Tensor) and argument.dtype == torch.int32
    return argument.long() if is_int32 else argument


def assert_same(module, arguments, reason=None):
    """Compiles a module, whose outputs and gradients are then those of its own code, in float64 and in float32."""
    # torch's gradients by an expanded index of int32 are wrong
    wide = {name: as_int64(argument) for name, argument in arguments.items()}
    reference = parity.results(copy.deepcopy(module).double(), wide, torch.float64, 0)
    plain = parity.results(copy.deepcopy(module), wide, torch.float32, 0)
    compiled = pygfuse.compile(copy.deepcopy(module))
    of_double = copy.deepcopy(compiled).double()
    parity.assert_close(parity.results(of_double, arguments, torch.float64, 0), reference)
    parity.assert_close(parity.results(compiled, arguments, torch.float32, 0), reference, plain)
    assert (compiled.note.reason, of_double.note.reason) == (reason, reason)
    return compiled


def assert_same_in_traces(module, arguments, reason=None, **how):
    """Compiles a module, and has torch compile it: outputs and gradients are those of its own code, in float64."""
    torch._dynamo.reset()
    reference = parity.results(copy.deepcopy(module).double(), arguments, torch.float64, 0)
    compiled = pygfuse.compile(module).double()
    found = parity.results(torch.compile(compiled, backend='aot_eager', **how), arguments, torch.float64, 0)
    parity.assert_close({key.replace('_orig_mod.', ''): value for key, value in found.items()}, reference)
    assert compiled.note.reason == reason


def assert_each_call_is_of_its_own_edges(module, arguments_of):
    """Compiles a module, which makes its edges of those of each call."""
    compiled = pygfuse.compile(copy.deepcopy(module))
    for seed, (nodes, edges) in enumerate(((30, 200), (43, 110), (30, 200))):
        arguments = arguments_of(given(seed, nodes, edges))
        torch.testing.assert_close(compiled(**arguments), module(**arguments))
        assert compiled.note.reason is None
    return compiled
