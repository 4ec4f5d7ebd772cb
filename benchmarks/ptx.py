"""Compiles the CUDA backend's kernels and assembles them, without a GPU: ``make ptx``.

Every kernel that a call of each program launches, and those of searches among points, are compiled for each
architecture. The table says for each how many registers a thread takes, what it spills, its shared memory, and the
widest load in its loop over edges, other than of indices. The exit status is 1 if a kernel spills, or if its loop loads
less than 16 bytes at a time although the features' width allows it. GAT is also compiled for tensors that offsets of
32 bits do not reach.

Needs numba-cuda and nvidia-cuda-nvcc, but no driver: ``pip install 'pygfuse[ptx]'``.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import re
import sys
from collections.abc import Iterable, Iterator

from static_speed.assembler import launched_form, named
from static_speed.launched import calls, calls_of_many_shapes, launched, searched
from static_speed.traffic import walk_of, widest_load

from pygfuse.codegen.arguments import Operands
from pygfuse.cuda.kernel import Kernel
from pygfuse.cuda.layout import ITEM_BYTES, LOAD_BYTES

ARCHITECTURES = ((8, 0), (9, 0), (10, 0))
# with --quick: what is compiled for every architecture and offsets of 64 bits, and what is not, of programs that differ
# in an activation only
QUICK_EVERYWHERE = re.compile('gat .*, 8 x 32, ')
QUICK_NOWHERE = re.compile(r'(edge_conv|film)_(?!none |prelu |gelu_tanh )|res_gated_(?!sigmoid )')


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
    wide: bool

    def run(self) -> Compiled:
        text, found = launched_form(self.kernel, self.description, self.architecture)
        layout = self.kernel.layout
        return Compiled(
            name=self.kernel.name + (', offsets of 64 bits' if self.wide else ''),
            layout=f'{layout.lanes} lanes x {layout.values}, {layout.subteams} subteams, {layout.batch} in flight',
            architecture=named(self.architecture),
            registers=found.registers,
            shared=found.shared,
            spills=found.spills,
            widest_load=widest_load(text, walk_of(self.kernel), self.description),
            wants_wide_loads=self._gathers_rows() and layout.vector * ITEM_BYTES[layout.element] == LOAD_BYTES,
        )

    def _gathers_rows(self) -> bool:
        """Whether each edge brings a row of channels: of the other end, its own, or the gradient of its target."""
        if ' forward' in self.kernel.name or ' backward' in self.kernel.name:
            # the share of the work and the edges walked come before the operands
            operands = Operands(*self.description[2])
            return bool(operands.gathered_channels or operands.edge_rows) or 'by source' in self.kernel.name
        return False


_tasks: list[Task] = []


def _run(number: int) -> Compiled:
    return _tasks[number].run()


def tasks(architectures: Iterable[tuple[int, int]], names: str = '', quick: bool = False) -> list[Task]:
    """The kernels whose names contain `names`; if `quick`, a choice of them, most for sm_90 only."""
    return [
        Task(kernel, description, architecture, wide)
        for wide in (False, True)
        for kernel, description in launched(calls, wide) + ([] if wide else searched())
        for architecture in architectures
        if names in kernel.name and _is_wanted(kernel.name, architecture, wide, quick)
    ]


def tasks_of_many_shapes(architectures: Iterable[tuple[int, int]], names: str = '') -> list[Task]:
    """The kernels whose names contain `names` in many shapes, but for programs that differ in an activation only."""
    return [
        Task(kernel, description, architecture, False)
        for kernel, description in launched(calls_of_many_shapes)
        for architecture in architectures
        if names in kernel.name and not QUICK_NOWHERE.match(kernel.name)
    ]


def compile_all(wanted: Iterable[Task], workers: int = 1) -> Iterator[Compiled]:
    """What is known of each kernel."""
    _tasks[:] = wanted
    with multiprocessing.get_context('fork').Pool(workers) as pool:
        yield from pool.imap(_run, range(len(_tasks)))


def _is_wanted(name: str, architecture: tuple[int, int], wide: bool, quick: bool) -> bool:
    if wide and (architecture != (9, 0) or not name.startswith('gat ')):
        return False
    if quick and (wide or architecture != (9, 0)):
        return bool(QUICK_EVERYWHERE.match(name))
    return not quick or not QUICK_NOWHERE.match(name)


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
        help='no programs that differ in an activation only; for sm_80 and sm_100 GAT of 8 heads of 32 channels',
    )
    parser.add_argument(
        '--shapes',
        action='store_true',
        help='six widths of a head with four types and three numbers of heads instead, '
        'without programs that differ in an activation only: takes an hour of a core for each architecture',
    )
    options = parser.parse_args()
    wanted = [tuple(map(int, name.split('.'))) for name in options.architectures]
    failures, count = [], 0
    print('| kernel | layout | architecture | registers | shared | spilled | widest load |')
    print('| --- | --- | --- | ---: | ---: | ---: | ---: |')
    chosen = (
        tasks_of_many_shapes(wanted, options.names) if options.shapes else tasks(wanted, options.names, options.quick)
    )
    for one in compile_all(chosen, options.workers):
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
