"""What the compiler made of a layer, for people: the values after each pass, the programs, and what they cost."""

from __future__ import annotations

from pygfuse.compiler.forms.cost import cost_as_written
from pygfuse.compiler.forms.lowering import Walk
from pygfuse.compiler.ir.values import text
from pygfuse.compiler.passes import stages
from pygfuse.compiler.plan.plan import Plan


def explained(plan: Plan) -> str:
    """A plan in words.

    Args:
        plan: The plan.
    """
    parts = ['as written', text(plan.captured.output)]
    before = plan.captured.output
    for name, output in stages(plan.captured.output, plan.without, plan.more):
        if text(output) != text(before):
            parts += [f'\nafter {name}', text(output)]
        before = output
    for walk in plan.walks.values():
        runs = walk.walks[0] if isinstance(walk, Walk) else walk
        parts += [f'\n{walk.title}', runs.text]
    parts += [f'\nas written  {cost_as_written(plan.captured.output)}', f'compiled    {plan.cost}']
    return '\n'.join(parts)
