"""Degrees within an aggregation, of a type that is said or of that by default."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Parameter
from torch_geometric.utils import degree

import pygfuse
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS


class Grown(Own):
    """A sum that grows with a learned power of the degree."""

    def __init__(self, dtype: torch.dtype | None = None):
        super().__init__()
        self.power, self.dtype = Parameter(torch.tensor([0.3])), dtype

    def message(self, x_j, x_i):
        return (x_j * x_i).tanh()

    def aggregate(self, inputs, index, dim_size=None):
        count = degree(index, dim_size, dtype=self.dtype).clamp(min=1).unsqueeze(-1)
        return super().aggregate(inputs, index, dim_size=dim_size) * count**self.power


def given(graph: str = 'random') -> dict[str, torch.Tensor]:
    example = GRAPHS[graph]()
    return {'edge_index': example.edge_index, 'x': torch.randn(example.num_targets, 8)}


@pytest.mark.parametrize('graph', ['random', 'isolated nodes', 'repeated edges'])
@pytest.mark.parametrize('dtype', [None, torch.float32], ids=str)
def test_outputs_and_gradients_are_those_of_pyg(dtype, graph):
    assert_as_pyg(Grown(dtype), given(graph))


def test_another_type_by_default():
    conv, arguments = Grown(), given()
    fused = pygfuse.compile(copy.deepcopy(conv))
    for _ in range(2):
        # the second is known
        fused(**arguments)
    torch.set_default_dtype(torch.float64)
    try:
        expected, found = conv(**arguments), fused(**arguments)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == expected.dtype == torch.float64
    # sums of float32, times numbers of float64
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
