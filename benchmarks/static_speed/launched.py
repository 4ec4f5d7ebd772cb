"""The kernels that a call of each program launches, with the types of their arguments; nothing is launched."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import itertools
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

import pygfuse.program.library
from pygfuse.call.call import Call, Dropout
from pygfuse.call.gradient import Gradient
from pygfuse.cuda import backend, combination, kernels
from pygfuse.cuda.arguments import describe
from pygfuse.cuda.kernel import Kernel
from pygfuse.cuda.points import knn, radius
from pygfuse.graph.graph import Graph
from pygfuse.graph.within import Within
from pygfuse.mapping.mapping import Mapping, force_mapping
from pygfuse.program.library.gaussian import gaussian
from pygfuse.program.products import Product
from pygfuse.program.program import PROGRAMS, EdgeProgram

# every program at one shape; the most used ones at all of these
SHAPE = (4, 16)
SHAPES = (
    ((1, 16), torch.float32),
    ((4, 64), torch.float32),
    ((8, 32), torch.float32),
    ((4, 64), torch.bfloat16),
)
WIDELY_USED = ('gat', 'gatv2', 'transformer', 'normalised_neighbours')
# 64 values a row, in one head, four and eight
SHAPES_OF_64 = (
    ((1, 64), torch.float32),
    ((4, 16), torch.float32),
    ((8, 8), torch.float32),
    ((4, 16), torch.bfloat16),
)

# channels of a head that fill part of a vector, one, or many lanes several times
WIDTHS, HEADS = (1, 7, 16, 64, 250, 602), (1, 4, 8)
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def programs() -> list[EdgeProgram]:
    """All programs of the package, whatever else the process made: one of each kind that is made on demand."""
    package = pygfuse.program.library
    library = [module.name for module in pkgutil.iter_modules(package.__path__, f'{package.__name__}.')]
    for name in library:
        importlib.import_module(name)
    written = {name for name in library if name != gaussian.__module__}
    return [*(program for program in PROGRAMS.values() if program.message.__module__ in written), gaussian(2)]


def random_call(
    program: EdgeProgram, graph: Graph, heads: int, channels: int, dtype: torch.dtype, products: bool, dropout: bool
) -> Call:
    """A call of a program with all its operands; edges' channels are features times a weight if `products`."""
    rows = {'source': graph.num_sources, 'target': graph.num_targets, 'edge': graph.num_edge_ids, 'parameter': 1}
    tensors, scalars, as_products = {}, {}, {}
    for name, operand in program.operands.items():
        width = {'scalar': 1, 'heads': heads}.get(operand.level, heads * channels)
        if operand.side == 'parameter' and operand.level == 'scalar':
            scalars[name] = 0.2
        elif products and operand.side == 'edge' and operand.level == 'channels':
            parts = torch.zeros(rows['edge'], 16, dtype=dtype), torch.zeros(16, width, dtype=dtype)
            as_products[name] = Product(*parts)
        else:
            tensors[name] = torch.zeros(rows[operand.side], width, dtype=dtype)
    bound = program.bind(tuple(program.operands), tuple(as_products))
    drawn = Dropout(0.5, 0) if dropout and program.score is not None else None
    return Call(bound, graph, tensors, scalars, heads, channels, dropout=drawn, products=as_products)


def calls(graph: Graph) -> Iterator[Call]:
    """The most used programs at several shapes, all programs at one."""
    yield from _calls(graph, SHAPES)


def calls_of_64(graph: Graph) -> Iterator[Call]:
    """The same with rows of 64 values."""
    yield from _calls(graph, SHAPES_OF_64)


def calls_of_many_shapes(graph: Graph) -> Iterator[Call]:
    """All programs in each width with each type; heads take turns, so that they meet each width and each type."""
    for program in programs():
        for (i, width), (j, dtype) in itertools.product(enumerate(WIDTHS), enumerate(TYPES)):
            shape = HEADS[(i + j) % len(HEADS)], width
            yield random_call(program, graph, *shape, dtype, False, i % 2 == 0)
            if _has_rows_of_edges(program):
                yield random_call(program, graph, *shape, dtype, True, i % 2 == 1)


def _has_rows_of_edges(program: EdgeProgram) -> bool:
    return any(operand.side == 'edge' and operand.level == 'channels' for operand in program.operands.values())


def _calls(graph: Graph, shapes: Sequence[tuple[tuple[int, int], torch.dtype]]) -> Iterator[Call]:
    known = programs()
    for name in WIDELY_USED:
        for shape, dtype in shapes:
            call = random_call(PROGRAMS[name], graph, *shape, dtype, False, dtype == torch.bfloat16)
            yield without_edges(call)
    for program in known:
        yield random_call(program, graph, *SHAPE, torch.float32, False, False)
        if _has_rows_of_edges(program):
            yield random_call(program, graph, *SHAPE, torch.float32, True, False)
    yield dataclasses.replace(random_call(PROGRAMS['gine'], graph, 1, 64, torch.float32, False, False), reduce='max')


def without_edges(call: Call) -> Call:
    """The call without operands of edges."""
    tensors = {key: value for key, value in call.tensors.items() if 'edge' not in key}
    present = tuple(name for name in call.bound.present if name in tensors or name in call.scalars)
    return dataclasses.replace(call, bound=call.bound.program.bind(present), tensors=tensors)


def launched(chosen: Callable[[Graph], Iterable[Call]], wide: bool = False) -> list[tuple[Kernel, tuple]]:
    """The kernels of calls on a graph of mean degree 4 with a row that lies in several parts, each once.

    Args:
        chosen: The calls on a graph.
        wide: Whether kernels are those for tensors that offsets of 32 bits do not reach.
    """
    edges = torch.stack([torch.arange(64) % 16, torch.cat([torch.zeros(32, dtype=torch.int64), torch.arange(32) % 16])])
    graph = Graph.of(edges, num_sources=16, num_targets=16)
    with force_mapping(Mapping('edge', part_work=7)), _recording(wide) as found:
        for call in chosen(graph):
            out, statistics = backend.forward(call)
            backend.backward(Gradient(call, out, statistics, torch.zeros_like(out), list(call.tensors)))
            if call.bound.score is not None:
                backend.weights(call, statistics)
    return found


def searched() -> list[tuple[Kernel, tuple]]:
    """The kernels of searches among points."""
    ends = torch.tensor([0, 4])
    with _recording() as found:
        for dtype in (torch.float32, torch.float64):
            x = torch.zeros(4, 3, dtype=dtype)
            knn.nearest(x, x, ends, ends, torch.tensor([2]), without_self=False, queries_first=True)
        radius.within(Within(x, x, ends, ends, 1.0, 2, without_self=False, queries_first=True))
    return found


@contextlib.contextmanager
def _recording(wide: bool = False) -> Iterator[list[tuple[Kernel, tuple]]]:
    """A ``with`` block in which kernels are not launched: it gives those that would be, once the block is left."""
    recorded: list[tuple[Kernel, tuple]] = []
    found: dict[tuple, tuple[Kernel, tuple]] = {}

    class Recorder(Kernel):
        def __call__(self, device, blocks, tiles, *arguments) -> None:
            description = tuple(describe(argument, wide) for argument in arguments)
            found.setdefault((self.key, self.layout, description), (self, description))
            if isinstance(arguments[-1], torch.Tensor):
                # what was counted decides what is allocated
                arguments[-1].zero_()

    before = kernels.Kernel, combination.FAN_IN
    # few pieces are many: what combines them level by level is launched, too
    kernels.Kernel, combination.FAN_IN = Recorder, 2
    try:
        yield recorded
    finally:
        kernels.Kernel, combination.FAN_IN = before
        for value in vars(kernels).values():
            if hasattr(value, 'cache_clear'):
                value.cache_clear()
        recorded += found.values()
