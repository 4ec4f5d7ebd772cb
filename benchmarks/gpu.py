"""The CUDA target beside PyG, cuSPARSE and the memory's own speed: ``python benchmarks/gpu.py``.

Graphs are generated with a power law, of the sizes of Reddit, ogbn-arxiv and Cora; features are random. For each layer:
forward, and forward with backward, as times and as multiples of one product of torch's CSR matrix (cuSPARSE) with
features of the same width; the share of the measured copy bandwidth that the bytes reach which the algorithm must
move; the peak of the memory; PyG's own layer, 'none' where the memory does not suffice. For Cora's size, a whole
captured training step beside PyG's. Layers include their linear maps, from few features (`--features`).

Needs a GPU, torch, PyG and numba-cuda, nothing else. Prints Markdown; `--out` gets it, and all samples as JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import platform
import statistics
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
from pygfuse.graph import Graph


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
    if device.type != 'cuda':
        return None
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    function()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def copy_bandwidth(timer: Timer, size: int) -> float:
    """Bytes a second of a copy within the device, reads and writes counted."""
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


def attempt(function: Callable[[], Any]) -> Any:
    """The result, or None if the memory does not suffice."""
    try:
        return function()
    except torch.cuda.OutOfMemoryError:
        return None
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def run_layer(timer: Timer, size: Size, edge_index: Tensor, name: str, bandwidth: float, width: int) -> dict[str, Any]:
    """All figures of one layer on one graph."""
    heads, channels = LAYERS[name]
    pyg, fused = layers(name, width, timer.device)
    x = torch.randn(size.nodes, width, device=timer.device, requires_grad=True)
    grad = torch.randn(size.nodes, heads * channels, device=timer.device)
    product = product_time(timer, edge_index, size.nodes, heads * channels)

    def forward(layer: Any) -> Callable[[], Any]:
        def run() -> None:
            with torch.no_grad():
                layer(x, edge_index)

        return run

    def step(layer: Any) -> Callable[[], Any]:
        def run() -> None:
            layer.zero_grad(set_to_none=True)
            x.grad = None
            layer(x, edge_index).backward(grad)

        return run

    found: dict[str, Any] = {'graph': size.name, 'layer': name, 'heads': heads, 'channels': channels}
    found['product_ms'], found['fused_forward_ms'] = product, timer(forward(fused))
    found['fused_step_ms'] = timer(step(fused))
    assert fused.last_reason is None, fused.last_reason
    found['fused_peak_bytes'] = peak(timer.device, step(fused))
    moved = least_bytes(name, size.edges + size.nodes, size.nodes, heads, channels)
    seconds = statistics.median(found['fused_forward_ms']) / 1000
    found['share_of_copy_bandwidth'] = moved / seconds / bandwidth
    found['pyg_forward_ms'] = attempt(lambda: timer(forward(pyg)))
    found['pyg_step_ms'] = attempt(lambda: timer(step(pyg)))
    found['pyg_peak_bytes'] = attempt(lambda: peak(timer.device, step(pyg)))
    return found


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


def run_training(timer: Timer, size: Size, edge_index: Tensor) -> dict[str, Any]:
    """A training step of a small model: PyG's, fused, and fused and captured."""
    found: dict[str, Any] = {'graph': size.name, 'layer': 'training step of two GATConvs'}
    found['pyg_ms'] = timer(training_step(torch_geometric.nn, size, edge_index, timer.device))
    fused = training_step(pygfuse.conv, size, edge_index, timer.device)
    found['fused_ms'] = timer(fused)
    found['captured_ms'] = timer(capture(fused)) if timer.device.type == 'cuda' else None
    return found


def versions(device: torch.device) -> list[str]:
    """What ran."""
    import numba

    cuda = device.type == 'cuda'
    card = torch.cuda.get_device_name(device) if cuda else platform.processor() or 'a CPU'
    return [
        f'{card}, {time.strftime("%Y-%m-%d")}',
        f'Python {platform.python_version()}, torch {torch.__version__} (CUDA {torch.version.cuda}), '
        f'PyG {torch_geometric.__version__}, numba {numba.__version__}, pygfuse {pygfuse.__version__}',
    ]


def layer_row(found: dict[str, Any]) -> str:
    """One line of the table of layers."""
    product = statistics.median(found['product_ms'])
    ratios = [statistics.median(found[f'fused_{what}_ms']) / product for what in ('forward', 'step')]
    sizes = [
        'none' if found[key] is None else f'{found[key] / 2**20:.0f}' for key in ('fused_peak_bytes', 'pyg_peak_bytes')
    ]
    cells = [
        *(found['graph'], f'{found["layer"]} {found["heads"]} x {found["channels"]}', shown(found['product_ms'])),
        *(shown(found['fused_forward_ms']), f'{ratios[0]:.2f}', f'{found["share_of_copy_bandwidth"]:.0%}'),
        *(shown(found['fused_step_ms']), f'{ratios[1]:.2f}', sizes[0]),
        *(shown(found['pyg_forward_ms']), shown(found['pyg_step_ms']), sizes[1]),
    ]
    return f'| {" | ".join(cells)} |'


HEADER = (
    '| graph | layer | product, ms | forward, ms | in products | of copy bandwidth | forward and backward, ms '
    '| in products | peak, MiB | PyG forward, ms | PyG forward and backward, ms | PyG peak, MiB |\n'
    '| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |'
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--graphs', nargs='+', choices=SIZES, default=[*SIZES])
    parser.add_argument('--layers', nargs='+', choices=LAYERS, default=[*LAYERS])
    parser.add_argument('--repeats', type=int, default=20)
    parser.add_argument('--features', type=int, default=64, help='width of the features that layers take')
    parser.add_argument('--scale', type=float, default=1.0, help='share of the nodes and edges to generate')
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--out', default='gpu-benchmark', help='files to write, without .md and .json')
    options = parser.parse_args()
    device = torch.device(options.device, 0) if options.device == 'cuda' else torch.device(options.device)
    timer = Timer(device, options.repeats)
    bandwidth = copy_bandwidth(timer, int(options.scale * 2**30))
    lines = [*versions(device), f'Copy within the device: {bandwidth / 1e9:.0f} GB/s, reads and writes counted', '']
    print('\n'.join([*lines, HEADER]), flush=True)
    lines.append(HEADER)
    results: list[dict[str, Any]] = []
    trainings: list[str] = []
    for graph in options.graphs:
        size = SIZES[graph]
        size = dataclasses.replace(size, nodes=int(size.nodes * options.scale), edges=int(size.edges * options.scale))
        edge_index = power_law_graph(size, device)
        for name in options.layers:
            results.append(run_layer(timer, size, edge_index, name, bandwidth, options.features))
            lines.append(layer_row(results[-1]))
            print(lines[-1], flush=True)
            attempt(lambda: None)
        if size.name == CORA.name:
            results.append(run_training(timer, size, edge_index))
            figures = (results[-1][key] for key in ('pyg_ms', 'fused_ms', 'captured_ms'))
            names = ('PyG', 'fused', 'fused and captured')
            trainings += [f'- {name}: {shown(samples)} ms' for name, samples in zip(names, figures, strict=True)]
        del edge_index
    if trainings:
        more = ['', f'A training step of two GAT layers on a graph of the size of {CORA.name}:', '', *trainings]
        lines += more
        print('\n'.join(more))
    Path(f'{options.out}.md').write_text('\n'.join(lines) + '\n')
    everything = {'versions': versions(device), 'copy_bytes_per_second': bandwidth, 'results': results}
    Path(f'{options.out}.json').write_text(json.dumps(everything, indent=1))


if __name__ == '__main__':
    main()
