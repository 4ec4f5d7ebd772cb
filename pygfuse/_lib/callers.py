"""Whether the code that calls a layer writes into what it gave, once the layer has run.

``x += conv(x, edge_index)``, or ``x[mask] = ...`` behind a call: where PyG's layer saves what its operators made of
gathered rows, that trains. Layers that save the rows themselves read copies then.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from pygfuse._lib.names_written import instructions_of, loops_in, names_written, with_other_names

# code that is known, and frames that are looked at: those of modules within modules, and not all of a trainer's
_MOST_CODE, _MOST_FRAMES = 4096, 32
_KEEPS_LOCALS = sys.version_info < (3, 13)
# references: the frame's, the name's here, and the argument's that counts them
_OF_FRAME_AND_HERE = 3
# what runs between a module and a layer, and writes into neither's tensors
_BETWEEN = tuple(os.path.dirname(os.path.abspath(one)) + os.sep for one in (torch.__file__, os.path.dirname(__file__)))


class _Code(NamedTuple):
    """What is known of code.

    Attributes:
        code: The code.
        names: The names of variables that it writes into, and others of the same values, and where it writes.
        loops: Where its loops begin and end.
        is_within: Whether what calls it is looked at, too: it is a module's, or torch's.
    """

    code: types.CodeType
    names: Mapping[str, set[int]]
    loops: tuple[tuple[int, int], ...]
    is_within: bool

    def written_behind(self, place: int) -> Iterator[str]:
        """The names that it writes into once it has come to a place."""
        for name, places in self.names.items():
            if any(one > place or self._comes_again(one, place) for one in places):
                yield name

    def _comes_again(self, place: int, behind: int) -> bool:
        return any(begin <= place and end >= behind for begin, end in self.loops)


# by the code's id; codes hash all that they hold each time
_known: dict[int, _Code] = {}


def _read(code: types.CodeType) -> _Code:
    """What code says, which is known from then on."""
    is_between, names, loops = code.co_filename.startswith(_BETWEEN), {}, ()
    if not is_between:
        instructions = instructions_of(code)
        names = with_other_names(names_written(instructions), instructions)
        loops = loops_in(instructions)
    if len(_known) >= _MOST_CODE:
        _known.clear()
    found = _known[id(code)] = _Code(code, names, loops, is_between or code.co_varnames[:1] == ('self',))
    return found


def _tensors_in(value: Any) -> Iterator[Tensor]:
    # classes that wrap others have no memory of their own
    if type(value) in (Tensor, Parameter) and value.layout is torch.strided:
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors_in(part)


def written_by_callers(values: Iterable[Any]) -> set[int]:
    """The memory, by address, of those tensors that code around the call may write into by one of their names.

    Looked at are the code that called and, as long as it is a module's, the code that called that.

    Args:
        values: Tensors, tuples of tensors, and anything else.

    Example:
        >>> import torch
        >>> def layer(x):
        ...     return written_by_callers([x])
        >>> def written(x):
        ...     found = layer(x)
        ...     x += 1
        ...     return found
        >>> def kept(x):
        ...     return layer(x)
        >>> len(written(torch.ones(1))), len(kept(torch.ones(1)))
        (1, 0)
    """
    written: set[int] = set()
    # of the function that asks
    for frame, known in _writing(sys._getframe(2)):
        names = [*known.written_behind(frame.f_lasti)]
        if names:
            written |= _memory_of(_values_of(frame, names))
    return written & _memory_of([*values]) if written else written


def _memory_of(values: Sequence[Any]) -> set[int]:
    return {one.untyped_storage().data_ptr() for one in _tensors_in(values)}


def _values_of(frame: types.FrameType, names: Sequence[str]) -> list[Any]:
    """What variables of code that runs have."""
    held = frame.f_locals
    found = [held.get(name) for name in names]
    # up to Python 3.12 a function's frame keeps what it has given, and with it tensors of variables that are others by
    # now; who called `locals` has it, too
    if _KEEPS_LOCALS and frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.getrefcount(held) <= _OF_FRAME_AND_HERE:
        held.clear()
    return found


def are_callers_writing() -> bool:
    """Whether code around the function that asks writes into anything that has a name; found in a microsecond."""
    return torch.is_grad_enabled() and next(_writing(sys._getframe(2)), None) is not None


def _writing(frame: types.FrameType) -> Iterator[tuple[types.FrameType, _Code]]:
    """A frame and those around it, as far as they are looked at, whose code writes into something."""
    for _ in range(_MOST_FRAMES):
        code = frame.f_code
        known = _known.get(id(code))
        if known is None or known[0] is not code:
            known = _read(code)
        _, names, _, is_within = known
        if names:
            yield frame, known
        if frame.f_back is None or not is_within:
            return
        frame = frame.f_back


def kept_from_callers(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments, of those tensors that `written_by_callers` names copies where autograd saves what is computed.

    Args:
        given: Tensors, tuples of tensors, and anything else, by name. Tensors that are one tensor stay so.
    """
    if not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        return given
    memory = written_by_callers(given.values())
    if not memory:
        return given
    copies: dict[int, Tensor] = {}

    def kept(value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)([kept(part) for part in value])
        if memory.isdisjoint(_memory_of([value])) or not value.is_floating_point():
            return value
        if id(value) not in copies:
            copies[id(value)] = value.clone()
        return copies[id(value)]

    return {name: kept(value) for name, value in given.items()}
