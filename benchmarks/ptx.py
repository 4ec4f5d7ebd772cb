"""Compiles the CUDA backend's kernels and assembles them, without a GPU: ``make ptx``.

Every kernel that a call of each program launches is compiled for each architecture. The table says for each how many
registers a thread takes, what it spills, its shared memory, and the widest load in its loop over edges. The exit status
is 1 if a kernel spills, or if its loop has no load of 16 bytes although the features' width allows it.

Needs numba-cuda and nvidia-cuda-nvcc, but no driver: ``pip install 'pygfuse[ptx]'``.
"""

from __future__ import annotations

import argparse
import dataclasses
import glob
import importlib
import multiprocessing
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator

import torch

import pygfuse.program.library
from pygfuse.call.call import Call, Dropout
from pygfuse.call.gradient import Gradient
from pygfuse.codegen.arguments import Operands
from pygfuse.cuda import backend, combination, kernels
from pygfuse.cuda.arguments import describe
from pygfuse.cuda.kernel import Kernel
from pygfuse.cuda.layout import ITEM_BYTES, LOAD_BYTES
from pygfuse.graph.graph import Graph
from pygfuse.mapping.mapping import Mapping, force_mapping
from pygfuse.program.library.gaussian import gaussian
from pygfuse.program.products import Product
from pygfuse.program.program import PROGRAMS, EdgeProgram

ARCHITECTURES = ((8, 0), (9, 0), (10, 0))
# every program at one shape; the most used ones at all of these
SHAPE = (4, 16)
SHAPES = (
    ((1, 16), torch.float32),
    ((4, 64), torch.float32),
    ((8, 32), torch.float32),
    ((4, 64), torch.bfloat16),
)
WIDELY_USED = ('gat', 'gatv2', 'transformer', 'normalised_neighbours')
# with --quick: what is compiled for every architecture, and what is not as it differs in an activation only
QUICK_EVERYWHERE = ('gat ', 'transformer ')
QUICK_NOWHERE = re.compile(r'edge_conv_(?!none |prelu |gelu_tanh )|res_gated_(?!sigmoid )')


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What is known of one kernel for one architecture."""

    name: str
    layout: str
    architecture: str
    registers: int
    shared: int
    spills: int
    widest_load: int
    wants_wide_loads: bool

    @property
    def failures(self) -> list[str]:
        found = [f'spills {self.spills} bytes'] if self.spills else []
        # of some adjoints nothing is left to load on an edge
        if self.wants_wide_loads and 0 < self.widest_load < LOAD_BYTES:
            found.append(f'its loop loads {self.widest_load} bytes at a time')
        return found


@dataclasses.dataclass(frozen=True)
class Task:
    """A kernel to be compiled for one architecture."""

    kernel: Kernel
    description: tuple
    architecture: tuple[int, int]

    def run(self) -> Compiled:
        text, _ = self.kernel.ptx(self.description, self.architecture)
        layout = self.kernel.layout
        registers, shared, spills = assembled(text, self.architecture)
        return Compiled(
            name=self.kernel.name,
            layout=f'{layout.lanes} lanes x {layout.values}, {layout.subteams} subteams, {layout.batch} in flight',
            architecture=f'sm_{self.architecture[0]}{self.architecture[1]}',
            registers=registers,
            shared=shared,
            spills=spills,
            widest_load=widest_load(text),
            wants_wide_loads=self._gathers_rows() and layout.vector * ITEM_BYTES[layout.element] == LOAD_BYTES,
        )

    def _gathers_rows(self) -> bool:
        """Whether each edge brings a row of channels: of the other end, its own, or the gradient of its target."""
        if ' forward' in self.kernel.name or ' backward' in self.kernel.name:
            # the share of the work and the edges walked come before the operands
            operands = Operands(*self.description[2])
            return bool(operands.gathered_channels or operands.edge_rows) or 'by source' in self.kernel.name
        return False


def programs() -> list[EdgeProgram]:
    """All programs of the package."""
    for module in pkgutil.iter_modules(pygfuse.program.library.__path__):
        importlib.import_module(f'pygfuse.program.library.{module.name}')
    gaussian(2)
    return list(PROGRAMS.values())


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
    """The calls whose kernels are compiled."""
    for program in programs():
        yield random_call(program, graph, *SHAPE, torch.float32, False, False)
        if any(operand.side == 'edge' and operand.level == 'channels' for operand in program.operands.values()):
            yield random_call(program, graph, *SHAPE, torch.float32, True, False)
    for name in WIDELY_USED:
        for shape, dtype in SHAPES:
            call = random_call(PROGRAMS[name], graph, *shape, dtype, False, dtype == torch.bfloat16)
            without = {key: value for key, value in call.tensors.items() if 'edge' not in key}
            present = tuple(name for name in call.bound.present if name in without or name in call.scalars)
            yield dataclasses.replace(call, bound=call.bound.program.bind(present), tensors=without)
    yield dataclasses.replace(random_call(PROGRAMS['gine'], graph, 1, 64, torch.float32, False, False), reduce='max')


def recorded(graph: Graph, chosen: Iterable[Call]) -> dict[tuple, tuple[Kernel, tuple]]:
    """The kernels that calls would launch, with the types of their arguments; nothing is launched."""
    found: dict[tuple, tuple[Kernel, tuple]] = {}

    class Recorder(Kernel):
        def __call__(self, device, blocks, tiles, *arguments) -> None:
            description = tuple(describe(argument) for argument in arguments)
            found.setdefault((self.key, self.layout, description), (self, description))

    before = kernels.Kernel, combination.FAN_IN
    # few pieces are many: what combines them level by level is launched, too
    kernels.Kernel, combination.FAN_IN = Recorder, 2
    try:
        for call in chosen:
            out, statistics = backend.forward(call)
            backend.backward(Gradient(call, out, statistics, torch.zeros_like(out), list(call.tensors)))
            if call.bound.score is not None:
                backend.weights(call, statistics)
    finally:
        kernels.Kernel, combination.FAN_IN = before
        for value in vars(kernels).values():
            if hasattr(value, 'cache_clear'):
                value.cache_clear()
    return found


def loops(text: str) -> list[tuple[int, int]]:
    """First and last line of each loop: from a label to the last branch back to it."""
    labels: dict[str, int] = {}
    ends: dict[str, int] = {}
    for number, line in enumerate(text.splitlines()):
        label = re.match(r'(\$L__\w+):', line)
        if label:
            labels[label.group(1)] = number
        branch = re.search(r'\bbra(?:\.uni)?\s+(\$L__\w+);', line)
        if branch and branch.group(1) in labels:
            ends[branch.group(1)] = number
    return [(labels[name], end) for name, end in ends.items()]


def widest_load(text: str) -> int:
    """Bytes of the widest load within loops over edges: those within a loop over rows within one over parts."""
    found, lines = loops(text), text.splitlines()
    inner = [loop for loop in found if sum(a <= loop[0] and loop[1] <= b and (a, b) != loop for a, b in found) >= 2]
    sizes = [0]
    for first, last in inner:
        for vector, bits in re.findall(r'ld\.global(?:\.nc)?(?:\.v(\d))?\.[a-z](\d+)', '\n'.join(lines[first:last])):
            sizes.append(int(vector or 1) * int(bits) // 8)
    return max(sizes)


def ptxas() -> str:
    """The assembler of the wheel nvidia-cuda-nvcc, else of an installed toolkit."""
    import nvidia

    found = [path for folder in nvidia.__path__ for path in glob.glob(f'{folder}/*/bin/ptxas')]
    return found[0] if found else 'ptxas'


def assembled(text: str, architecture: tuple[int, int]) -> tuple[int, int, int]:
    """Registers, bytes of shared memory and bytes spilled, as the assembler reports them."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, 'kernel.ptx')
        with open(source, 'w') as file:
            file.write(text)
        arch = f'-arch=sm_{architecture[0]}{architecture[1]}'
        command = [ptxas(), arch, '-v', source, '-o', os.path.join(folder, 'kernel.cubin')]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    registers = int(re.search(r'Used (\d+) registers', done.stderr).group(1))
    shared = re.search(r'(\d+) bytes smem', done.stderr)
    spills = sum(map(int, re.findall(r'(\d+) bytes spill', done.stderr)))
    return registers, int(shared.group(1)) if shared else 0, spills


def example_graph() -> Graph:
    """A graph of mean degree 4 with a row that lies in several parts."""
    edges = torch.stack([torch.arange(64) % 16, torch.cat([torch.zeros(32, dtype=torch.int64), torch.arange(32) % 16])])
    return Graph.of(edges, num_sources=16, num_targets=16)


_tasks: list[Task] = []


def _run(number: int) -> Compiled:
    return _tasks[number].run()


def compile_all(
    architectures: Iterable[tuple[int, int]], names: str = '', workers: int = 1, quick: bool = False
) -> Iterator[Compiled]:
    """Compiles the kernels whose names contain `names`; if `quick`, a choice of them, most for sm_90 only."""
    graph = example_graph()
    with force_mapping(Mapping('edge', part_work=7)):
        found = recorded(graph, calls(graph))
    _tasks[:] = [
        Task(kernel, description, architecture)
        for kernel, description in found.values()
        for architecture in architectures
        if names in kernel.name and (not quick or _is_quick(kernel.name, architecture))
    ]
    with multiprocessing.get_context('fork').Pool(workers) as pool:
        yield from pool.imap(_run, range(len(_tasks)))


def _is_quick(name: str, architecture: tuple[int, int]) -> bool:
    if architecture != (9, 0):
        return name.startswith(QUICK_EVERYWHERE)
    return not QUICK_NOWHERE.match(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--names', default='', help='only kernels whose names contain this')
    parser.add_argument(
        '--architectures',
        nargs='+',
        default=['{}.{}'.format(*pair) for pair in ARCHITECTURES],
        help='compute capabilities',
    )
    parser.add_argument('--workers', type=int, default=os.cpu_count(), help='processes that compile')
    parser.add_argument(
        '--quick',
        action='store_true',
        help='no programs that differ in an activation only; for sm_80 and sm_100 GAT and the transformer',
    )
    options = parser.parse_args()
    wanted = [tuple(map(int, name.split('.'))) for name in options.architectures]
    failures, count = [], 0
    print('| kernel | layout | architecture | registers | shared | spilled | widest load |')
    print('| --- | --- | --- | ---: | ---: | ---: | ---: |')
    for one in compile_all(wanted, options.names, options.workers, options.quick):
        count += 1
        print(
            f'| {one.name} | {one.layout} | {one.architecture} | {one.registers} | {one.shared} | {one.spills} '
            f'| {one.widest_load} |',
            flush=True,
        )
        failures += [f'{one.name}, {one.architecture}: {failure}' for failure in one.failures]
    print(f'\n{count} kernels compiled, {len(failures)} failures')
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures or not count else 0


if __name__ == '__main__':
    sys.exit(main())
