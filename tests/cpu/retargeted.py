"""Kernels as LLVM translates them for systems and processors that no test runs on.

    NUMBA_CPU_NAME=x86-64 NUMBA_CPU_FEATURES=+sse2 python -m tests.cpu.retargeted

Compiled for vectors of 16 bytes, which others have, too, their modules are given to LLVM once more. What they call that
is not their own is printed for each system as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch_geometric.nn as pyg
from llvmlite import binding, ir
from numba.core.codegen import CPUCodeLibrary

import pygfuse

# names as Numba gives them to LLVM; it asks for ELF everywhere but on macOS
SYSTEMS = {
    'Linux on ARM': ('aarch64-unknown-linux-gnu', 'neoverse-n1'),
    'macOS on ARM': ('arm64-apple-darwin', 'apple-m1'),
    'Windows': ('x86_64-pc-windows-msvc-elf', 'x86-64'),
}
_CALL = re.compile(r'^\s+(?:bl|call|callq|jmp|b)\s+_?([A-Za-z_][\w.]*)(?:@\w+)?\s*$', re.MULTILINE)
_OWN = re.compile(r'^_?([A-Za-z][\w.]*):', re.MULTILINE)


@contextmanager
def noted() -> Iterator[list[str]]:
    """Notes the modules that are compiled meanwhile, as text."""
    modules, add = [], CPUCodeLibrary.add_ir_module

    def noting(library: CPUCodeLibrary, module: ir.Module) -> None:
        modules.append(str(module))
        add(library, module)

    CPUCodeLibrary.add_ir_module = noting
    try:
        yield modules
    finally:
        CPUCodeLibrary.add_ir_module = add


def run_layers() -> None:
    """Trains layers, along few edges and along many."""
    network = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
    layers = pyg.GATConv(16, 8, heads=2), pyg.GCNConv(16, 16), pyg.EdgeConv(network), pyg.CGConv(16)
    for nodes, edges in ((50, 200), (4000, 80_000)):
        edge_index = torch.randint(nodes, (2, edges))
        for conv in layers:
            pygfuse.fuse(conv)(torch.randn(nodes, 16, requires_grad=True), edge_index).sum().backward()


def called(text: str, triple: str, processor: str) -> set[str]:
    """What a module calls that is not its own, translated for a system."""
    target = binding.Target.from_triple(triple)
    # near ones, whose calls have names
    machine = target.create_target_machine(cpu=processor, opt=3, codemodel='small')
    module = binding.parse_assembly(text)
    module.triple, module.data_layout = triple, str(machine.target_data)
    assembly = machine.emit_assembly(module)
    return set(_CALL.findall(assembly)) - set(_OWN.findall(assembly))


if __name__ == '__main__':
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    with noted() as modules:
        run_layers()
    found = {
        name: sorted(set().union(*(called(text, *system) for text in modules))) for name, system in SYSTEMS.items()
    }
    print(json.dumps({'modules': len(modules), **found}))
