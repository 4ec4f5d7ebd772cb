"""Every layer that pygfuse compiles beside PyG's and beside PyG's under torch.compile.

A training step (forward and backward, gradients of inputs and parameters), 64 to 64 channels, all sides in turn, in one
process: PyG's layer, pygfuse's, and both under torch.compile; medians in ms with the quartiles in brackets. Where
torch.compile raises, or takes longer than a limit, there is the error in place of a time. The floor is one CSR product
(``torch.sparse``, MKL) for each walk of the fused forward, of its width. Layers of which PyG holds much for edges are
measured on Amazon Photo, the others on Tolokers; without these a random graph stands for both. A GAT as a user
writes it stands beside the written one, too.

    python -m pygfuse.bench compiled --tolokers data/Tolokers --photo data/Photo
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

import pygfuse
from pygfuse.bench.by_torch import compiled_step
from pygfuse.bench.case import RATIOS, Measurement, Options, benchmark
from pygfuse.bench.compiled_layers import CHANNELS, attention_of, fused_copy, layers
from pygfuse.bench.datasets import amazon, tolokers
from pygfuse.bench.graphs import GraphData, power_law
from pygfuse.bench.layers import check_fused, product
from pygfuse.bench.timing import Step
from pygfuse.bench.walks import Walks

TOLOKERS, PHOTO, RANDOM = 'Tolokers', 'Photo', 'random'


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--tolokers', help='where PyG keeps Tolokers, or downloads it to')
    parser.add_argument('--photo', help="where PyG keeps Amazon's Photo, or downloads it to")
    parser.add_argument('--edges', type=int, default=2_000, help='of the random graph (default: %(default)s)')
    parser.add_argument('--convs', nargs='*', help='which layers (default: all)')
    parser.add_argument('--pyg-repeats', type=int, default=4, help="how often PyG's layers run (default: 4)")
    parser.add_argument('--limit', type=int, default=300, help='seconds for torch.compile, a layer (default: 300)')


def parameters(options: Options) -> Iterator[dict[str, Any]]:
    known = layers()
    unknown = set(options.convs or ()) - set(known)
    if unknown:
        raise ValueError(f"Expected '--convs' to name some of {', '.join(known)} (got {', '.join(sorted(unknown))})")
    for name in options.convs or known:
        chosen = (options.photo, PHOTO) if known[name].is_wide else (options.tolokers, TOLOKERS)
        yield {'layer': name, 'graph': RANDOM if chosen[0] is None else chosen[1]}


def graph_of(options: Options, name: str) -> GraphData:
    """A graph by its name."""
    if name == RANDOM:
        return power_law(options.edges // 10, options.edges)
    return tolokers(options.tolokers) if name == TOLOKERS else amazon(options.photo, PHOTO)


def output_of(module: Module, given: Mapping[str, Any]) -> Tensor:
    """What a layer returns, or the first of it."""
    out = module(**given)
    while not isinstance(out, Tensor):
        out = next(iter(out.values())) if isinstance(out, dict) else out[0]
    return out


def step_of(module: Module, given: Mapping[str, Any], x: Tensor, grad: Tensor) -> Callable[[], None]:
    """A training step of a layer."""

    def run() -> None:
        x.grad = None
        module.zero_grad()
        output_of(module, given).backward(grad)

    return run


@benchmark(
    'compiled',
    parameters=parameters,
    arguments=arguments,
    settings=lambda options: {'channels': CHANNELS},
    ratios=(*RATIOS, ('PyG compiled', 'pygfuse compiled'), ('pygfuse', 'written'), ('pygfuse', 'product')),
    quick={'pyg_repeats': 2, 'edges': 500},
)
def compiled(options: Options, layer: str, graph: str) -> Measurement:
    """One layer."""
    edge_index, num_nodes = graph_of(options, graph)
    made = layers()[layer]
    plain = made.make()
    fused = fused_copy(plain)
    x = torch.randn(num_nodes, made.channels, requires_grad=True)
    given = made.given(x, edge_index)
    walks = Walks('forward', 'forward')
    with walks.recording():
        grad = torch.randn_like(output_of(fused, given))
    check_fused(fused)
    products = [product(edge_index, num_nodes, width) for width in walks.widths or [made.channels]]
    steps = [Step('PyG', step_of(plain, given, x, grad), repeats=options.pyg_repeats)]
    by_torch = compiled_step(step_of(torch.compile(plain), given, x, grad), options.limit)
    if callable(by_torch):
        steps.append(Step('PyG compiled', by_torch, repeats=options.pyg_repeats))
    within = compiled_step(step_of(torch.compile(copy.deepcopy(fused)), given, x, grad), options.limit, afresh=False)
    if callable(within):
        steps.append(Step('pygfuse compiled', within))
    steps.append(Step('pygfuse', step_of(fused, given, x, grad)))
    if layer.startswith('GAT'):
        written = pygfuse.conv.GATConv(**attention_of(CHANNELS), add_self_loops=False)
        steps.append(Step('written', step_of(written, given, x, grad)))
    yield [*steps, Step('product', lambda: [multiply() for multiply in products])]
    check_fused(fused)
    sides = {'PyG compiled': by_torch, 'pygfuse compiled': within}
    return {name: reason for name, reason in sides.items() if not callable(reason)}
