"""The fused graph network layer."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_geometric.nn
from torch import Tensor
from torch.nn import Module

from pygfuse._lib.backends import few_edges_of
from pygfuse.compiler import Captured, Given, Plan, Reason, Refused
from pygfuse.compiler.capture.watch import Guards
from pygfuse.compiler.modules.models import capture_edge_model, capture_node_model
from pygfuse.compiler.symbols.places import BY_OTHERS
from pygfuse.conv._compiled.call import Call, check_call
from pygfuse.conv._compiled.known_arguments import KnownArguments
from pygfuse.conv._compiled.plans import Plans, key_of, planned
from pygfuse.conv._compiled.traced_calls import Described, TracedCall, described, example_of, known_as, run_known
from pygfuse.conv._layer import fallback
from pygfuse.conv._layer.checks import is_edge_index
from pygfuse.conv._layer.noted import Noted
from pygfuse.conv._layer.untraced import NOT_TRACED
from pygfuse.conv._modules.few_edges import Few
from pygfuse.graph.adjacency import FLOWS, target_row_of
from pygfuse.graph.graph import Graph
from pygfuse.mapping.few_edges import fewest_of
from pygfuse.ops import Edges

_OF_CALLS = '_plans', '_few'


class MetaLayer(Noted, torch_geometric.nn.MetaLayer):
    r"""`torch_geometric.nn.MetaLayer`, whose models of edges and nodes run compiled: the same parameters and numbers.

    From the `"Relational Inductive Biases, Deep Learning, and Graph Networks" <https://arxiv.org/abs/1806.01261>`_
    paper.

    What ``edge_model`` and ``node_model`` compute is captured at the first call, as `pygfuse.compile` captures
    messages. A network of both ends, of features of edges and of graphs (``u[batch]``) runs on chunks of edges: its
    first linear map is taken once a node, and of edges x hidden nothing is in memory. A model of nodes reduces edges to
    their targets or to their sources. A model that has no fused form runs as it is, as all do along few edges, and
    `pygfuse.report` says which and why. ``global_model`` always runs as it is.

    Args:
        edge_model, node_model, global_model: As in PyG.

    Shapes:
        - **input:** node features :math:`(|\mathcal{V}|, F)`, edge indices :math:`(2, |\mathcal{E}|)`, and, where the
          models read them, edge features :math:`(|\mathcal{E}|, D)`, features of graphs :math:`(B, G)` and the graph
          of each node :math:`(|\mathcal{V}|)`
        - **output:** as PyG's

    Raises:
        ValueError: If ``x``, ``edge_attr`` or ``batch`` has not a row for each node or edge, ``edge_index`` names a
            node that is not there, or the tensors are on several devices; the message says which, and what it was.
            Along few edges the models' own code raises what it does.

    Example:
        >>> class EdgeModel(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.mlp = torch.nn.Sequential(torch.nn.Linear(11, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        ...
        ...     def forward(self, src, dst, edge_attr, u, batch):
        ...         return self.mlp(torch.cat([src, dst, edge_attr], dim=1))
        >>> layer = MetaLayer(EdgeModel())
        >>> x, edge_index, edge_attr = torch.randn(4, 4), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.randn(3, 3)
        >>> _, edge_attr, _ = layer(x, edge_index, edge_attr)
        >>> edge_attr.shape, layer.note.reason
        (torch.Size([3, 3]), 'edge_model: so few edges that a row for each takes less')
    """

    # within a module that is compiled whole, PyG's forward is what is captured
    is_captured_whole: ClassVar[bool] = True
    plain: ClassVar[type[Module]] = torch_geometric.nn.MetaLayer
    _plans: dict[str, Plans] | None = None
    # calls of models whose edges are so few that nothing else has to be looked at
    _few: dict[Module, Few] | None = None

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        u: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Runs the layer; arguments and results are those of PyG's ``MetaLayer.forward``."""
        reasons: dict[str, str] = {}
        if self.edge_model is not None:
            found = self._fused('edge_model', x, edge_index, edge_attr, u, batch, reasons)
            if found is None:
                row, col = edge_index[0], edge_index[1]
                found = self.edge_model(x[row], x[col], edge_attr, u, batch if batch is None else batch[row])
            edge_attr = found
        if self.node_model is not None:
            found = self._fused('node_model', x, edge_index, edge_attr, u, batch, reasons)
            x = self.node_model(x, edge_index, edge_attr, u, batch) if found is None else found
        if self.global_model is not None:
            u = self.global_model(x, edge_index, edge_attr, u, batch)
        self.runs_fused('; '.join(f'{name}: {reason}' for name, reason in reasons.items()) or None)
        return x, edge_attr, u

    def why_not(self) -> str | None:
        """The reason, if any, for which this layer as it stands runs PyG's own path."""
        return None

    @property
    def was_captured(self) -> bool:
        """Whether any call has been captured, or refused."""
        return bool(self._plans)

    def forget_plans(self) -> None:
        """Forgets what was captured: a layer of PyG's class would copy it."""
        for name in _OF_CALLS:
            self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in _OF_CALLS}

    def _fused(
        self, name: str, x: Any, edge_index: Any, edge_attr: Any, u: Any, batch: Any, reasons: dict[str, str]
    ) -> Tensor | None:
        """What a model computes; None if it has no fused form, whose reason is added to `reasons`."""
        given = {'x': x, 'edge_attr': edge_attr, 'u': u, 'batch': batch}
        if torch.compiler.is_compiling():
            traced = self._run_traced(name, edge_index, given)
            if isinstance(traced, str):
                reasons[name] = traced
            return None if isinstance(traced, str) else traced[0]
        model = getattr(self, name)
        few = None if self._few is None else self._few.get(model)
        if few is not None and few.has((edge_index,), {}):
            reasons[name] = few.reason
            return None
        try:
            call, plan = self._call_and_plan(name, given, edge_index)
        except Refused as refusal:
            plan = Reason.of(refusal)
        if isinstance(plan, Plan) and call.edges.num_edges < (fewest := _fewest_edges(plan, edge_index.device)):
            self._few = {**(self._few or {}), model: Few.of_edges(fewest, edge_index.device, plan.why_few)}
            plan = plan.why_few
        if isinstance(plan, str):
            reasons[name] = plan
            return None
        return plan.run(call.edges, call.tensors)

    def _run_traced(self, name: str, edge_index: Any, given: dict[str, Any]) -> tuple[Any, dict] | str:
        """The same while torch compiles, in a tuple, or why it traces the model."""
        given = {key: value for key, value in given.items() if value is not None}
        is_plain = type(edge_index) is Tensor and edge_index.dim() == 2
        if not is_plain or not all(isinstance(value, Tensor) for value in given.values()):
            return NOT_TRACED
        call = described(edge_index, None, given, ('x', 'batch'), ('edge_attr', 'u'))
        if call is None or torch.compiler.is_exporting():
            return NOT_TRACED
        return run_known(self.traced_model(name, call, str(edge_index.device)), self, edge_index, None, given)

    @torch.compiler.assume_constant_result
    def traced_model(self, name: str, call: Described, device: str) -> str:
        """The name of what is known of calls of a model, or why torch traces it.

        Args:
            name: Of the model.
            call: A call, as of `pygfuse.conv._compiled.traced_calls.described`.
            device: Where its tensors are.
        """
        edges, _, given = example_of(call, device)
        try:
            found, plan = self._call_and_plan(name, {**dict.fromkeys(_RESIDENCIES), **given}, edges)
            if isinstance(plan, str):
                # torch takes no constant of another class
                return str(plan)
            return known_as(TracedCall.of(plan, self, _arguments_of(given), found.edges.flow))
        except (Refused, ValueError) as refusal:
            return str(refusal)

    def _call_and_plan(self, name: str, given: dict[str, Any], edge_index: Any) -> tuple[Call, Plan | str]:
        """The call of a model, whose targets are those nodes to which it reduces, and its plan.

        Raises:
            Refused: If an argument has no fused form.
        """
        for flow in FLOWS:
            call = _call_of(given, edge_index, flow)
            plan = self._plan(name, call)
            if plan != BY_OTHERS:
                break
        return call, plan

    def _plan(self, name: str, call: Call) -> Plan | str:
        """The plan of a model, or why there is none."""
        if self._plans is None:
            self._plans = {}
        model, known = getattr(self, name), self._plans.setdefault(name, {})

        def capture(guards: Guards) -> Captured:
            guards.add(self, name, model)
            if name == 'edge_model':
                return capture_edge_model(model, call.given, guards)
            return capture_node_model(model, call.given, guards, target_row_of(call.edges.flow))

        plan = planned(known, (call.edges.flow, key_of(call.given)), capture)
        if isinstance(plan, str):
            return plan
        if name == 'node_model' and plan.guarded:
            return 'an operator of nodes whose derivative may not be finite'
        return plan.why_not(call.edges, call.tensors) or plan


_RESIDENCIES = {'x': 'target', 'edge_attr': 'edge', 'u': 'shared', 'batch': 'target'}


def _fewest_edges(plan: Plan, device: torch.device) -> int:
    """Along how many edges a plan takes less than a model's own code, as measured on a CPU."""
    is_measured = few_edges_of(device) is not None
    fewest = plan.fewest_edges if plan.num_normalised else 0
    return max(fewest, fewest_of(is_of_a_module=True)) if is_measured else 0


def _arguments_of(given: dict[str, Tensor]) -> KnownArguments:
    """Where the tensors of a call of a model are."""
    by_residency = {side: [name for name in given if _RESIDENCIES[name] == side] for side in _RESIDENCIES.values()}
    return KnownArguments(
        of_nodes=tuple((name, name, None) for name in by_residency['target']),
        of_edges=tuple(by_residency['edge']),
        shared=tuple((name, given[name].shape) for name in by_residency['shared']),
        counted=tuple((name, None, 1) for name in by_residency['target']),
        of_update=(),
        num_stacked=None,
    )


def _call_of(given: dict[str, Any], edge_index: Any, flow: str) -> Call:
    """The call of a model, whose edges lead from sources to targets so.

    Raises:
        Refused: If an argument has no fused form.
    """
    reason = fallback.why_not_here()
    if reason is None and not is_edge_index(edge_index):
        reason = 'an adjacency that is no edge_index'
    if reason is not None:
        raise Refused(reason)
    for name, argument in given.items():
        if argument is not None and not isinstance(argument, Tensor):
            raise Refused(f'{name} is a {type(argument).__name__}')
    if given['x'] is None or given['x'].dim() == 0:
        raise Refused('there are no features of nodes')
    nodes = given['x'].shape[0]
    graph = Graph.of(edge_index, None, flow, num_sources=nodes, num_targets=nodes)
    if graph.num_user_edges == 0:
        raise Refused('there are no edges')
    rows = {'target': nodes, 'edge': graph.num_user_edges}
    items = {}
    for name, tensor in given.items():
        residency = _RESIDENCIES[name]
        if tensor is not None and residency in rows and (tensor.dim() == 0 or tensor.shape[0] != rows[residency]):
            raise ValueError(
                f"Expected '{name}' to have a row for each of {rows[residency]} "
                f'{"nodes" if residency == "target" else "edges"} (got shape {list(tensor.shape)})'
            )
        items[name] = None if tensor is None else Given(residency, tensor)
    call = Call(Edges(graph.token, nodes, nodes, flow, None, graph), items, {}, {})
    check_call(call)
    return call
