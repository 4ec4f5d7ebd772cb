"""What stands for tensors that the edges of a call tell while code is captured, and whom it asks to record functions.

Such a tensor may count other edges than those of the call: edges that a mask chooses, or with self-loops behind them.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pygfuse.compiler.ir.values import found_in
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.functions_by_name import as_handlers_take
from pygfuse.compiler.symbols.keys import as_key

# who records what is made of the edges of a module that is captured (`pygfuse.compiler.modules.remaking`)
REMAKING: contextvars.ContextVar[Any] = contextvars.ContextVar('pygfuse_remaking', default=None)


class OfNumbers:
    """What stands for a tensor, of which a number may be read.

    Attributes:
        unread: Why the code has no form if none can be.
    """

    unread: str

    def item(self) -> int | bool:
        """The number that a tensor of integers or truth values holds, where a plan may be one for this number."""
        remaking = REMAKING.get()
        if remaking is None or (isinstance(self, OfEdges) and self.made is None):
            raise Refused(self.unread)
        return remaking.number_of(self, self.unread)

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return int(self.item())


class OfValues(OfNumbers):
    """What stands for a tensor of values; its class is `pygfuse.compiler.symbols.symbol.Symbol`."""

    unread = 'its control flow depends on values'


class OfEdges(OfNumbers):
    """What only the edges themselves tell, of which nothing is read but what a class says.

    Attributes:
        made: What makes it in each call (`pygfuse.compiler.made_edges.remade.Made`); None where no function of it is
            recorded.
        kind: The class of what it stands for.
        layout: How it lies in memory.
    """

    unread = 'its control flow depends on the edges'
    made: Any = None
    kind: type = Tensor
    layout: torch.layout = torch.strided
    is_sparse = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        function = getattr(Tensor, name, None)
        if self.made is None or not callable(function):
            raise Refused(f'it reads the edges themselves ({name})')
        return lambda *args, **kwargs: recorded_of_edges(function, (self, *args), kwargs)

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not all(issubclass(kind, OfEdges) for kind in types):
            # what stands for other values records it
            return NotImplemented
        return recorded_of_edges(function, *as_handlers_take(function, args, kwargs))

    def __float__(self) -> float:
        return float(self.item())

    def __getitem__(self, key: Any) -> Any:
        return recorded_of_edges(Tensor.__getitem__, (self, as_key(key)), {})

    def __setitem__(self, key: Any, item: Any) -> None:
        raise Refused('it writes into the edges')

    def __eq__(self, other: object) -> Any:
        return False if other is None else recorded_of_edges(torch.eq, (self, other), {})

    def __ne__(self, other: object) -> Any:
        return True if other is None else recorded_of_edges(torch.ne, (self, other), {})

    __hash__ = object.__hash__


def recorded_of_edges(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Records a function of torch of what the edges tell.

    Raises:
        Refused: If there is nobody who does, or it cannot be.
    """
    remaking = REMAKING.get()
    if remaking is None or (args and isinstance(args[0], OfEdges) and args[0].made is None):
        raise Refused(f'it reads the edges themselves ({function.__name__})')
    given = args, kwargs
    beside_values = next(found_in(OfValues, given), None) is not None
    if beside_values and next(found_in(MadeOfEdges, given), None) is not None:
        return remaking.record_beside_values(function, args, kwargs)
    return remaking.record(function, args, kwargs)


def _operator(function: Callable, is_reversed: bool = False) -> Callable:
    def apply(self: OfEdges, other: Any) -> Any:
        return recorded_of_edges(function, (other, self) if is_reversed else (self, other), {})

    return apply


def _refused(self: OfEdges, other: Any) -> Any:
    raise Refused('it writes into the edges')


_BOTH_WAYS = {
    'add': torch.add, 'sub': torch.sub, 'mul': torch.mul, 'truediv': torch.div, 'floordiv': torch.floor_divide,
    'mod': torch.remainder, 'and': torch.bitwise_and, 'or': torch.bitwise_or, 'xor': torch.bitwise_xor,
}  # fmt: skip
for _name, _function in _BOTH_WAYS.items():
    setattr(OfEdges, f'__{_name}__', _operator(_function))
    setattr(OfEdges, f'__r{_name}__', _operator(_function, True))
    setattr(OfEdges, f'__i{_name}__', _refused)
for _name in ('lt', 'le', 'gt', 'ge'):
    setattr(OfEdges, f'__{_name}__', _operator(getattr(torch, _name)))
for _name, _function in {'invert': torch.bitwise_not, 'neg': torch.neg}.items():
    setattr(OfEdges, f'__{_name}__', lambda self, function=_function: recorded_of_edges(function, (self,), {}))


class MadeOfEdges(OfEdges):
    """A tensor that functions of torch make of the edges, and of values of edges that a call brings.

    Args:
        made: What makes it.
    """

    def __init__(self, made: Any) -> None:
        self.made = made

    @property
    def dtype(self) -> torch.dtype:
        return self.made.examples[0].dtype

    @property
    def device(self) -> torch.device:
        return REMAKING.get().device

    @property
    def shape(self) -> tuple[Any, ...]:
        return REMAKING.get().shape_of(self.made)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return self.made.examples[0].dim()

    @property
    def ndim(self) -> int:
        return self.dim()

    def numel(self) -> Any:
        count, *others = self.shape
        if others:
            raise Refused('it reads the edges themselves (numel)')
        return count

    def __len__(self) -> int:
        raise Refused('it reads the edges themselves (len)')
