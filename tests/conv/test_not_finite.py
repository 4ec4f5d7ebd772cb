"""One place of an input or parameter is not finite: where an output or gradient of PyG's is not, neither is ours.

Of inputs the reverse holds too, so that nothing is poisoned that no edge connects with the place. Sums of parameters
that are not finite may spread further than in PyG, see the README.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pygfuse._lib.modes import ablation
from tests.support import cases as table
from tests.support.parity import Example, random_edges, results

INFINITE = (float('inf'), -float('inf'), float('nan'))
# one map of edges stands for two of PyG's
ONE_MAP = ('GATConv with edge_attr', 'ResGatedGraphConv with edge_attr')
LARGEST = torch.finfo(torch.float32).max
every = pytest.mark.parametrize('name', table.EVERY)


def example() -> Example:
    """Nodes 8 to 10 are not targets, or nothing at all; node 11 is nothing at all."""
    edges = torch.cat([random_edges(8, 8, 18, seed=1), torch.tensor([[9, 9, 8], [1, 2, 3]])], dim=1)
    return Example(edges[:, edges[0] != edges[1]], 12, 12)


def changed(name: str, value: float) -> Iterator[tuple[str, bool, Any, Any, dict[str, Any]]]:
    """PyG's layer, the fused one and their arguments with the value in each of some places, and which place it is."""
    layer, graph = table.EVERY[name], example()
    pyg, fused = layer.pair()
    given = {**layer.inputs(graph), 'edge_index': graph.edge_index}
    inputs = {key: tensor for key, tensor in given.items() if tensor.is_floating_point()}
    for key, tensor in (*inputs.items(), *pyg.named_parameters()):
        # a node amid the others, one that is a source only, one that no edge reaches; of parameters the first too
        places = [10, 9 * table.FEATURES + 1, tensor.numel() - 1] if key in inputs else [0, tensor.numel() - 1]
        for place in sorted({min(place, tensor.numel() - 1) for place in places}):
            layers, arguments = copy.deepcopy((pyg, fused)), copy.deepcopy(given)
            places_of = [arguments[key]] if key in inputs else [layer.get_parameter(key).data for layer in layers]
            for found in places_of:
                found.view(-1)[place] = value
            yield f'{value} in {key} at {place}', key in inputs, *layers, arguments


@every
@pytest.mark.parametrize('value', INFINITE)
def test_what_is_not_finite_shows_where_it_does_in_pyg(value, name):
    for place, is_input, pyg, fused, arguments in changed(name, value):
        expected, found = (results(layer, arguments, torch.float32, 0) for layer in (pyg, fused))
        assert fused.note.reason is None
        for key, tensor in expected.items():
            if tensor is None:
                continue
            hidden, poisoned = ~tensor.isfinite() & found[key].isfinite(), tensor.isfinite() & ~found[key].isfinite()
            assert not bool(hidden.any()), f'{place}: {int(hidden.sum())} of {key} hide it'
            spreads = not is_input or ('edge_attr' in place and name in ONE_MAP)
            assert spreads or not bool(poisoned.any()), f'{place}: {int(poisoned.sum())} of {key} are poisoned'


@every
def test_what_is_too_large_shows(name):
    for place, _, pyg, fused, arguments in changed(name, LARGEST):
        wide = {key: tensor.double() if tensor.is_floating_point() else tensor for key, tensor in arguments.items()}
        with torch.no_grad():
            expected, found = pyg.double()(**wide), fused(**arguments)
        hidden = (expected.abs() > 2.0 * LARGEST) & found.isfinite()
        assert not bool(hidden.any()), f'{place}: {int(hidden.sum())} are finite'


@pytest.mark.parametrize('fusion', [True, False])
def test_a_second_derivative_of_a_sigma_of_zero_is_that_of_float64(fusion):
    layer, graph = table.EVERY['GMMConv with edge_attr'], example()
    pyg, fused = layer.pair()
    for conv in (pyg, fused):
        conv.sigma.data[1] = 0.0

    def second(conv: torch.nn.Module, dtype: torch.dtype) -> torch.Tensor:
        inputs = layer.inputs(graph, dtype=dtype)
        out = conv.to(dtype)(**inputs, edge_index=graph.edge_index)
        (first,) = torch.autograd.grad(out.square().sum(), conv.sigma, create_graph=True)
        return torch.autograd.grad(first.square().sum(), conv.sigma)[0]

    with ablation(fusion=fusion):
        found = second(fused, torch.float32)
    assert bool(second(pyg, torch.float32)[1].isnan().all())
    expected = second(pyg, torch.float64)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
