"""Trains a fused GAT, exports it with torch.export and AOTInductor, and runs the files in a process of its own.

The exported program holds pygfuse's operator once for each convolution, and takes any number of nodes and edges. Who
loads it needs no class of the model, but has to ``import pygfuse``, which registers the operator: the operator is
Python, so a file of AOTInductor, too, runs in Python and not in C++ alone. Prints what another process computes with
the files, what it says without the import, and the time of a forward by each way to run the model.

    python examples/export_inference.py
    python examples/export_inference.py --aot  # AOTInductor, too: compiles for a minute
"""

from __future__ import annotations

import argparse
import copy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor
from torch_geometric.nn import GATConv
from tqdm import tqdm

import pygfuse

# what a process that serves the model does; `{first}` is the import
SERVE = """
import sys, torch
{first}
program, aot, given = sys.argv[1:]
x, edge_index, expected = torch.load(given)
run = torch._inductor.aoti_load_package(aot) if aot else torch.export.load(program).module()
with torch.no_grad():
    print('%.1e' % (run(x, edge_index) - expected).abs().max())
"""


class GAT(torch.nn.Module):
    """Two layers of attention."""

    def __init__(self, features: int, classes: int, channels: int = 8, heads: int = 8) -> None:
        super().__init__()
        self.conv1 = GATConv(features, channels, heads=heads)
        self.conv2 = GATConv(heads * channels, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(F.elu(self.conv1(x, edge_index)), edge_index)


def train(model: GAT, x: Tensor, edge_index: Tensor, y: Tensor, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in tqdm(range(epochs), desc='Training', unit=' epochs'):
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index), y).backward()
        optimizer.step()


def exported(model: GAT, x: Tensor, edge_index: Tensor) -> torch.export.ExportedProgram:
    """The model for any number of nodes and edges."""
    nodes, edges = torch.export.Dim('nodes', min=2), torch.export.Dim('edges', min=2)
    return torch.export.export(model, (x, edge_index), dynamic_shapes=({0: nodes}, {1: edges}))


def served(program: Path, aot: Path | None, given: Path, first: str = 'import pygfuse') -> str:
    """What a process of its own prints: how far its outputs are from those expected, or its error."""
    command = [sys.executable, '-c', SERVE.format(first=first), str(program), str(aot or ''), str(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()[-1]


def milliseconds(function: Callable[[], object], repeats: int) -> float:
    """The median of a call, after one that may compile."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--neighbors', type=int, default=48, help='edges to every image (default: %(default)s)')
    parser.add_argument('--epochs', type=int, default=50, help='default: %(default)s')
    parser.add_argument('--repeats', type=int, default=20, help='of a measurement (default: %(default)s)')
    parser.add_argument('--aot', action='store_true', help='compile with AOTInductor, which needs a C++ compiler')
    parser.add_argument('--compile', action='store_true', help='measure torch.compile, which needs one, too')
    parser.add_argument('--seed', type=int, default=0, help='default: %(default)s')
    parser.add_argument('--output', type=Path, default=Path('model.pt2'), help='default: %(default)s')
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    images, digits = load_digits(return_X_y=True)
    x, y = torch.from_numpy(images).float() / 16, torch.from_numpy(digits)
    edge_index = pygfuse.knn_graph(x, arguments.neighbors)
    # the first thousand images are known in training; all are there when the model is used
    known = pygfuse.knn_graph(x[:1000], arguments.neighbors)
    model = pygfuse.fuse(GAT(x.shape[1], 10))
    train(model, x[:1000], known, y[:1000], arguments.epochs)
    model.eval()
    with torch.no_grad():
        program, expected = exported(model, x[:1000], known), model(x, edge_index)
        accuracy = float((expected.argmax(dim=-1) == y)[1000:].float().mean())
    torch.export.save(program, arguments.output)
    operators = sum('pygfuse' in str(node.target) for node in program.graph.nodes)
    print(f'\n{arguments.output}: {operators} operators of pygfuse; accuracy of new images {accuracy:.1%}')

    ways: dict[str, Callable] = {'PyG': pygfuse.unfuse(copy.deepcopy(model)), 'pygfuse': model}
    ways['torch.export'] = torch.export.load(arguments.output).module()
    if arguments.compile:
        ways['torch.compile'] = torch.compile(copy.deepcopy(model))
    with tempfile.TemporaryDirectory() as folder:
        given, aot = Path(folder, 'given'), None
        torch.save((x, edge_index, expected), given)
        print(f'Another process, with the file: outputs {served(arguments.output, None, given)} apart.')
        print(f'Without import pygfuse: {served(arguments.output, None, given, first="")}')
        if arguments.aot:
            aot = Path(torch._inductor.aoti_compile_and_package(program, package_path=f'{folder}/aot.pt2'))
            print(f'Another process, with AOTInductor: outputs {served(arguments.output, aot, given)} apart.')
            print(f'Without import pygfuse: {served(arguments.output, aot, given, first="")}')
            ways['AOTInductor'] = torch._inductor.aoti_load_package(str(aot))
        with torch.no_grad():
            for name, run in ways.items():
                apart = float((run(x, edge_index) - expected).abs().max())
                spent = milliseconds(lambda run=run: run(x, edge_index), arguments.repeats)
                print(f'{name:<14}{spent:>8.2f} ms a forward, outputs {apart:.1e} apart')


if __name__ == '__main__':
    main()
