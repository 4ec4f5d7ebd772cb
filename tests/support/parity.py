"""Compares a fused convolution with PyG's: outputs and all gradients, on any graph and adjacency format.

The rule compares two errors instead of picking a tolerance: PyG in float64 is the reference, and the error of the fused
float32 result is at most twice that of PyG's own float32 result (never asked to be below 1e-5 of the reference's
scale). The fused float64 result is close to the reference.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.typing import SparseTensor

RELATIVE = {torch.float32: 1e-5, torch.float64: 1e-10}
# of the largest gradient: what is left where a gradient cancels to nothing
FLOOR = {torch.float32: 1e-6, torch.float64: 1e-13}


@dataclasses.dataclass(frozen=True)
class Example:
    """A graph to test on: ``edge_index`` with row 0 holding sources, and the numbers of nodes."""

    edge_index: Tensor
    num_sources: int
    num_targets: int

    @property
    def bipartite(self) -> bool:
        return self.num_sources != self.num_targets

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    def x(self, features: int, seed: int = 0) -> Any:
        """Random features: a tensor, or a pair of them where sources and targets differ."""
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(self.num_sources, features, generator=generator)
        return (x, torch.randn(self.num_targets, features, generator=generator)) if self.bipartite else x

    def edge_attr(self, features: int | None = None, seed: int = 1) -> Tensor:
        """Random edge features ``[edges, features]``, or ``[edges]`` if `features` is None."""
        shape = (self.num_edges,) if features is None else (self.num_edges, features)
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def random_edges(num_sources: int, num_targets: int, num_edges: int, seed: int = 0) -> Tensor:
    """Uniformly random edges, repeats and self-loops as they come."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(max(size, 1), (num_edges,), generator=generator) for size in (num_sources, num_targets)]
    return torch.stack(rows)


def cliques(count: int, size: int = 30) -> Tensor:
    """Edges of complete graphs side by side, without self-loops."""
    pairs = torch.cartesian_prod(torch.arange(size), torch.arange(size)).t()
    return torch.cat([_without_loops(pairs) + size * i for i in range(count)], dim=1)


def _square(edge_index: Any, num_nodes: int) -> Example:
    return Example(torch.as_tensor(edge_index).view(2, -1), num_nodes, num_nodes)


def _without_loops(edge_index: Tensor) -> Tensor:
    return edge_index[:, edge_index[0] != edge_index[1]]


def _hub(degree: int = 100_000, num_nodes: int = 50) -> Example:
    into = torch.stack([torch.arange(degree) % num_nodes, torch.zeros(degree, dtype=torch.int64)])
    return _square(torch.cat([into, random_edges(num_nodes, num_nodes, 100)], dim=1), num_nodes)


def _complete(num_nodes: int = 6) -> Example:
    return _square(_without_loops(torch.cartesian_prod(*[torch.arange(num_nodes)] * 2).t().contiguous()), num_nodes)


GRAPHS: dict[str, Callable[[], Example]] = {
    'random': lambda: _square(_without_loops(random_edges(60, 60, 400)), 60),
    'bipartite, more sources': lambda: Example(random_edges(40, 23, 200), 40, 23),
    'bipartite, more targets': lambda: Example(random_edges(17, 45, 200), 17, 45),
    'isolated nodes': lambda: _square(random_edges(10, 10, 40) * 3, 40),
    'no edges': lambda: _square(torch.empty(2, 0, dtype=torch.int64), 7),
    'repeated edges': lambda: _square(random_edges(5, 5, 120), 12),
    'self-loops': lambda: _square(torch.cat([torch.arange(9).expand(2, 9), random_edges(9, 9, 30)], dim=1), 9),
    'hub': _hub,
    'one node': lambda: _square(torch.empty(2, 0, dtype=torch.int64), 1),
    'one node with a loop': lambda: _square([[0], [0]], 1),
    'complete': _complete,
    'path': lambda: _square(torch.stack([torch.arange(29), torch.arange(1, 30)]), 30),
}
BIPARTITE = tuple(name for name in GRAPHS if name.startswith('bipartite'))


def _edge_index_class(example: Example, sort_order: str | None) -> EdgeIndex:
    size = (example.num_sources, example.num_targets)
    index = example.edge_index
    if sort_order is not None:
        row = index[0 if sort_order == 'row' else 1]
        index = index[:, row.argsort(stable=True)]
    return EdgeIndex(index, sparse_size=size, sort_order=sort_order)


def _coo(example: Example) -> Tensor:
    """The transposed adjacency, coalesced: rows are targets, repeated edges are one."""
    size = (example.num_targets, example.num_sources)
    return torch.sparse_coo_tensor(example.edge_index.flip(0), torch.ones(example.num_edges), size).coalesce()


def _sparse_tensor(example: Example) -> SparseTensor:
    source, target = example.edge_index
    return SparseTensor(row=target, col=source, sparse_sizes=(example.num_targets, example.num_sources))


ADJACENCIES: dict[str, Callable[[Example], Any]] = {
    'edge_index': lambda example: example.edge_index,
    'int32': lambda example: example.edge_index.int(),
    'not contiguous': lambda example: example.edge_index.t().contiguous().t(),
    'EdgeIndex': lambda example: _edge_index_class(example, None),
    'EdgeIndex by row': lambda example: _edge_index_class(example, 'row'),
    'EdgeIndex by column': lambda example: _edge_index_class(example, 'col'),
    'COO': _coo,
    'CSR': lambda example: _coo(example).to_sparse_csr(),
    'CSC': lambda example: _coo(example).to_sparse_csc(),
    'SparseTensor': _sparse_tensor,
}
SPARSE = ('COO', 'CSR', 'CSC', 'SparseTensor')


def initialise_what_pyg_does_not(conv: torch.nn.Module) -> None:
    """Sets the parameter that PyG's RGATConv leaves as the memory was."""
    if isinstance(conv, torch_geometric.nn.RGATConv):
        torch.nn.init.constant_(conv.l2, 1 / conv.out_channels)


@dataclasses.dataclass(frozen=True)
class Parity:
    """A class of PyG and the fused class that stands for it.

    Args:
        pyg: PyG's class.
        fused: The fused class.
    """

    pyg: type
    fused: type

    def make(self, options: Mapping[str, Any], seed: int = 0, **arguments: Any) -> tuple[Any, Any]:
        """A layer of each class with the same random parameters; lazy ones are initialised by `arguments`."""
        torch.manual_seed(seed)
        pyg = self.pyg(**copy.deepcopy(dict(options)))
        initialise_what_pyg_does_not(pyg)
        if any(torch.nn.parameter.is_lazy(parameter) for parameter in pyg.parameters()):
            with torch.no_grad():
                pyg(**arguments)
        with torch.no_grad():
            for parameter in pyg.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))  # biases start as zeros
        fused = self.fused(**copy.deepcopy(dict(options)))
        fused.load_state_dict(pyg.state_dict())
        return pyg, fused

    def check(
        self,
        options: Mapping[str, Any],
        seed: int = 0,
        pyg_edge_index: Any = None,
        narrow: bool = True,
        **arguments: Any,
    ) -> None:
        """Asserts that a layer of both classes gives the same outputs and gradients, and that it ran fused.

        Args:
            options: Keyword arguments of the constructor; modules among them are copied.
            seed: Seed of the parameters and of the gradient that reaches the outputs.
            pyg_edge_index: What PyG gets as ``edge_index`` where it does not take the same.
            narrow: Whether to compare in float32 too. (Kernels of each type are compiled apart.)
            arguments: Keyword arguments of ``forward``. Gradients are compared for every floating tensor among them
                (alone or in a tuple) and every parameter; tensors of the outputs are compared all.
        """
        for_pyg = arguments if pyg_edge_index is None else {**arguments, 'edge_index': pyg_edge_index}
        pyg, fused = self.make(options, seed, **for_pyg)
        reference = results(copy.deepcopy(pyg).double(), for_pyg, torch.float64, seed)
        wide = copy.deepcopy(fused).double()
        assert_close(results(wide, arguments, torch.float64, seed), reference)
        assert wide.note.reason is None
        if narrow:
            plain = results(pyg, for_pyg, torch.float32, seed)
            assert_close(results(fused, arguments, torch.float32, seed), reference, plain)
            assert fused.note.reason is None


def results(conv: torch.nn.Module, arguments: Mapping[str, Any], dtype: torch.dtype, seed: int) -> dict[str, Any]:
    """The outputs of a layer and the gradients of its inputs and parameters, by name."""
    arguments = {name: _leaves(value, dtype) for name, value in arguments.items()}
    leaves = {
        key: leaf for name, value in arguments.items() for key, leaf in tensors(name, value) if leaf.requires_grad
    }
    outputs = dict(tensors('output', conv(**arguments)))
    # what it has stored in objects and dicts
    outputs |= {f'stored {key}': one for key, one in tensors('', arguments) if not one.is_leaf}
    generator = torch.Generator().manual_seed(seed)
    loss = 0.0
    for output in outputs.values():
        if output.is_floating_point() and output.requires_grad:
            loss = loss + (output * torch.randn(output.shape, generator=generator).to(dtype)).sum()
    loss.backward()
    found = {name: output.detach() for name, output in outputs.items()}
    found |= {f'gradient of {key}': leaf.grad for key, leaf in leaves.items()}
    return found | {f'gradient of {name}': parameter.grad for name, parameter in conv.named_parameters()}


def _leaves(value: Any, dtype: torch.dtype) -> Any:
    """The value in a floating type, its tensors new leaves that require gradients."""
    if isinstance(value, tuple):
        return tuple(_leaves(item, dtype) for item in value)
    if isinstance(value, dict):
        return {key: _leaves(item, dtype) for key, item in value.items()}
    if isinstance(value, Data):
        return type(value).from_dict(_leaves(value.to_dict(), dtype))
    if isinstance(value, SparseTensor):
        return value.type(dtype) if value.has_value() and value.storage.value().is_floating_point() else value
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    if value.layout is not torch.strided:
        return value.to(dtype)
    return value.detach().to(dtype, copy=True).requires_grad_()


def tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """All dense tensors in a value: tuples, sparse matrices and EdgeIndex are taken apart."""
    if isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from tensors(f'{name}[{i}]', item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(f'{name}[{key!r}]', item)
    elif isinstance(value, Data):
        yield from tensors(name, value.to_dict())
    elif isinstance(value, SparseTensor):
        yield from tensors(f'{name} as COO', value.coo())
    elif isinstance(value, EdgeIndex):
        yield f'{name} (EdgeIndex)', value.as_tensor()
    elif isinstance(value, Tensor):
        if value.layout is torch.sparse_coo:
            yield f'{name} (COO indices)', value._indices()
            yield f'{name} (COO values)', value._values()
        elif value.layout is torch.sparse_csr:
            parts = value.crow_indices(), value.col_indices(), value.values()
            yield from tensors(f'{name} (CSR)', parts)
        elif value.layout is torch.sparse_csc:
            parts = value.ccol_indices(), value.row_indices(), value.values()
            yield from tensors(f'{name} (CSC)', parts)
        else:
            yield name, value


def _error(found: Tensor, reference: Tensor) -> float:
    return _largest(found.double() - reference.double())


def _largest(tensor: Tensor | None) -> float:
    return 0.0 if tensor is None or tensor.numel() == 0 else float(tensor.abs().max())


def assert_close(
    found: Mapping[str, Tensor | None], reference: Mapping[str, Tensor | None], plain: Mapping[str, Any] | None = None
) -> None:
    """Asserts that results are as close to the reference as the rule says.

    Args:
        found: Results of the fused layer.
        reference: Results of PyG in float64.
        plain: Results of PyG in the type of `found`, whose error may be doubled.
    """
    assert list(found) == list(reference)
    gradients = max((_largest(tensor) for name, tensor in reference.items() if name.startswith('gradient')), default=0)
    for name, expected in reference.items():
        got = found[name]
        if expected is None:
            # a graph without edges: PyG leaves early, without the parameters of edges
            assert _largest(got) == 0, f'{name} is not None or zero, as it is in PyG'
            continue
        assert got is not None, f'{name} is missing'
        assert got.shape == expected.shape, name
        if not expected.is_floating_point():
            assert torch.equal(got, expected), name
            continue
        assert bool(got.isfinite().all()), f'{name} is not finite'
        scale = _largest(expected)
        floor = FLOOR[got.dtype] * gradients if name.startswith('gradient') else 0.0
        allowed = max(RELATIVE[got.dtype] * scale, floor)
        if plain is not None:
            allowed = max(allowed, 2 * _error(plain[name], expected))
        error = _error(got, expected)
        assert error <= allowed, f'{name}: error {error:.3g} of {scale:.3g} ({got.dtype}), allowed {allowed:.3g}'
