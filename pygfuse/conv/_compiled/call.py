"""A call of ``propagate``: its edges, and the arguments of the layer's methods by name, nothing gathered to edges."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor

from pygfuse._lib.written_by_pyg import is_template
from pygfuse.compiler import EdgeIndexRows, Given, Plan, Refused, Several, rows_of
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.checks import is_edge_index
from pygfuse.conv._layer.stacks import run_over_stacks
from pygfuse.graph.adjacency import values_of
from pygfuse.graph.remade_edges import graph_of
from pygfuse.ops import Edges
from pygfuse.ops.listed import savable, stand_for_themselves

_SPECIAL = {
    'edge_index', 'adj_t', 'edge_index_i', 'edge_index_j', 'size', 'size_i', 'size_j', 'ptr', 'index', 'dim_size'
}  # fmt: skip
# what a message may be given beside tensors
SIMPLE = (int, float, bool, str, type(None))


class Call(NamedTuple):
    """A call.

    Attributes:
        edges: The edges.
        given: What the layer's methods take, by name, as the compiler takes it.
        of_update: The arguments of ``update``.
        stacks: Features of more than two dimensions by name, ``[*, nodes, channels]`` or ``[*, edges, channels]``;
            `given` has the first of each.
    """

    edges: Edges
    given: dict[str, Any]
    of_update: dict[str, Any]
    stacks: dict[str, Tensor]

    @property
    def reads_rows(self) -> bool:
        """Whether rows of its tensors may be chosen by those of ``edge_index``."""
        return 'edge_index' in self.given

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {name: item.value for name, item in self.given.items() if isinstance(item, Given)}

    @property
    def num_rows_of_edges(self) -> int | None:
        """Number of edges; None where as many features could be taken for them."""
        count = self.edges.num_user_edges
        widths = {size for item in self.given.values() if isinstance(item, Given) for size in item.value.shape[1:]}
        return None if count in widths else count

    def run(self, plan: Plan) -> Any:
        """The aggregated messages, or whatever the layer's methods return."""
        if not self.stacks:
            return plan.run(self.edges, self.tensors)
        return run_over_stacks(plan, self.edges, self.tensors, self.stacks)


@functools.lru_cache(maxsize=512)
def _names(function: Any, first: int) -> tuple[tuple[str, Any], ...]:
    parameters = list(inspect.signature(function).parameters.values())[first:]
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        raise Refused('its methods take any arguments')
    return tuple((p.name, p.default) for p in parameters)


def takes_weights(kind: type) -> bool:
    """Whether the messages of a class are given ``edge_weight``."""
    return any(name == 'edge_weight' for name, _ in _names(kind.message, 1))


def names_read(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arguments of ``propagate`` that a class gathers to the edges, without ``_i`` and ``_j``, and the others that
    its messages and aggregations are given.

    Raises:
        Refused: If they take any.
    """
    names = [name for name, _ in (*_names(kind.message, 1), *_names(kind.aggregate, 2)) if name not in _SPECIAL]
    of_nodes = tuple(dict.fromkeys(name[:-2] for name in names if name[-2:] in ('_i', '_j')))
    return of_nodes, tuple([name for name in names if name[-2:] not in ('_i', '_j') and name not in of_nodes])


def collected(conv: Any, adjacency: Any, size: Any, kwargs: Mapping[str, Any], of_edges: bool = False) -> Call:
    """Does what PyG's ``_collect`` does, but for the gathering.

    Args:
        conv: The layer.
        adjacency: What the user passed.
        size: The numbers of sources and targets, if somebody gives them.
        kwargs: The arguments.
        of_edges: Whether they are those of ``edge_updater``, not of ``propagate``.

    Raises:
        Refused: If an argument has no fused form.
        ValueError: If the adjacency is none, or sizes contradict each other; as PyG.
    """
    kind = type(conv)
    sizes = conv._check_input(adjacency, size)
    wanted = dict(_names(kind.edge_update, 1) if of_edges else (*_names(kind.message, 1), *_names(kind.aggregate, 2)))
    of_update = {} if of_edges else dict(_names(kind.update, 2))
    given = _with_values({**kwargs}, adjacency)
    i, j = (1, 0) if conv.flow == 'source_to_target' else (0, 1)
    found: dict[str, Any] = {}
    within: dict[str, Any] = {}
    stacks: dict[str, Tensor] = {}
    for name in (*wanted, *of_update):
        if name not in _SPECIAL and name[-2:] in ('_i', '_j'):
            item = _of_nodes(conv, sizes, given.get(name[:-2]), i if name[-2:] == '_i' else j, j)
            if isinstance(item, Given) and item.is_stacked:
                stacks[name] = item.value
                item = dataclasses.replace(item, value=item.value[0])
            found[name] = item
    first, second = sizes[j], sizes[i]
    targets = second if second is not None else first
    sources = first if first is not None else second
    if targets is None:
        sources, targets = _last_nodes(adjacency, {*wanted, *of_update}, j)
    if 'edge_index' in wanted and is_edge_index(adjacency):
        found['edge_index'] = EdgeIndexRows(i)
    if 'size' in wanted:
        found['size'] = rows_of(sizes, j)
    graph, _ = graph_of(conv.note, adjacency, conv.flow, sources, targets)
    # few edges are walked as they come, in this call as in those that are known
    token = savable(adjacency) if stand_for_themselves(adjacency) else graph.token
    edges = Edges(token, sources, targets, conv.flow, None, graph)
    if graph.num_user_edges == 0:
        raise Refused('there are no edges')
    for name, default in wanted.items():
        if name not in found and name not in _SPECIAL:
            argument = given.get(name, default)
            is_whole = f'{name}_i' in wanted or f'{name}_j' in wanted
            # its rows may be read by those of the edges
            is_read = 'edge_index' in found and sources != graph.num_user_edges
            has_row = isinstance(argument, Tensor) and argument.shape[:1] == (sources,) == (targets,)
            if has_row and (is_whole or is_read):
                found[name] = Given('target', argument, is_of_all=True)
            elif stacks and _is_stack_of_edges(argument, graph.num_user_edges):
                stacks[name] = argument
                found[name] = Given('edge', argument[0], is_stacked=True)
            elif type(argument) in (tuple, list) and argument:
                parts = {f'{name}.{place}': one for place, one in enumerate(argument)}
                within |= {part: _as_given(part, one, graph.num_user_edges) for part, one in parts.items()}
                found[name] = Several(type(argument), tuple(parts))
            else:
                found[name] = _as_given(name, argument, graph.num_user_edges)
    arguments = {}
    for name, default in of_update.items():
        if name in _SPECIAL or name[-2:] in ('_i', '_j'):
            raise Refused(f'update reads {name}')
        arguments[name] = given.get(name, default)
    if stacks and (len({s.shape[0] for s in stacks.values()}) > 1 or not _all_stacked(found)):
        raise Refused('features of two and of more dimensions')
    call = Call(edges, {**{name: found[name] for name in wanted if name in found}, **within}, arguments, stacks)
    check_call(call)
    return call


def _last_nodes(adjacency: Any, wanted: Collection[str], source_dim: int) -> tuple[int, int]:
    """The numbers of sources and of targets where nobody says them: PyG aggregates to the last one that has an edge."""
    if torch.compiler.is_compiling() or not is_edge_index(adjacency) or not adjacency.numel():
        raise Refused('nothing tells the number of nodes')
    if read := sorted({'size', 'size_i', 'size_j'} & {*wanted}):
        raise Refused(f'it reads {read[0]}, and nothing tells the number of nodes')
    counts = (adjacency.amax(dim=1) + 1).tolist()
    return counts[source_dim], counts[1 - source_dim]


def _with_values(given: dict[str, Any], adjacency: Any) -> dict[str, Any]:
    """The arguments with the values of a sparse adjacency for edge weights that nobody gives."""
    if is_edge_index(adjacency) or isinstance(adjacency, EdgeIndex):
        return given
    values = values_of(adjacency)
    one_number = values is not None and values.dim() == 1 and not isinstance(adjacency, SparseTensor)
    for name, value in (('edge_weight', values), ('edge_attr', None if one_number else values), ('edge_type', values)):
        if given.get(name) is None:
            given[name] = value
    return given


def _of_nodes(conv: Any, sizes: list[int | None], data: Any, dim: int, source_dim: int) -> Any:
    """An argument that PyG gathers to the edges."""
    if isinstance(data, (tuple, list)):
        if len(data) != 2:
            raise Refused('an argument of nodes that is no pair')
        if isinstance(data[1 - dim], Tensor):
            conv._set_size(sizes, 1 - dim, data[1 - dim])
        data = data[_place_in_pair(conv, sizes, data, dim, source_dim)]
    if not isinstance(data, Tensor):
        return data
    conv._set_size(sizes, dim, data)
    is_stacked = data.dim() == 3 and conv.node_dim == -2 and data.shape[0] > 0
    if conv.node_dim % data.dim() != 0 and not is_stacked:
        raise Refused(f'node_dim={conv.node_dim} is not the first dimension of its features')
    return Given('source' if dim == source_dim else 'target', data, is_stacked)


def _place_in_pair(conv: Any, sizes: list[int | None], pair: Any, dim: int, source_dim: int) -> int:
    """Which tensor of a pair PyG gathers where the flow is reversed: by its template what it would take otherwise."""
    if source_dim == 0 or not is_template(conv.plain, conv.plain.propagate, 'propagate'):
        return dim
    rows = {*sizes, *(one.shape[conv.node_dim] for one in pair if isinstance(one, Tensor))} - {None}
    if len(rows) > 1:
        raise Refused('flow target_to_source between different sets of nodes')
    return 1 - dim


def _all_stacked(found: Mapping[str, Any]) -> bool:
    """Whether all features of nodes are stacked, and nothing else of edges has a dimension before that of edges."""
    given = [item for item in found.values() if isinstance(item, Given) and not item.is_stacked]
    return all(item.residency not in ('source', 'target') and item.value.dim() <= 2 for item in given)


def _is_stack_of_edges(argument: Any, num_edges: int) -> bool:
    """Whether an argument has values of each edge for each of several features of nodes in one tensor."""
    is_stack = isinstance(argument, Tensor) and argument.dim() == 3 and argument.shape[0] > 0
    return is_stack and argument.shape[1] == num_edges


def _as_given(name: str, argument: Any, num_edges: int) -> Any:
    if argument is inspect.Parameter.empty:
        raise Refused(f'no {name} is given')
    if isinstance(argument, Tensor):
        is_of_edges = argument.dim() > 0 and argument.shape[0] == num_edges
        return Given('edge' if is_of_edges else 'shared', argument)
    if not isinstance(argument, SIMPLE):
        raise Refused(f'{name} is a {type(argument).__name__}')
    return argument


def check_call(call: Call) -> None:
    """Raises `Refused` for tensors of types and devices without kernels, ValueError for several devices."""
    tensors = call.tensors
    if not tensors:
        raise Refused('its messages read no tensors')
    device = call.edges.walked.device
    for name, tensor in tensors.items():
        if type(tensor) not in (Tensor, Parameter):
            raise Refused(f'{name} is a {type(tensor).__name__}')
        if tensor.device != device:
            raise ValueError(f"Expected '{name}' on the device of 'edge_index', {device} (got {tensor.device})")
    check_types(tensors)


def check_types(tensors: Mapping[str, Tensor]) -> None:
    """Raises `Refused` for tensors of types without kernels."""
    floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    if not floating:
        raise Refused('its messages are no floating numbers')
    reason = fallback.why_not_tensors(floating, False)
    if reason is not None:
        raise Refused(reason)
