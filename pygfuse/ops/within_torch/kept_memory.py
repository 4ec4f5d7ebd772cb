"""Memory of edges that ``torch.compile`` makes, into which nothing else is written.

Graphs are found by the tensors that edges came in. Where edges are made within a trace, torch's compiler writes other
values into their memory once nobody reads them, and says so to nobody: the tensor is the same, its edges are others.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

from torch._ops import OpOverload
from torch.library import CustomOpDef

from pygfuse.ops.within_torch.compiled_graphs import register_fake

_LOWERING = 'torch._inductor.lowering'
# what names the memory that the compiler writes nothing else into, by versions: the former it frees
_KEPT = 'never_reuse_but_free_buffers', 'never_reuse_buffers'
_CANNOT_KEEP = (
    'torch.compile of this version may write into the memory of edges, from which pygfuse cannot keep it: use '
    "backend='aot_eager', or another version of torch"
)


def fake_of(operator: CustomOpDef) -> Callable[[Callable], Callable]:
    """Registers what an operator gives in a trace, and has the compiler keep the memory of the edges it is given.

    Args:
        operator: One that takes edges as ``token``.
    """

    def register(fake: Callable) -> Callable:
        def traced(*given: object, **named: object) -> object:
            # whoever compiles traces with this module loaded, and before it allocates memory
            if _LOWERING in sys.modules:
                _keep(operator._opoverload)
            return fake(*given, **named)

        register_fake(operator)(traced)
        return fake

    return register


@functools.cache
def _keep(overload: OpOverload) -> None:
    """Tells the compiler of an operator; compiling it is an error where that knows no memory that is kept."""
    from torch._inductor import lowering
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.virtualized import V

    place = [argument.name for argument in overload._schema.arguments].index('token')
    kept = next((name for name in _KEPT if name in PythonWrapperCodegen.can_reuse.__code__.co_names), None)
    # strides are as the operator's tags say
    lowering.make_fallback(overload, warn=False)
    as_operator = lowering.lowerings[overload]

    def lowered(*given: object, **named: object) -> object:
        if kept is None:
            raise RuntimeError(_CANNOT_KEEP)
        token = given[place]
        token.realize()
        getattr(V.graph, kept).add(token.get_name())
        return as_operator(*given, **named)

    lowering.lowerings[overload] = lowered
