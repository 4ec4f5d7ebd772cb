"""The values that a plan computes, in order, and what walks read of them."""

from __future__ import annotations

from collections.abc import Mapping

from pygfuse.compiler.forms.form import Form
from pygfuse.compiler.forms.lowering import Walk
from pygfuse.compiler.ir.values import Node
from pygfuse.compiler.programs.emission import Factors


def steps_of(output: Node, walks: Mapping[int, Form]) -> list[Node]:
    """The values to compute in order: of a reduction's, its operands alone."""
    done: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) in done:
            return
        walk = walks.get(id(node))
        before = (node.attributes['of'],) if node.op == 'kept' else node.parents()
        for parent in before if walk is None else operands_of(walk):
            visit(parent)
        done[id(node)] = node

    visit(output)
    return list(done.values())


def operands_of(walk: Form) -> list[Node]:
    """The values that a form reads, those of factors apart."""
    found = []
    walks = walk.walks if isinstance(walk, Walk) else (walk,)
    for operand in (operand for one in walks for operand in one.operands.values()):
        found += [operand.features, operand.weight] if isinstance(operand, Factors) else [operand]
    return found
