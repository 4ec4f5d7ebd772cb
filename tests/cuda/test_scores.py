"""The weight of an edge that is alone is 1, however great its score: a score is rounded before it is compared."""

import os

import pytest
import torch

from pygfuse.call.call import Call
from pygfuse.call.gradient import Gradient
from pygfuse.cuda import backend
from pygfuse.graph.graph import Graph
from pygfuse.program.program import EdgeProgram, Operand

if os.environ.get('CI', '').lower() not in ('1', 'true'):
    pytest.importorskip('numba_cuda')

NODES, HEADS, CHANNELS = 6, 2, 4
MULTIPLIED = EdgeProgram(
    'test_scores_multiplied',
    {
        'x': Operand('source', 'channels'),
        'a': Operand('source', 'heads'),
        'b': Operand('target', 'heads'),
    },
    lambda weight, x: weight * x,
    lambda a, b: a * b,
    softmax=True,
)


@pytest.mark.usefixtures('interpreted')
@pytest.mark.parametrize('seed', range(3))
def test_scores_are_rounded_before_they_are_compared(seed):
    nodes, generator = torch.arange(NODES), torch.Generator().manual_seed(seed)
    graph = Graph.of(torch.stack([nodes, nodes]), num_sources=NODES, num_targets=NODES)
    operands = {
        'x': torch.rand(NODES, HEADS * CHANNELS, generator=generator),
        # products that float32 does not hold to the last digit
        'a': 1e3 * (1 + torch.rand(NODES, HEADS, generator=generator)),
        'b': 1e3 * (1 + torch.rand(NODES, HEADS, generator=generator)),
    }
    call = Call(MULTIPLIED.bind(tuple(operands), ()), graph, operands, {}, HEADS, CHANNELS, 'sum')
    out, statistics = backend.forward(call)
    assert torch.equal(out.view_as(operands['x']), operands['x'])
    assert torch.equal(backend.weights(call, statistics), torch.ones(NODES, HEADS))
    # by sources and by targets
    found = backend.backward(Gradient(call, out, statistics, torch.ones_like(out), ['x', 'a', 'b']))
    assert torch.equal(found['x'], torch.ones_like(operands['x']))
