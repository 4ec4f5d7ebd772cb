"""Values to test passes on: made by hand, computed as PyG would and as rewritten."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch_geometric.utils import scatter, softmax

from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import EDGE, SHARED, SOURCE, TARGET, Node, in_order, leaf, mapped

NODES, EDGES = 6, 15
TARGETS = torch.arange(EDGES) % NODES
SOURCES = (torch.arange(EDGES) * 7 + 2) % NODES


def source(*shape: int) -> Node:
    return _input('x_j', SOURCE, shape)


def target(*shape: int) -> Node:
    return _input('x_i', TARGET, shape)


def edge(*shape: int) -> Node:
    return _input('edge_attr', EDGE, shape)


def shared(*shape: int, name: str = 'weight') -> Node:
    return _input(name, SHARED, shape)


def _input(name: str, residency: str, shape: tuple[int, ...]) -> Node:
    return leaf(name, residency, shape, torch.float64, f'{name} {shape}')


def computed(output: Node) -> torch.Tensor:
    """The rows of a value of edges or targets, with random inputs, by torch, everything on edges as it is written."""
    found: dict[int, torch.Tensor] = {}
    for node in in_order(output):
        if node.op == 'input':
            generator = torch.Generator().manual_seed(sum(map(ord, node.attributes['source'])))
            rows = () if node.residency == SHARED else (EDGES if node.residency == EDGE else NODES,)
            tensor = torch.randn(*rows, *node.shape, generator=generator, dtype=torch.float64)
            places = {SOURCE: SOURCES, TARGET: TARGETS}.get(node.residency)
            found[id(node)] = tensor if places is None else tensor[places]
        elif node.op == 'softmax':
            found[id(node)] = softmax(found[id(node.args[0])], TARGETS, num_nodes=NODES)
        elif node.op == 'reduce':
            reduced = scatter(found[id(node.args[0])], TARGETS, 0, NODES, node.attributes['reduce'])
            found[id(node)] = reduced[TARGETS]
        elif node.op == 'degree':
            found[id(node)] = torch.bincount(TARGETS, minlength=NODES).double()[TARGETS]
        else:
            args = mapped(node.args, lambda parent: found[id(parent)])
            found[id(node)] = OPERATIONS[node.op].run(*args, **node.attributes)
    return found[id(output)]


def check(function: Callable[[Node], Node], output: Node) -> Node:
    """The value after a pass: equal to the one before, and not changed when the pass runs again."""
    found = function(output)
    assert found is not output, 'the pass changed nothing'
    torch.testing.assert_close(computed(found), computed(output))
    assert function(found) is found
    return found


def on_edges(output: Node, *ops: str) -> list[Node]:
    """The values of edges that these operators compute."""
    return [node for node in in_order(output) if node.op in ops and node.residency == EDGE]
