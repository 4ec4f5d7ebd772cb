"""The compiler: anybody's message function as edge programs.

A layer's ``message`` and ``aggregate`` are captured on symbols (`capture/`, `symbols/`, `functions/`) as values with a
residency (`ir/`), which passes rewrite (`passes/`); each reduction over edges becomes one walk (`forms/`), all else
operators of torch on nodes (`plan/`). What has no fused form is `Refused`, with the reason.
"""

from pygfuse.compiler.capture.layers import Captured, Given, Several
from pygfuse.compiler.plan.plan import Plan
from pygfuse.compiler.refusal import Reason, Refused
from pygfuse.compiler.symbols.numbers_of_rows import rows_of
from pygfuse.compiler.symbols.places import EdgeIndexRows

__all__ = [
    'Captured',
    'EdgeIndexRows',
    'Given',
    'Plan',
    'Reason',
    'Refused',
    'Several',
    'rows_of',
]
