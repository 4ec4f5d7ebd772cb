"""Calls of every program, for comparing a backend with the CPU's: outputs and all gradients."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping
from types import ModuleType

import torch
from torch import Tensor

import pygfuse.program.library
from pygfuse.call import reference
from pygfuse.call.call import Call, Dropout
from pygfuse.call.gradient import Gradient
from pygfuse.cpu import backend as cpu
from pygfuse.cpu import random
from pygfuse.graph.graph import Graph
from pygfuse.program.library.gaussian import gaussian
from pygfuse.program.products import Product
from pygfuse.program.program import PROGRAMS, EdgeProgram, operands
from pygfuse.program.vocabulary import dropout_factor

for _module in pkgutil.iter_modules(pygfuse.program.library.__path__):
    importlib.import_module(f'pygfuse.program.library.{_module.name}')
gaussian(2)
# of those that differ in an activation only, one
_ALIKE = re.compile(r'test_|edge_conv_(?!none$|prelu$)|res_gated_(?!sigmoid$)')
NAMES = [name for name in PROGRAMS if not _ALIKE.match(name)]
# a dropout of channels, as compiled messages have it
DROPPING = EdgeProgram(
    'test_dropping',
    operands={**operands(source='x', edge='mark', parameter='key probability')},
    message=lambda x, mark, key, probability: x * dropout_factor(mark, key, probability),
)
WITH_EDGE_ROWS = [
    name
    for name in NAMES
    if any(str(o.side) == 'edge' and o.level == 'channels' for o in PROGRAMS[name].operands.values())
]


def random_graph(num_sources: int, num_targets: int, num_edges: int, hub: int = 0, seed: int = 0) -> Graph:
    """Random edges, the last target isolated; `hub` more edges end in target 0."""
    generator = torch.Generator().manual_seed(seed)
    sources = torch.randint(num_sources, (num_edges + hub,), generator=generator)
    targets = torch.randint(max(1, num_targets - 1), (num_edges,), generator=generator)
    edges = torch.stack([sources, torch.cat([targets, torch.zeros(hub, dtype=torch.int64)])])
    return Graph.of(edges, num_sources=num_sources, num_targets=num_targets)


def random_call(
    program: EdgeProgram,
    graph: Graph,
    heads: int,
    channels: int,
    dtype: torch.dtype = torch.float64,
    reduce: str = 'sum',
    dropout: float = 0.0,
    products: bool = False,
    absent: Collection[str] = (),
) -> Call:
    """A call with random operands; edges' channels are features times a weight if `products`."""
    torch.manual_seed(1)
    rows = {'source': graph.num_sources, 'target': graph.num_targets, 'edge': graph.num_edge_ids, 'parameter': 1}
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, float] = {}
    as_products: dict[str, Product] = {}
    for name, operand in program.operands.items():
        if name in absent:
            continue
        width = {'scalar': 1, 'heads': heads}.get(operand.level, heads * channels)
        if operand.side == 'parameter' and operand.level == 'scalar':
            scalars[name] = 0.2
        elif products and operand.side == 'edge' and operand.level == 'channels':
            parts = torch.randn(rows['edge'], 3).to(dtype), torch.randn(3, width).to(dtype)
            as_products[name] = Product(*parts)
        else:
            tensors[name] = torch.randn(rows[operand.side], width).to(dtype)
    present = tuple(name for name in program.operands if name not in absent)
    bound = program.bind(present, tuple(as_products))
    drawn = Dropout(dropout, 2**33 + 12345) if dropout else None
    return Call(bound, graph, tensors, scalars, heads, channels, reduce, drawn, products=as_products)


def check(
    backend: ModuleType,
    call: Call,
    tolerance: float = 1e-10,
    needed: Collection[str] | None = None,
    against: Callable | None = None,
    device: str = 'cpu',
) -> None:
    """Asserts that a backend gives the output, statistics and gradients that `against` gives.

    Args:
        backend: The backend.
        call: What it computes.
        tolerance: The error that is allowed, relative to the largest number.
        needed: The gradients wanted; by default all.
        against: `by_cpu`, or (by default) `by_reference`, which compiles nothing.
        device: Where the backend runs.
    """
    needed = [*call.tensors, *call.products] if needed is None else needed
    there = call if device == 'cpu' else moved(call, device)
    found, statistics = backend.forward(there)
    assert found.dtype == call.dtype
    grad = torch.randn(found.shape, dtype=torch.float64).to(found.dtype)
    wide = with_tensors(call, torch.Tensor.double)
    expected, expected_statistics, wanted = (against or by_reference)(wide, grad.double(), needed)
    close(found, expected, tolerance, 'output')
    if expected_statistics is not None:
        touched = call.graph.degree > 0
        pair = statistics.cpu()[touched], expected_statistics[touched]
        # which score near the greatest a softmax's sum is relative to depends on the order of edges
        pair = map(_log_sum_exp, pair) if call.bound.softmax else pair
        close(*pair, tolerance, 'statistics')
    gradients = parts_of(
        backend.backward(Gradient(there, found, statistics, grad.to(device), needed, list(call.products)))
    )
    given = parts_of({**call.tensors, **call.products})
    for name, expected in wanted.items():
        assert gradients[name].dtype == given[name].dtype
        assert gradients[name].shape == given[name].shape
        close(gradients[name], expected, tolerance, f'gradient of {name}')


def with_tensors(call: Call, function: Callable[[Tensor], Tensor]) -> Call:
    """The call with a function of each of its tensors in the place of it."""
    tensors = {name: function(tensor) for name, tensor in call.tensors.items()}
    products = {
        name: Product(function(given.features), function(given.weight)) for name, given in call.products.items()
    }
    return dataclasses.replace(call, tensors=tensors, products=products)


def parts_of(found: Mapping[str, Tensor | Product]) -> dict[str, Tensor]:
    """Tensors, or gradients of them, by name; those of products by two names."""
    parts: dict[str, Tensor] = {}
    for name, value in found.items():
        if isinstance(value, Product):
            parts |= {f'features of {name}': value.features, f'weight of {name}': value.weight}
        else:
            parts[name] = value
    return parts


def _log_sum_exp(statistics: Tensor) -> Tensor:
    return statistics[:, 0] - statistics[:, 1].log()


def moved(call: Call, device: str) -> Call:
    """The call with its operands and its edges on a device."""
    call = with_tensors(call, lambda tensor: tensor.to(device))
    edges = call.graph.coo().to(device)
    graph = Graph.of(edges, num_sources=call.graph.num_sources, num_targets=call.graph.num_targets)
    return dataclasses.replace(call, graph=graph)


def by_cpu(call: Call, grad: Tensor, needed: Collection[str]) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
    """Output, statistics and gradients of the CPU backend."""
    out, statistics = cpu.forward(call)
    return out, statistics, parts_of(cpu.backward(Gradient(call, out, statistics, grad, needed, list(call.products))))


def by_reference(call: Call, grad: Tensor, needed: Collection[str]) -> tuple[Tensor, None, dict[str, Tensor]]:
    """The same by torch, without statistics."""
    call = with_tensors(call, lambda tensor: tensor.clone().requires_grad_())
    leaves = parts_of({**call.tensors, **call.products})
    wanted = [name for name in leaves if name.split()[-1] in needed]
    kept = None
    if call.dropout is not None:
        kept = random.dropout_factors(call.graph.num_edge_ids, call.heads, call.dropout, torch.float64)
    out = reference.aggregate(call, kept)
    found = torch.autograd.grad(out, [leaves[name] for name in wanted], grad, allow_unused=True)
    zeros = (torch.zeros_like(leaves[name]) for name in wanted)
    pairs = zip(found, zeros, strict=True)
    return out.detach(), None, dict(zip(wanted, (zero if one is None else one for one, zero in pairs), strict=True))


def close(found: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(
        found.double().cpu(), expected.double(), rtol=0, atol=tolerance * scale, msg=lambda text: f'{what}: {text}'
    )
