"""What TorchScript compiles in place of a fused layer: the forward of PyG's.

torch puts what ``__prepare_scriptable__`` returns into the user's model. So that is the layer itself, of a class that
has PyG's forward for TorchScript to read, and that turns back into the fused class when the layer is next called or
copied.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch_geometric.nn import MessagePassing


def as_scriptable(conv: MessagePassing) -> MessagePassing:
    """The layer, of a class that TorchScript can compile; a layer with a forward of the user's own stays as it is."""
    kind = type(conv)
    own = next(base for base in kind.__mro__ if 'forward' in base.__dict__)
    if hasattr(own, 'why_not') and own.__module__.startswith('pygfuse.conv.'):
        conv.__class__ = _scriptable(kind, conv.fuse)
    return conv


def turn_back(conv: Any) -> None:
    """Gives a layer its fused class back, if TorchScript took it for PyG's."""
    conv.__class__ = getattr(type(conv), 'fused_class', type(conv))


def told_of(plain: type) -> dict[str, Any]:
    """What a class that stands for PyG's tells of itself: it has that one's name, documentation and source."""
    # Python finds the source by a line number from 3.13 on, and by the name before
    names = ('__module__', '__qualname__', '__firstlineno__', '__doc__')
    return {name: getattr(plain, name) for name in names if hasattr(plain, name)}


@functools.cache
def _scriptable(kind: type, fuse: bool) -> type:
    plain = kind.plain

    def call(self, *arguments: Any, **named: Any) -> Any:
        turn_back(self)
        return self(*arguments, **named)

    def reduce(self, protocol: Any) -> Any:
        turn_back(self)
        return self.__reduce_ex__(protocol)

    # TorchScript finds types of attributes there
    names = {**told_of(plain), '__annotations__': plain.__annotations__}
    # what is computed in a property is of no use to a script, which asks for those of the fused class all the same
    properties = [name for name in dir(kind) if isinstance(getattr(kind, name, None), property)]
    names['__jit_unused_properties__'] = properties
    names |= {name: None for name in properties if not hasattr(plain, name)}
    methods = {'forward': plain.forward, '__call__': call, '__reduce_ex__': reduce}
    if not fuse:
        # `propagate` is one for all layers of the class, and this one's reduction may be none of a product
        methods['message_and_aggregate'] = _left_out(kind.message_and_aggregate)
    return type(plain.__name__, (kind,), {**names, **methods, 'fused_class': kind})


def _left_out(method: types.FunctionType) -> types.FunctionType:
    """A copy of a method that TorchScript compiles to an error: it marks the function itself."""
    made = types.FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__
    )
    return torch.jit.unused(functools.update_wrapper(made, method))
