"""Whether a change of the code changes a bit: outputs, gradients and saved bytes of every fused layer, as digests.

Each case is a layer with one set of options, run on three graphs (one with hubs, a bipartite one, one with isolated
nodes, repeated edges and self-loops) in float32 and float64: three training steps on one graph, the first of which may
go another way than the others, and one inference. Store digests before a change, compare after it, on the same
processor; the number of threads does not matter:

    python benchmarks/bits.py --store before.json
    python benchmarks/bits.py --compare before.json
    python benchmarks/bits.py --compare before.json --only 'GATConv|GCNConv.*hubs'

It imports nothing of this folder and of the library what is public only, so that it runs beside an older version too.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import platform
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import torch
import torch_geometric
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, ReLU, Sequential
from torch_geometric.data import Data
from tqdm import tqdm

import pygfuse.conv
from pygfuse.memory import saved_bytes
from pygfuse.transforms import ToExecutionPaths, ToHAG

FEATURES, CHANNELS, HEADS, EDGE_DIM = 16, 8, 2, 3
STEPS = 3
DTYPES = {'float32': torch.float32, 'float64': torch.float64}


@dataclasses.dataclass(frozen=True)
class Example:
    """A graph: edges from sources to targets."""

    edge_index: Tensor
    num_sources: int
    num_targets: int

    @property
    def bipartite(self) -> bool:
        return self.num_sources != self.num_targets


def hubs() -> Example:
    """500 nodes, 3,000 edges; every tenth edge comes from node 3, another tenth goes into node 7."""
    edge_index = torch.randint(500, (2, 3000), generator=torch.Generator().manual_seed(1))
    edge_index[0, ::10] = 3
    edge_index[1, 1::10] = 7
    return Example(edge_index, 500, 500)


def bipartite() -> Example:
    """300 sources, 200 targets, 2,500 edges."""
    generator = torch.Generator().manual_seed(2)
    sources = torch.randint(300, (2500,), generator=generator)
    targets = torch.randint(200, (2500,), generator=generator)
    return Example(torch.stack([sources, targets]), 300, 200)


def odd() -> Example:
    """100 nodes of which 40 have no edge; every edge is there twice, 20 self-loops, one of them three times."""
    generator = torch.Generator().manual_seed(3)
    once = torch.randint(60, (2, 150), generator=generator)
    loops = torch.arange(20).repeat(2, 1)
    edge_index = torch.cat([once, loops, once, loops[:, :1].repeat(1, 2)], dim=1)
    return Example(edge_index[:, torch.randperm(edge_index.shape[1], generator=generator)], 100, 100)


GRAPHS: dict[str, Callable[[], Example]] = {'hubs': hubs, 'bipartite': bipartite, 'odd': odd}


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer with one set of options.

    Attributes:
        layer: The class's name.
        options: Of the constructor; modules are made by calling what stands there.
        edge: Name and width of the argument of edges, if any; width 0 for one number an edge.
        square: Whether the layer takes no bipartite graph.
        call: Further arguments of the call.
        prepare: What is done with the graph first: 'hag', 'paths' (with a loss on few nodes), 'shared prefixes' (few
            sources, edges sorted by target) or nothing.
        autocast: Whether it runs in bfloat16.
        one_thread: Whether it always runs on one thread, as torch's own operators in it round otherwise on several.
    """

    layer: str
    options: dict[str, Any]
    edge: tuple[str, int] | None = None
    square: bool = False
    call: dict[str, Any] = dataclasses.field(default_factory=dict)
    prepare: str | None = None
    autocast: bool = False
    one_thread: bool = False

    @property
    def name(self) -> str:
        shown = [f'{key}={value.__name__ if callable(value) else value}' for key, value in self.options.items()]
        shown += [f'{key}={value}' for key, value in self.call.items()]
        shown += [self.edge[0]] if self.edge else []
        shown += [self.prepare] if self.prepare else []
        shown += ['autocast'] if self.autocast else []
        return f'{self.layer}({", ".join(shown)})'

    def make(self, dtype: torch.dtype) -> Module:
        """The layer, its parameters drawn from a fixed seed, none of them left at zero."""
        torch.manual_seed(4)
        options = {key: value() if callable(value) else value for key, value in self.options.items()}
        layer = getattr(pygfuse.conv, self.layer)(**options)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        return layer.to(dtype)


def one_linear() -> Module:
    return Linear(FEATURES, CHANNELS)


def mlp() -> Module:
    return Sequential(Linear(FEATURES, CHANNELS), ReLU(), Linear(CHANNELS, CHANNELS))


def edge_linear() -> Module:
    return Linear(2 * FEATURES, CHANNELS)


def edge_mlp() -> Module:
    return Sequential(Linear(2 * FEATURES, CHANNELS), BatchNorm1d(CHANNELS), ReLU())


def deep_edge_mlp() -> Module:
    return Sequential(Linear(2 * FEATURES, CHANNELS), ReLU(), Linear(CHANNELS, CHANNELS))


WIDTHS = {'in_channels': FEATURES, 'out_channels': CHANNELS}
PAIR = {'in_channels': (FEATURES, FEATURES), 'out_channels': CHANNELS, 'heads': HEADS, 'add_self_loops': False}
ATTENTION = {**WIDTHS, 'heads': HEADS}
ATTRIBUTES, WEIGHTS = ('edge_attr', EDGE_DIM), ('edge_weight', 0)
WEIGHTED_CALL = {'return_attention_weights': True}

CASES = [
    Case('GATConv', ATTENTION, square=True),
    Case('GATConv', {**ATTENTION, 'heads': 1, 'residual': True}, square=True),
    Case('GATConv', {**ATTENTION, 'concat': False, 'dropout': 0.4}, square=True),
    Case('GATConv', {**ATTENTION, 'edge_dim': EDGE_DIM}, ATTRIBUTES, square=True),
    Case('GATConv', {**ATTENTION, 'edge_dim': EDGE_DIM, 'fill_value': 1.0, 'dropout': 0.4}, ATTRIBUTES, square=True),
    Case('GATConv', ATTENTION, square=True, call=WEIGHTED_CALL, one_thread=True),
    Case('GATConv', ATTENTION, square=True, autocast=True),
    Case('GATConv', PAIR),
    Case('GATConv', {**PAIR, 'edge_dim': EDGE_DIM, 'aggr': 'mean'}, ATTRIBUTES),
    Case('GATv2Conv', ATTENTION, square=True),
    Case('GATv2Conv', {**ATTENTION, 'share_weights': True, 'dropout': 0.4}, square=True),
    Case('GATv2Conv', {**ATTENTION, 'edge_dim': EDGE_DIM}, ATTRIBUTES, square=True),
    Case('GATv2Conv', {**ATTENTION, 'concat': False}, square=True, call=WEIGHTED_CALL, one_thread=True),
    Case('GATv2Conv', {**PAIR, 'edge_dim': EDGE_DIM}, ATTRIBUTES),
    Case('TransformerConv', ATTENTION),
    Case('TransformerConv', {**ATTENTION, 'beta': True, 'dropout': 0.4}),
    Case('TransformerConv', {**ATTENTION, 'edge_dim': EDGE_DIM}, ATTRIBUTES),
    Case('TransformerConv', {**ATTENTION, 'concat': False}, call=WEIGHTED_CALL, one_thread=True),
    Case('GCNConv', WIDTHS, square=True),
    Case('GCNConv', WIDTHS, WEIGHTS, square=True),
    Case('GCNConv', {**WIDTHS, 'improved': True, 'flow': 'target_to_source'}, square=True),
    Case('GCNConv', {**WIDTHS, 'normalize': False}, WEIGHTS, square=True),
    Case('GCNConv', WIDTHS, square=True, autocast=True),
    Case('GCNConv', WIDTHS, square=True, prepare='hag'),
    Case('GCNConv', WIDTHS, square=True, prepare='paths'),
    Case('SAGEConv', WIDTHS),
    Case('SAGEConv', {**WIDTHS, 'aggr': 'max', 'project': True}),
    Case('SAGEConv', {**WIDTHS, 'aggr': 'sum', 'normalize': True}),
    Case('SAGEConv', {**WIDTHS, 'aggr': 'min', 'root_weight': False}),
    Case('SAGEConv', {**WIDTHS, 'aggr': 'lstm'}, prepare='shared prefixes', one_thread=True),
    Case('SAGEConv', WIDTHS, square=True, prepare='hag'),
    Case('SAGEConv', {**WIDTHS, 'aggr': 'max'}, square=True, prepare='hag'),
    Case('SAGEConv', WIDTHS, square=True, prepare='paths'),
    Case('GraphConv', WIDTHS),
    Case('GraphConv', {**WIDTHS, 'aggr': 'mean'}, WEIGHTS),
    Case('GraphConv', {**WIDTHS, 'aggr': 'max'}, WEIGHTS),
    Case('GINConv', {'nn': mlp, 'train_eps': True}),
    Case('GINConv', {'nn': one_linear, 'aggr': 'mean'}),
    Case('GINEConv', {'nn': mlp, 'train_eps': True}, ('edge_attr', FEATURES)),
    Case('GINEConv', {'nn': mlp, 'edge_dim': EDGE_DIM}, ATTRIBUTES),
    Case('AGNNConv', {}, square=True),
    Case('AGNNConv', {'requires_grad': False, 'add_self_loops': False}, square=True),
    Case('FAConv', {'channels': FEATURES}, square=True),
    Case('FAConv', {'channels': FEATURES, 'dropout': 0.4}, square=True),
    Case('FAConv', {'channels': FEATURES, 'normalize': False}, WEIGHTS, square=True),
    Case('EdgeConv', {'nn': edge_linear}),
    Case('EdgeConv', {'nn': edge_mlp, 'aggr': 'mean'}),
    Case('EdgeConv', {'nn': edge_mlp}),
    Case('EdgeConv', {'nn': deep_edge_mlp}),
    Case('DynamicEdgeConv', {'nn': edge_linear, 'k': 5}),
    Case('GMMConv', {**WIDTHS, 'dim': 2, 'kernel_size': 3}, ('edge_attr', 2)),
    Case('GMMConv', {**WIDTHS, 'dim': 2, 'kernel_size': 2, 'separate_gaussians': True}, ('edge_attr', 2)),
    Case('ResGatedGraphConv', WIDTHS),
    Case('ResGatedGraphConv', {**WIDTHS, 'edge_dim': EDGE_DIM, 'aggr': 'mean'}, ATTRIBUTES),
    Case('CGConv', {'channels': FEATURES}),
    Case(
        'CGConv',
        {'channels': FEATURES, 'dim': EDGE_DIM, 'aggr': 'mean', 'batch_norm': True},
        ATTRIBUTES,
        one_thread=True,
    ),
]


class Inputs:
    """What a layer is called with: arguments, and those of them that have a gradient."""

    def __init__(self, case: Case, example: Example, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(5)

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(dtype)

        self.leaves = {'x': random(example.num_sources, FEATURES)}
        self.named: dict[str, Any] = dict(case.call)
        x: Any = self.leaves['x']
        if example.bipartite:
            self.leaves['x_target'] = random(example.num_targets, FEATURES)
            x = (x, self.leaves['x_target'])
        self.positional: list[Any] = [x]
        if case.layer == 'FAConv':
            self.leaves['x_0'] = random(example.num_sources, FEATURES)
            self.positional.append(self.leaves['x_0'])
        if case.edge:
            name, width = case.edge
            values = random(example.edge_index.shape[1], *([width] if width else []))
            self.leaves[name] = self.named[name] = values if width else values.abs() + 0.25
        for leaf in self.leaves.values():
            leaf.requires_grad_()
        self.rows = slice(0, 5) if case.prepare == 'paths' else slice(None)  # that the loss reads
        if case.layer != 'DynamicEdgeConv':
            self.positional.append(prepared(case, example))


def prepared(case: Case, example: Example) -> Tensor:
    """The edges, of their own for each case: what is found out about them is kept with them."""
    edge_index = example.edge_index.clone()
    if case.prepare is None:
        return edge_index
    if case.prepare == 'shared prefixes':
        sources, targets = edge_index[0] % 4, edge_index[1]
        return torch.stack([sources, targets])[:, torch.argsort(targets * 4 + sources, stable=True)]
    mask = torch.arange(example.num_targets) < 5
    data = Data(edge_index=edge_index, num_nodes=example.num_targets, train_mask=mask)
    if case.prepare == 'paths':
        return ToExecutionPaths(1)(data).edge_index
    return ToHAG(for_batches=True, min_saving=1, progress=False)(data).edge_index


def digest(tensor: Tensor) -> str:
    """Of a tensor's type, shape and bytes."""
    values = tensor.detach().contiguous()
    hashed = hashlib.sha256(f'{values.dtype} {list(values.shape)} '.encode())
    hashed.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()[:16]


def outputs_of(result: Any) -> list[Tensor]:
    """All tensors of a result, attention weights included."""
    if isinstance(result, Tensor):
        return [result]
    return [tensor for part in result for tensor in outputs_of(part)]


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """So many of torch's threads within."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measured(case: Case, example: Example, dtype: torch.dtype) -> dict[str, str | int]:
    """Digests of what a layer gives in three training steps and in inference, and bytes it saves for backward."""
    layer, inputs = case.make(dtype), Inputs(case, example, dtype)
    autocast = torch.autocast('cpu', torch.bfloat16) if case.autocast else contextlib.nullcontext()
    found: dict[str, str | int] = {}

    def forward() -> list[Tensor]:
        torch.manual_seed(6)
        with autocast:
            return outputs_of(layer(*inputs.positional, **inputs.named))

    for step in range(STEPS):
        for leaf in inputs.leaves.values():
            leaf.grad = None
        layer.zero_grad()
        outputs: list[Tensor] = []
        found[f'step {step}: saved bytes'] = saved_bytes(lambda outputs=outputs: outputs.extend(forward()))
        generator = torch.Generator().manual_seed(7)
        loss = torch.zeros((), dtype=dtype)
        for i, output in enumerate(outputs):
            found[f'step {step}: output {i}'] = digest(output)
            if output.requires_grad:
                read = output[inputs.rows]
                loss = loss + (read * torch.randn(read.shape, generator=generator).to(read.dtype)).sum()
        loss.backward()
        leaves = {**inputs.leaves, **{f'parameter {name}': value for name, value in layer.named_parameters()}}
        for name, leaf in leaves.items():
            if leaf.grad is not None:
                found[f'step {step}: gradient of {name}'] = digest(leaf.grad)
    layer.eval()
    with torch.no_grad():
        for i, output in enumerate(forward()):
            found[f'inference: output {i}'] = digest(output)
    # layers of earlier versions kept it themselves
    note = getattr(layer, 'note', None)
    reason = note.reason if hasattr(note, 'reason') else layer.last_reason
    if reason is not None:
        tqdm.write(f"{case.name} runs PyG's own path: {reason}")
    return found


def processor() -> str:
    """The processor's name: bits may differ from one to the next."""
    with contextlib.suppress(OSError):
        for line in Path('/proc/cpuinfo').read_text().splitlines():
            if line.startswith('model name'):
                return line.partition(':')[2].strip()
    return platform.processor() or platform.machine()


def machine() -> dict[str, str]:
    """What the bits may depend on besides the code."""
    return {
        'processor': processor(),
        'python': platform.python_version(),
        'torch': torch.__version__,
        'torch_geometric': torch_geometric.__version__,
        'numba': numba.__version__,
    }


def all_bits(only: str) -> dict[str, dict[str, str | int]]:
    """By case, graph and type what `measured` finds, of those whose name has a match of a regular expression."""
    jobs = {
        f'{case.name} / {graph} / {name}': (case, graph, dtype)
        for case in CASES
        for graph in GRAPHS
        for name, dtype in DTYPES.items()
        if not (graph == 'bipartite' and case.square) and not (case.autocast and dtype is torch.float64)
    }
    jobs = {name: job for name, job in jobs.items() if re.search(only, name)}
    bar = tqdm(jobs.items(), 'cases', disable=None)
    found = {}
    for name, (case, graph, dtype) in bar:
        with threads(1 if case.one_thread else torch.get_num_threads()):
            found[name] = measured(case, GRAPHS[graph](), dtype)
    return found


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for each value that is not the same, or on one side only."""
    lines = []
    for case in after:
        if case not in before:
            lines.append(f'{case}: was not stored')
            continue
        for what in sorted({*before[case], *after[case]}):
            one, other = before[case].get(what), after[case].get(what)
            if one != other:
                shown = f'{one} -> {other}' if 'bytes' in what else 'has other bits'
                if one is None or other is None:
                    shown = 'is new' if one is None else 'is gone'
                lines.append(f'{case}: {what} {shown}')
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument('--store', type=Path, metavar='FILE', help='write digests and bytes as JSON')
    way.add_argument('--compare', type=Path, metavar='FILE', help='print what differs from a stored file; 1 if any')
    parser.add_argument('--only', default='', metavar='REGEX', help='cases whose name has a match')
    options = parser.parse_args()
    if options.store:
        stored = {'machine': machine(), 'bits': all_bits(options.only)}
        options.store.write_text(json.dumps(stored, indent=1) + '\n')
        return 0
    stored = json.loads(options.compare.read_text())
    if stored['machine'] != machine():
        print(f'stored on another machine or with other versions: {stored["machine"]}, here {machine()}')
    found = all_bits(options.only)
    lines = differences(stored['bits'], found)
    print('\n'.join(lines) or f'{len(found)} cases: equal bits')
    return int(bool(lines))


if __name__ == '__main__':
    sys.exit(main())
