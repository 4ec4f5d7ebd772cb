"""How tensors lie in memory, as code asks for it and changes it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler.made_edges.remade import Made
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING, MadeOfEdges
from pygfuse.compiler.symbols.symbol import Symbol, handler, made


@handler('clone', 'contiguous')
def _same(x: Symbol, **_: Any) -> Symbol:
    # an operator of its own, so that a write to the copy is none to the original
    return made('add', x, 0) if x.node.dtype.is_floating_point else x


@handler('is_contiguous')
def _is_contiguous(x: Symbol) -> bool:
    if not x.is_given or x.is_copy:
        # what torch gathers and computes
        return True
    remaking = REMAKING.get()
    if remaking is None or remaking.copies:
        raise Refused('it asks how an argument lies in memory')
    given = remaking.of_value(x, may_be_of_nodes=True)
    examples = torch.ones((), dtype=torch.bool), torch.ones((), dtype=torch.bool)
    found = MadeOfEdges(Made(_as_truth, (given,), examples=examples))
    return remaking.number_of(found, 'it asks how something lies in memory')


def _as_truth(x: Tensor) -> Tensor:
    return torch.tensor(x.is_contiguous())
