"""What a case says, as layers, graphs and arguments: made anew for each of the layers that are compared."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn
from torch import Generator, Tensor
from torch.nn import Module
from torch_geometric.typing import SparseTensor

import pygfuse
import pygfuse.conv
from pygfuse.hag.attach import attach
from pygfuse.partial.paths.attach import attach_distances
from pygfuse.transforms import find_hag
from tests.properties.dimension import LAYER, Case
from tests.properties.graphs import FORMATS, GRAPHS, edges_of
from tests.properties.layers import EDGE_TYPES, KINDS, METADATA, options_of
from tests.properties.possible import takes_edges
from tests.properties.space import SPACE
from tests.support.cases import FEATURES
from tests.support.parity import Example, initialise_what_pyg_does_not

OTHER_WIDTH = 5


@dataclasses.dataclass
class Leaf:
    """A tensor whose gradient is compared, and how an argument is made of it."""

    tensor: Tensor
    view: Callable[[Tensor], Tensor] = lambda tensor: tensor


@dataclasses.dataclass
class Arguments:
    """The arguments of a call.

    Attributes:
        leaves: By name, those whose gradients are compared.
        make: Gives the arguments of ``forward`` by name.
    """

    leaves: dict[str, Tensor]
    make: Callable[[], dict[str, Any]]


class Problem:
    """A case, for one of the layers that are compared.

    Args:
        case: Which one.
        fused: Whether the layer is the fused one.
        nudge: If not 0, features and parameters differ by a thousandth, in a way of this number.
        compiled: Whether PyG's layer is compiled, too, where the case says so.
    """

    def __init__(self, case: Case, fused: bool, nudge: int = 0, compiled: bool = False) -> None:
        self.case, self.fused, self.nudge = case, fused, nudge
        self.is_compiled = case['context'] == 'compiled' and (fused or compiled)
        self.meaning = SPACE.meaning(case)
        self.kind = KINDS[case[LAYER]]
        self.example: Example = GRAPHS[case['graph']](self.generator(1))

    def generator(self, stream: int) -> Generator:
        return Generator().manual_seed(self.case.seed * 64 + stream)

    @functools.cached_property
    def mask(self) -> Tensor:
        """The targets that are read."""
        rows = self.example.num_sources if self.is_reversed else self.example.num_targets
        rows = self.example.num_targets if self.example.bipartite else rows
        # of several outputs the first is read
        rows = self.example.num_sources if self.kind.by_type else rows
        return torch.rand(rows, generator=self.generator(2)) < 0.3

    @property
    def is_reversed(self) -> bool:
        return self.case['flow'] != 'source_to_target'

    # Layers

    def layer(self) -> Module:
        """The layer in float32, its parameters random, before anything is done to it."""
        state = self.meaning['state']
        compiled = self.kind.compiled
        is_swapped = self.fused and (state.swapped or compiled is not None)
        package = pygfuse.conv if self.fused and not is_swapped else torch_geometric.nn
        torch.default_generator.manual_seed(self.case.seed)
        options = options_of(self.case[LAYER], self.meaning)
        if self.kind.width is not None and self.case['width'] != 'number':
            options[self.kind.width] = -1 if self.case['width'] == 'lazy' else (FEATURES, OTHER_WIDTH)
        conv = (compiled or getattr(package, self.case[LAYER]))(**options)
        if compiled is not None:
            conv.flow = self.meaning['flow']
        if is_swapped:
            conv = pygfuse.fuse(conv)
        initialise_what_pyg_does_not(conv)
        if self.case['width'] == 'lazy':
            self.initialise(conv)
        with torch.no_grad():
            for parameter in conv.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))  # biases start as zeros
            if self.nudge:
                generator = self.generator(8 * self.nudge + 7)
                for parameter in conv.parameters():
                    parameter.mul_(1 + 1e-3 * torch.randn(parameter.shape, generator=generator))
        return conv.train(self.meaning['training'])

    def initialise(self, conv: Module) -> None:
        """The first call of a lazy layer."""
        named = self.arguments(torch.float32).make()
        # PyG's GMMConv finds the width in the first argument without a name
        has_pair = self.case[LAYER] != 'FAConv' and not self.kind.by_type
        first = (named.pop('x'), named.pop('edge_index')) if has_pair else ()
        with torch.no_grad():
            conv.eval()(*first, **named)

    def prepared(self, dtype: torch.dtype) -> Module:
        """The layer in its state and in a type."""
        state, conv = self.meaning['state'], self.layer()
        torch.default_generator.manual_seed(self.case.seed + 1)
        if not state.narrow:
            conv = conv.to(dtype)
        changed = state.change(conv, Caller(self))
        conv = conv if changed is None else changed
        return conv.to(dtype) if state.narrow else conv

    # Arguments

    def arguments(self, dtype: torch.dtype, adjacency: Any = None) -> Arguments:
        """Random arguments in a type; the same numbers each time.

        Args:
            dtype: The type.
            adjacency: The adjacency; by default a new one.
        """
        adjacency = self.adjacency(dtype) if adjacency is None else adjacency
        leaves = self._features(dtype)
        if self.case[LAYER] == 'FAConv':
            leaves['x_0'] = self._feature(self.example.num_sources, FEATURES, 5, dtype)
        edge = None if self.kind.by_type else self._of_edges(edges_of(adjacency), dtype)
        if edge is not None:
            leaves[self.kind.edge] = Leaf(edge)
        types = self._types(adjacency)

        def make() -> dict[str, Any]:
            named = {name: leaf.view(leaf.tensor) for name, leaf in leaves.items() if not name.startswith('x[')}
            if 'x[0]' in leaves:
                pair = [leaves[name].view(leaves[name].tensor) if name in leaves else None for name in ('x[0]', 'x[1]')]
                named['x'] = tuple(pair)
                if self.kind.by_type:
                    return {'x_dict': dict(zip(METADATA[0], pair, strict=True)), 'edge_index_dict': adjacency}
            elif self.case['x'] == 'pair':
                named['x'] = (named['x'], named['x'])
            return {**named, 'edge_index': adjacency, **types, **self._flags()}

        return Arguments({name: leaf.tensor for name, leaf in leaves.items()}, make)

    def _types(self, adjacency: Any) -> dict[str, Tensor]:
        """The types of edges and of nodes, where the layer takes them."""
        found = {}
        if self.kind.node_types is not None:
            nodes = self.example.num_sources, self.kind.node_types
            found['node_type'] = torch.randint(nodes[1], nodes[:1], generator=self.generator(8))
        if self.kind.edge_types:
            found['edge_type'] = self._types_of_edges(edges_of(adjacency))
        return found

    def _types_of_edges(self, count: int) -> Tensor:
        """The types of so many edges; the last of all types may have none."""
        named = self.meaning.get('shape', {})
        most = named.get('num_relations', self.meaning.get('num_relations', EDGE_TYPES))
        return torch.randint(max(most - 1, 1), (count,), generator=self.generator(9))

    def _flags(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.case['size'] == 'given':
            found['size'] = (self.example.num_sources, self.example.num_targets)
        if self.case['weights'] == 'returned':
            found['return_attention_weights'] = True
        return found

    def _features(self, dtype: torch.dtype) -> dict[str, Leaf]:
        example, of = self.example, self._feature
        if self.case['x'] in ('tensor', 'pair'):
            return {'x': of(example.num_sources, FEATURES, 3, dtype)}
        found = {'x[0]': of(example.num_sources, FEATURES, 3, dtype)}
        if self.case['x'] == 'twice':
            width = OTHER_WIDTH if self.case['width'] == 'pair' else FEATURES
            found['x[1]'] = of(example.num_targets, width, 4, dtype)
        return found

    def _feature(self, rows: int, width: int, stream: int, dtype: torch.dtype) -> Leaf:
        values = self._numbers((rows, width), stream).to(dtype)
        memory = self.case['memory']
        if memory == 'transposed':
            return _leaf(values.t().contiguous(), Tensor.t)
        if memory == 'sliced':
            wide = torch.nn.functional.pad(values, (1, 2, 1, 0))
            return _leaf(wide, lambda tensor: tensor[1:, 1 : width + 1])
        if memory == 'expanded':
            first = values[:1] if rows else values.new_zeros(1, width)
            return _leaf(first, lambda tensor: tensor.expand(rows, width))
        return _leaf(values)

    @property
    def _nudged_by(self) -> float:
        """How far numbers close by are: some roundings of a narrow type, which would else be the same numbers."""
        return 4 * torch.finfo(torch.bfloat16).eps if self.case['dtype'] == 'bfloat16' else 1e-3

    def _numbers(self, shape: tuple[int, ...], stream: int) -> Tensor:
        values = torch.randn(shape, generator=self.generator(stream))
        if self.nudge:
            generator = self.generator(stream + 8 * self.nudge)
            values = values + self._nudged_by * torch.randn(shape, generator=generator)
        kind = self.case['numbers']
        if kind == 'ties':
            return values.round()
        return torch.zeros(shape) if kind == 'zeros' else values * (1e-4 if kind == 'small' else 1.0)

    def _of_edges(self, count: int, dtype: torch.dtype) -> Tensor | None:
        kind, given = self.kind, self.case['edge']
        if kind.edge is None or given == 'missing' or (given == 'fitting' and not takes_edges(self.meaning)):
            return None
        values = torch.randn(count, 8, generator=self.generator(6)).to(dtype)
        if kind.edge == 'edge_weight':
            values = values[:, 0].abs() + 0.25  # sums of which have real roots
            values = values.unsqueeze(1) if given == 'one dimension' else values
        else:
            width = kind.edge_features or self.meaning[kind.edge_width]
            width = width or (FEATURES if self.case[LAYER] == 'GINEConv' else 3)
            values = values[:, 0] if given == 'one dimension' else values[:, :width]
        return values.contiguous().requires_grad_()

    # Adjacencies

    def adjacency(self, dtype: torch.dtype, example: Example | None = None) -> Any:
        """A new adjacency of the case's graph, or of another one."""
        example = self.example if example is None else example
        if self.kind.by_type:
            return {kind: self._in_layout(part, dtype) for kind, part in _by_type(example).items()}
        return self._in_layout(example, dtype)

    def _in_layout(self, example: Example, dtype: torch.dtype) -> Any:
        made = FORMATS[self.case['adjacency']](example)
        if isinstance(made, SparseTensor) and self.kind.edge_types and self.kind.edge is None:
            return made.set_value(self._types_of_edges(made.nnz()), layout='coo')  # where PyG looks for types
        if isinstance(made, SparseTensor):
            return made.type(dtype) if made.has_value() else made
        if made.dtype is torch.int32 and not self.fused:
            return made.long()  # torch's gather is wrong with an expanded index of int32, and so are PyG's gradients
        return made.to(dtype) if made.is_floating_point() else made

    def known_adjacency(self, conv: Module, dtype: torch.dtype) -> Any:
        """A new adjacency with the case's history: what was computed with it before."""
        history = self.case['history']
        if history == 'written':
            return self._written(conv, dtype)
        adjacency = self.adjacency(dtype)
        if history == 'second call':
            self.call(conv, dtype, adjacency)
        elif history == 'other flow before':
            flow, conv.flow = getattr(conv, 'flow', None), 'target_to_source'
            _silently(lambda: self.call(conv, dtype, adjacency))
            conv.flow = flow
        elif history == 'other layers before' and self.fused:
            x = self.arguments(torch.float32).make()['x']
            for other in (pygfuse.conv.SAGEConv(-1, 4), pygfuse.conv.GATConv(-1, 4, add_self_loops=False)):
                _silently(lambda other=other: other(x, adjacency))
        elif history == 'HAG' and self.fused:
            sizes = self.example.num_sources, self.example.num_targets
            hag = find_hag(adjacency, sizes, capacity=None, progress=False)
            attach(adjacency, hag)
        elif history == 'path' and self.fused:
            distances = torch.where(self.mask, 0, 255).to(torch.uint8)
            attach_distances(adjacency, lambda: distances)
        return adjacency

    def _written(self, conv: Module, dtype: torch.dtype) -> Tensor:
        """An edge_index that held other edges when the layer met it first."""
        example = self.example
        others = example.edge_index.roll(1, dims=1).flip(1)
        others = torch.stack([others[0].roll(1), others[1]])
        adjacency = self.adjacency(dtype, Example(others, example.num_sources, example.num_targets))
        self.call(conv, dtype, adjacency)
        adjacency.copy_(self.adjacency(dtype))
        return adjacency

    def call(self, conv: Module, dtype: torch.dtype, adjacency: Any = None) -> Any:
        return conv(**self.arguments(dtype, adjacency).make())


class Caller:
    """Calls layers with a problem's arguments, in the type of their parameters."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __call__(self, conv: Module) -> Any:
        dtype = next((parameter.dtype for parameter in conv.parameters()), torch.float32)
        return self.problem.call(conv, dtype)

    def edge_index(self) -> Tensor:
        return self.problem.adjacency(torch.float32)


def _by_type(example: Example) -> dict[tuple[str, str, str], Example]:
    """The edges of a graph by type: every other one the other way, some a second time."""
    number = torch.arange(example.num_edges)
    there, back, again = (example.edge_index[:, which] for which in (number % 2 == 0, number % 2 == 1, number % 5 == 0))
    sizes = example.num_sources, example.num_targets
    parts = Example(there, *sizes), Example(back.flip(0), *sizes[::-1]), Example(again, *sizes)
    return dict(zip(METADATA[1], parts, strict=True))


def _leaf(tensor: Tensor, view: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> Leaf:
    return Leaf(tensor.detach().clone().requires_grad_(), view)


def _silently(function: Callable[[], Any]) -> None:
    """Runs something of which only the traces that it leaves matter."""
    try:
        function()
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, NotImplementedError, AttributeError):
        return
