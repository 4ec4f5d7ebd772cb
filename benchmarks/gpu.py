"""The CUDA backend beside PyG, cuSPARSE and the memory's own speed: ``python benchmarks/gpu.py``.

Graphs are generated with a power law, of the sizes of Reddit, ogbn-arxiv and Cora; features are random. For each layer:
forward, and forward with backward, as times and as multiples of one product of torch's CSR matrix (cuSPARSE) with
features of the same width; the share of the measured copy bandwidth that the bytes reach which the algorithm must
move; the peak of the memory; PyG's own layer; where turbo-gnn is installed, its aggregation beside ours alone. For
Cora's size, a whole captured training step beside PyG's. Layers include their linear maps, from few features
(`--features`).

Each section runs in a process of its own, at most `--limit` seconds: one that fails (PyG's, for want of memory) costs
its own figures only. Needs a GPU, torch, PyG and numba-cuda, nothing else. Prints Markdown; `--out` gets it, and all
samples as JSON, after each section.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import math
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_geometric
import torch_geometric.nn
from torch import Tensor

import pygfuse
import pygfuse.conv
from pygfuse.cuda.capture import capture
from pygfuse.graph.graph import Graph
from pygfuse.memory import peak_bytes
from pygfuse.ops import Edges, aggregate
from pygfuse.program.library.gatv2 import GATV2
from pygfuse.program.library.transformer import TRANSFORMER


@dataclasses.dataclass(frozen=True)
class Size:
    """A graph to be generated."""

    name: str
    nodes: int
    edges: int
    features: int
    classes: int


REDDIT = Size('Reddit', 232_965, 114_615_892, 602, 41)
ARXIV = Size('ogbn-arxiv', 169_343, 1_166_243, 128, 40)
CORA = Size('Cora', 2_708, 10_556, 1_433, 7)
SIZES = {'reddit': REDDIT, 'arxiv': ARXIV, 'cora': CORA}
# layers, their heads and channels of each; GCN has none
LAYERS = {'GATConv': (4, 64), 'GATv2Conv': (8, 32), 'TransformerConv': (8, 32), 'GCNConv': (1, 256)}


def power_law_graph(size: Size, device: torch.device, exponent: float = 0.5, seed: int = 0) -> Tensor:
    """Edges whose ends are drawn with weights ``rank ** -exponent``, each side in an order of its own."""
    generator = torch.Generator(device).manual_seed(seed)
    rank = torch.arange(1, size.nodes + 1, device=device, dtype=torch.float64)
    shares = rank.pow(-exponent).cumsum(0)
    rows = []
    for _ in range(2):
        drawn = torch.rand(size.edges, device=device, dtype=torch.float64, generator=generator) * shares[-1]
        order = torch.randperm(size.nodes, device=device, generator=generator)
        rows.append(order[torch.searchsorted(shares, drawn).clamp(max=size.nodes - 1)])
        del drawn
    return torch.stack(rows)


@dataclasses.dataclass
class Timer:
    """Times calls on one device: medians and spreads in ms."""

    device: torch.device
    repeats: int

    def __call__(self, function: Callable[[], Any]) -> list[float]:
        for _ in range(3):
            function()
        samples = []
        for _ in range(self.repeats):
            self._wait()
            if self.device.type == 'cuda':
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                function()
                end.record()
                end.synchronize()
                samples.append(begin.elapsed_time(end))
            else:
                start = time.perf_counter()
                function()
                samples.append(1000 * (time.perf_counter() - start))
        return samples

    def _wait(self) -> None:
        if self.device.type == 'cuda':
            torch.cuda.synchronize(self.device)


def shown(samples: list[float] | None) -> str:
    """Median and half the distance of the quartiles."""
    if not samples:
        return 'none'
    ordered = sorted(samples)
    spread = (ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]) / 2
    return f'{statistics.median(ordered):.3f} ± {spread:.3f}'


def peak(device: torch.device, function: Callable[[], Any]) -> int | None:
    """Bytes that a call allocates at its peak, above what was there."""
    return peak_bytes(function, device=device) if device.type == 'cuda' else None


def copy_bandwidth(timer: Timer, size: int = 2**30) -> float:
    """Bytes a second of a copy within the device, of far more than its caches hold; reads and writes counted."""
    source = torch.empty(size, dtype=torch.uint8, device=timer.device)
    target = torch.empty_like(source)
    return 2 * size / (statistics.median(timer(lambda: target.copy_(source))) / 1000)


def product_time(timer: Timer, edge_index: Tensor, nodes: int, width: int) -> list[float]:
    """One product of torch's CSR matrix with `width` columns of features, its buffers kept."""
    csr = Graph.of(edge_index, num_sources=nodes, num_targets=nodes).csr
    values = torch.ones(csr.num_edges, device=timer.device)
    matrix = torch.sparse_csr_tensor(csr.indptr, csr.index, values, (nodes, nodes))
    x, out = torch.randn(nodes, width, device=timer.device), torch.empty(nodes, width, device=timer.device)
    return timer(lambda: torch.addmm(out, matrix, x, beta=0.0, out=out))


def least_bytes(name: str, edges: int, nodes: int, heads: int, channels: int) -> int:
    """What forward must move if nothing is found in a cache: the rows of all neighbours, indices, the rows written."""
    width = heads * channels
    rows = {'TransformerConv': 2}.get(name, 1)
    of_scores = heads if name == 'GATConv' else 0
    return 4 * (edges * (rows * width + of_scores + 1) + nodes * (2 * width + 2 * heads))


def layers(name: str, width: int, device: torch.device) -> tuple[Any, Any]:
    """PyG's layer and the fused one with the same parameters, without linear maps worth mentioning: few features."""
    heads, channels = LAYERS[name]
    options = {} if name == 'GCNConv' else {'heads': heads}
    torch.manual_seed(0)
    pyg = getattr(torch_geometric.nn, name)(width, channels, **options).to(device)
    fused = getattr(pygfuse.conv, name)(width, channels, **options).to(device)
    fused.load_state_dict(pyg.state_dict())
    return pyg, fused


def directions(layer: Any, x: Tensor, edge_index: Tensor, grad: Tensor) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Forward alone, and forward with backward."""

    def forward() -> None:
        with torch.no_grad():
            layer(x, edge_index)

    def step() -> None:
        layer.zero_grad(set_to_none=True)
        x.grad = None
        layer(x, edge_index).backward(grad)

    return forward, step


@dataclasses.dataclass
class Section:
    """What one process measures."""

    timer: Timer
    size: Size
    features: int

    @property
    def device(self) -> torch.device:
        return self.timer.device

    def run(self, kind: str, name: str) -> dict[str, Any]:
        return getattr(self, f'_{kind}')(name)

    def _copy(self, name: str) -> dict[str, Any]:
        return {'bytes_per_second': copy_bandwidth(self.timer), 'versions': versions(self.device)}

    def _product(self, name: str) -> dict[str, Any]:
        edge_index = power_law_graph(self.size, self.device)
        return {'ms': product_time(self.timer, edge_index, self.size.nodes, math.prod(LAYERS[name]))}

    def _fused(self, name: str) -> dict[str, Any]:
        return self._layer(name, 1)

    def _pyg(self, name: str) -> dict[str, Any]:
        return self._layer(name, 0)

    def _layer(self, name: str, which: int) -> dict[str, Any]:
        layer = layers(name, self.features, self.device)[which]
        edge_index = power_law_graph(self.size, self.device)
        x = torch.randn(self.size.nodes, self.features, device=self.device, requires_grad=True)
        grad = torch.randn(self.size.nodes, math.prod(LAYERS[name]), device=self.device)
        forward, step = directions(layer, x, edge_index, grad)
        found: dict[str, Any] = {'forward_ms': self.timer(forward)}
        assert which == 0 or layer.note.reason is None, layer.note.reason
        return found | {'step_ms': self.timer(step), 'peak_bytes': peak(self.device, step)}

    def _aggregation(self, name: str) -> dict[str, Any]:
        """The aggregation alone, without linear maps."""
        (heads, channels), nodes = LAYERS[name], self.size.nodes
        edges = Edges(power_law_graph(self.size, self.device), nodes, nodes)
        rows, att = attention_operands(name, nodes, self.device)
        if name == 'GATv2Conv':
            program, operands = GATV2, {'x': rows[0], 'x_dst': rows[1], 'att': att, 'negative_slope': 0.2}
        else:
            query = rows[1] / math.sqrt(channels)
            program, operands = TRANSFORMER, {'query': query, 'key': rows[0], 'value': rows[2]}
        return self._timed(lambda: aggregate(program, edges, operands, heads, channels).flatten(1), [*rows, att])

    def _turbo(self, name: str) -> dict[str, Any]:
        """The same by turbo-gnn, tuned for this graph."""
        import turbo_gnn

        kind = turbo_gnn.AdjacencyForwardBackwardWithNodeBuckets
        edge_index = power_law_graph(self.size, self.device)
        graph = kind.from_edge_list(edge_index.cpu(), num_nodes=self.size.nodes).to(self.device)
        rows, att = attention_operands(name, self.size.nodes, self.device)

        def run() -> Tensor:
            if name == 'GATv2Conv':
                return turbo_gnn.gatv2_aggr(
                    graph, rows[1], x_neighbors=rows[0], attention_weights=att[0], negative_slope=0.2, autotune=True
                ).flatten(1)
            scale = 1 / math.sqrt(LAYERS[name][1])
            q, k, v = rows[1], rows[0], rows[2]
            return turbo_gnn.graph_transformer_aggr(
                graph, v.flatten(1), Q=q, K=k, V=v, scale=scale, autotune=True
            ).flatten(1)

        return self._timed(run, [*rows, att])

    def _timed(self, run: Callable[[], Tensor], operands: list[Tensor]) -> dict[str, Any]:
        grad = torch.randn_like(run().detach())

        def forward() -> None:
            with torch.no_grad():
                run()

        def step() -> None:
            for operand in operands:
                operand.grad = None
            run().backward(grad)

        found: dict[str, Any] = {'forward_ms': self.timer(forward), 'step_ms': self.timer(step)}
        return found | {'peak_bytes': peak(self.device, step)}

    def _training(self, name: str) -> dict[str, Any]:
        """A whole training step of two layers, by PyG or (captured, too) fused."""
        edge_index = power_law_graph(self.size, self.device)
        package = torch_geometric.nn if name == 'PyG' else pygfuse.conv
        step = training_step(package, self.size, edge_index, self.device)
        if name == 'fused and captured':
            step = capture(step)
        return {'ms': self.timer(step)}


def attention_operands(name: str, nodes: int, device: torch.device) -> tuple[list[Tensor], Tensor]:
    """Rows of nodes and the attention vectors."""
    torch.manual_seed(0)
    shape = LAYERS[name]
    rows = [torch.randn(nodes, *shape, device=device, requires_grad=True) for _ in range(2 + (name != 'GATv2Conv'))]
    return rows, torch.randn(1, *shape, device=device, requires_grad=True)


class Net(torch.nn.Module):
    """Two layers of attention, as for Cora in the paper on GAT."""

    def __init__(self, package: Any, size: Size) -> None:
        super().__init__()
        self.first = package.GATConv(size.features, 8, heads=8)
        self.second = package.GATConv(64, size.classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(torch.nn.functional.elu(self.first(x, edge_index)), edge_index)


def training_step(package: Any, size: Size, edge_index: Tensor, device: torch.device) -> Callable[[], Tensor]:
    """A whole step: forward, loss, backward, Adam."""
    torch.manual_seed(0)
    net = Net(package, size).to(device)
    x, y = torch.randn(size.nodes, size.features, device=device), torch.randint(size.classes, (size.nodes,)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005, capturable=device.type == 'cuda')

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(x, edge_index), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def versions(device: torch.device) -> list[str]:
    """What ran."""
    import numba

    cuda = device.type == 'cuda'
    card = torch.cuda.get_device_name(device) if cuda else platform.processor() or 'a CPU'
    found = importlib.util.find_spec('numba_cuda')
    target = importlib.metadata.version('numba-cuda') if found else 'none'
    return [
        f'{card}, {time.strftime("%Y-%m-%d")}',
        f'Python {platform.python_version()}, torch {torch.__version__} (CUDA {torch.version.cuda}), '
        f'PyG {torch_geometric.__version__}, numba {numba.__version__}, numba-cuda {target}, '
        f'pygfuse {pygfuse.__version__}',
    ]


class Report:
    """All results so far, as Markdown and JSON."""

    def __init__(self, out: str) -> None:
        self.out = out
        self.found: dict[str, dict[str, Any]] = {}

    def add(self, key: str, result: dict[str, Any]) -> None:
        self.found[key] = result
        Path(f'{self.out}.json').write_text(json.dumps(self.found, indent=1))
        Path(f'{self.out}.md').write_text(self.text() + '\n')
        said = (
            result.get('error') or ', '.join(f'{k} {shown(v)}' for k, v in result.items() if k.endswith('ms')) or 'done'
        )
        print(f'{key}: {said}', file=sys.stderr, flush=True)

    def get(self, key: str, what: str) -> Any:
        return self.found.get(key, {}).get(what)

    def text(self) -> str:
        copied = self.get('copy', 'bytes_per_second')
        lines = [*(self.get('copy', 'versions') or ())]
        if copied:
            lines.append(f'Copy within the device: {copied / 1e9:.0f} GB/s, reads and writes counted')
        lines += ['', HEADER, *self._layer_rows(copied)]
        for title, rows in (('The aggregation alone', self._aggregation_rows()), (TRAINING, self._training_rows())):
            if rows:
                lines += ['', f'{title}:', '', *rows]
        errors = [f'- {key}: {result["error"]}' for key, result in self.found.items() if 'error' in result]
        return '\n'.join([*lines, *(['', 'What failed:', '', *errors] if errors else [])])

    def _layer_rows(self, copied: float | None) -> list[str]:
        rows = []
        for key in [key for key in self.found if key.endswith(' fused') and not key.startswith('training ')]:
            graph, name, _ = key.split(' ')
            size, (heads, channels) = self.found[key].get('size'), LAYERS[name]
            product, fused, pyg = (f'{graph} {name} {kind}' for kind in ('product', 'fused', 'pyg'))
            took, forward, step = (
                median(self.get(k, what)) for k, what in ((product, 'ms'), (fused, 'forward_ms'), (fused, 'step_ms'))
            )
            share = 'none'
            if size and forward and copied:
                moved = least_bytes(name, size['edges'] + size['nodes'], size['nodes'], heads, channels)
                share = f'{1000 * moved / forward / copied:.0%}'
            cells = [
                *(graph, f'{name} {heads} x {channels}', shown(self.get(product, 'ms'))),
                *(shown(self.get(fused, 'forward_ms')), ratio(forward, took), share),
                *(shown(self.get(fused, 'step_ms')), ratio(step, took), mib(self.get(fused, 'peak_bytes'))),
                *(
                    shown(self.get(pyg, 'forward_ms')),
                    shown(self.get(pyg, 'step_ms')),
                    mib(self.get(pyg, 'peak_bytes')),
                ),
            ]
            rows.append(f'| {" | ".join(cells)} |')
        return rows

    def _aggregation_rows(self) -> list[str]:
        names = {'aggregation': 'pygfuse', 'turbo': 'turbo-gnn'}
        return [
            f'- {key.rsplit(" ", 1)[0]}, {names[key.rsplit(" ", 1)[1]]}: forward {shown(result.get("forward_ms"))} ms, '
            f'with backward {shown(result.get("step_ms"))} ms, peak {mib(result.get("peak_bytes"))} MiB'
            for key, result in self.found.items()
            if key.endswith((' aggregation', ' turbo')) and 'error' not in result
        ]

    def _training_rows(self) -> list[str]:
        return [f'- {key[9:]}: {shown(r.get("ms"))} ms' for key, r in self.found.items() if key.startswith('training ')]


def median(samples: list[float] | None) -> float | None:
    return statistics.median(samples) if samples else None


def ratio(x: float | None, y: float | None) -> str:
    return f'{x / y:.2f}' if x and y else 'none'


def mib(size: int | None) -> str:
    return 'none' if size is None else f'{size / 2**20:.0f}'


TRAINING = f'A training step of two GAT layers on a graph of the size of {CORA.name}'
HEADER = (
    '| graph | layer | product, ms | forward, ms | in products | of copy bandwidth | forward and backward, ms '
    '| in products | peak, MiB | PyG forward, ms | PyG forward and backward, ms | PyG peak, MiB |\n'
    '| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |'
)


def sections(options: argparse.Namespace) -> list[tuple[str, str, str, str]]:
    """Key, graph, kind and name of each section; what is wanted most comes first."""
    found = [('copy', 'cora', 'copy', '')]
    layered = [(graph, name) for graph in options.graphs for name in options.layers]
    found += [(f'{g} {name} {kind}', g, kind, name) for g, name in layered for kind in ('product', 'fused')]
    if 'cora' in options.graphs:
        names = ['PyG', 'fused', *(['fused and captured'] if options.device == 'cuda' else [])]
        found += [(f'training {name}', 'cora', 'training', name) for name in names]
    kinds = ['aggregation', *(['turbo'] if importlib.util.find_spec('turbo_gnn') else [])]
    attention = [(graph, name) for graph, name in layered if name in ('GATv2Conv', 'TransformerConv')]
    found += [(f'{g} {name} {kind}', g, kind, name) for g, name in attention for kind in kinds]
    return found + [(f'{g} {name} pyg', g, 'pyg', name) for g, name in layered]


def in_a_process(options: argparse.Namespace, graph: str, kind: str, name: str) -> dict[str, Any]:
    """The result of a section that runs in a process of its own, or its error."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / 'result.json'
        command = [
            *(sys.executable, __file__, '--section', graph, kind, name, str(result), '--device', options.device),
            *('--repeats', str(options.repeats), '--features', str(options.features), '--scale', str(options.scale)),
        ]
        try:
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=options.limit)
        except subprocess.TimeoutExpired:
            return {'error': f'took more than {options.limit} s'}
        if done.returncode or not result.exists():
            lines = [line for line in done.stderr.splitlines() if line and not line.startswith(' ')]
            return {'error': lines[-1][:300] if lines else f'exit status {done.returncode}'}
        return json.loads(result.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--graphs', nargs='+', choices=SIZES, default=[*SIZES])
    parser.add_argument('--layers', nargs='+', choices=LAYERS, default=[*LAYERS])
    parser.add_argument('--repeats', type=int, default=20)
    parser.add_argument('--features', type=int, default=64, help='width of the features that layers take')
    parser.add_argument('--scale', type=float, default=1.0, help='share of the nodes and edges to generate')
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--limit', type=float, default=120.0, help='seconds that one section may take')
    parser.add_argument('--out', default='gpu-benchmark', help='files to write, without .md and .json')
    parser.add_argument('--section', nargs=4, metavar=('GRAPH', 'KIND', 'NAME', 'FILE'), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.section:
        graph, kind, name, path = options.section
        device = torch.device(options.device, 0) if options.device == 'cuda' else torch.device(options.device)
        size = SIZES[graph]
        size = dataclasses.replace(size, nodes=int(size.nodes * options.scale), edges=int(size.edges * options.scale))
        result = Section(Timer(device, options.repeats), size, options.features).run(kind, name)
        Path(path).write_text(json.dumps(result | {'size': dataclasses.asdict(size)}))
        return 0
    report = Report(options.out)
    for key, graph, kind, name in sections(options):
        report.add(key, in_a_process(options, graph, kind, name))
    print(report.text())
    return int(all('error' in result for result in report.found.values()))


if __name__ == '__main__':
    sys.exit(main())
