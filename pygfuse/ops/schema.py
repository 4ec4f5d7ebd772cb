"""A call as PyTorch's operators take it, tensors and numbers only, and the way back to a `Call`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.library import CustomOpDef

from pygfuse.call.call import Call, Dropout
from pygfuse.ops.dropout import drawn_seed
from pygfuse.ops.edges import Edges
from pygfuse.program import products
from pygfuse.program.program import EDGE, PROGRAMS, BoundProgram


class Arguments(NamedTuple):
    """A call as operators take it: tensors and numbers in the order of the schema."""

    program: str
    names: str
    tensors: Sequence[Tensor]
    scalar_names: str
    scalars: Sequence[float]
    token: Tensor
    num_sources: int
    num_targets: int
    flow: str
    loops: int | None
    heads: int
    channels: int
    reduce: str
    dropout: float
    seed: Tensor | None

    def by_name(self) -> dict[str, Tensor]:
        """The tensors by the names of operands and their parts."""
        return dict(zip(self.names.split(','), self.tensors, strict=True))

    def numbers(self) -> dict[str, float]:
        """The scalars by the names of operands."""
        names = self.scalar_names.split(',') if self.scalar_names else ()
        return dict(zip(names, self.scalars, strict=True))

    def bound(self) -> BoundProgram:
        """The program with the operands that are given."""
        tensors, program = self.by_name(), PROGRAMS[self.program]
        present = tuple(dict.fromkeys(products.operand_of(name) for name in (*tensors, *self.numbers())))
        pairs = [name for name in present if f'{name}:{products.WEIGHT}' in tensors]
        return program.bind(present, tuple(name for name in pairs if not products.is_formed(program, tensors, name)))


SCHEMA = (
    'str program, str names, Tensor[] tensors, str scalar_names, float[] scalars, '
    'Tensor token, SymInt num_sources, SymInt num_targets, str flow, SymInt? loops, '
    'SymInt heads, SymInt channels, str reduce, float dropout, Tensor? seed'
)


def operator(name: str, more: str, result: str) -> Callable[[Callable], CustomOpDef]:
    """Makes a function of the arguments of a call, and of `more`, an operator."""
    schema = f'({SCHEMA}, {more}) -> {result}'
    return torch.library.custom_op(f'pygfuse::{name}', mutates_args=(), schema=schema)


def parted(arguments: Sequence) -> tuple[Arguments, Sequence]:
    """An operator's arguments: those of a call, and the rest."""
    count = len(Arguments._fields)
    return Arguments(*arguments[:count]), arguments[count:]


def call_of(arguments: Arguments, weights: Tensor | None = None) -> Call:
    edges = Edges(arguments.token, arguments.num_sources, arguments.num_targets, arguments.flow, arguments.loops)
    graph, program = edges.graph(), PROGRAMS[arguments.program]
    tensors = {name: tensor.contiguous() for name, tensor in arguments.by_name().items()}
    by_name = products.formed(program, tensors)
    for name, tensor in by_name.items():
        on_edges = program.operands[products.operand_of(name)].side == EDGE and not name.endswith(products.WEIGHT)
        if on_edges and tensor.shape[0] != graph.num_edge_ids:
            raise ValueError(
                f"Expected '{name}' to have a row for each of {graph.num_edge_ids} edges (got {tensor.shape[0]})"
            )
    seed = arguments.seed
    drawn = Dropout(arguments.dropout, drawn_seed(seed)) if seed is not None else None
    weights = weights if weights is not None and len(weights) else None
    return Call(
        *(arguments.bound(), graph, by_name, arguments.numbers()),
        *(arguments.heads, arguments.channels, arguments.reduce, drawn, weights),
    )
