"""The compiler: anybody's message function as edge programs.

A layer's ``message`` and ``aggregate`` are captured on symbols (`capture`) as values with a residency (`ir`), which
passes rewrite (`passes/`); each reduction over edges becomes one walk (`lowering`), all else operators of torch on
nodes (`plan`). What has no fused form is `Refused`, with the reason.
"""

from pygfuse.compiler.capture import Captured, Given, Several, capture, capture_edge_update
from pygfuse.compiler.places import EdgeIndexRows, rows_of
from pygfuse.compiler.plan import Plan
from pygfuse.compiler.refusal import Refused

__all__ = [
    'Captured',
    'EdgeIndexRows',
    'Given',
    'Plan',
    'Refused',
    'Several',
    'capture',
    'capture_edge_update',
    'rows_of',
]
