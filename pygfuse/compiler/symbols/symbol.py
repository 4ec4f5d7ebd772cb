"""What stands for tensors while a message function is captured: operators on it are recorded, not computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pygfuse.compiler.ir.operations import OPERATIONS, piece_of
from pygfuse.compiler.ir.values import SHARED, Node, found_in, value
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.edge_tensors import REMAKING, MadeOfEdges, OfEdges, OfValues
from pygfuse.compiler.symbols.functions_by_name import as_handlers_take
from pygfuse.compiler.symbols.handler_names import ANY_OF_NODES, BY_ROWS, LIFTED, WITH_ROWS
from pygfuse.compiler.symbols.keys import as_key
from pygfuse.compiler.symbols.numbers_of_rows import NUM_EDGES, OF_NODES, WITH_NUMBERS, Rows, has_numbers
from pygfuse.compiler.symbols.operators import add_operators
from pygfuse.compiler.symbols.places import BY_OTHERS, DEVICE
from pygfuse.compiler.symbols.random_functions import is_drawn
from pygfuse.compiler.symbols.sharing import check_current, share, shares_memory, write

HANDLERS: dict[str, Callable] = {}


def handler(*names: str) -> Callable[[Callable], Callable]:
    """Registers a handler for functions of torch."""

    def register(function: Callable) -> Callable:
        HANDLERS.update(dict.fromkeys(names, function))
        return function

    return register


_ARITHMETIC = 'add', 'sub', 'mul', 'div', 'rsub', 'subtract', 'multiply', 'divide', 'true_divide'
# operators beside elementwise ones that are the same for each of several values in one tensor
_OF_STACKS = ('reduce', 'linear', 'layer_norm', 'cat')


class Recorded(OfValues):
    """A value of which every function of torch is recorded."""

    layout = torch.strided
    is_sparse = is_nested = False
    shape: tuple[Any, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__') or not hasattr(Tensor, name):
            raise AttributeError(name)
        if name == 'mT' or (name == 'T' and self.dim() == 2):
            return recorded(torch.transpose, (self, -1, -2))
        if name in ('is_cpu', 'is_cuda'):
            return DEVICE.get().type == name[3:]
        function = getattr(Tensor, name)
        if not callable(function):
            raise Refused(f'it reads .{name} of a value')
        return lambda *args, **kwargs: recorded(function, (self, *args), kwargs)

    @classmethod
    def __torch_function__(cls, function: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return recorded(function, args, kwargs)

    def __float__(self) -> float:
        raise Refused(self.unread)

    __len__ = __iter__ = __contains__ = __float__

    def __getitem__(self, key: Any) -> Any:
        return recorded(Tensor.__getitem__, (self, key))

    __hash__ = object.__hash__


class Rearranged(Recorded):
    """Values whose rows are not the first dimension: functions are recorded of `one`, which has them first."""

    one: Any

    def in_one_tensor(self) -> Any:
        """The same, where it may stand for several values."""
        return self

    def record(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Records a function of torch's that is given it."""
        raise NotImplementedError

    def record_leaf(self, function: Callable, signature: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Records a function of another library, which takes symbols and has this signature."""
        raise NotImplementedError

    def write(self, result: Any) -> None:
        """Notes that a result was written into its tensor."""
        raise NotImplementedError


class Symbol(Recorded):
    """A value that is being captured.

    Attributes:
        node: The value.
        rows: What its first dimension counts: `NUM_EDGES`, `NUM_TARGETS`, or None for a shared value.
        is_stacked: Whether it stands for several values that PyG has in one tensor, before the dimension of rows.
        is_copy: Whether it is given, but as a copy that nobody else has, as PyG gathers for each call.
        constant: The number that it holds everywhere, where that is known.
        is_view: Whether torch gives a view of what it is computed of.
    """

    def __init__(self, node: Node, rows: int | None, is_stacked: bool = False, is_copy: bool = False) -> None:
        self.node = node
        self.rows = rows
        self.is_stacked = is_stacked
        self.is_copy = is_copy
        self.constant: float | None = None
        self.is_view = False
        self.is_given = node.op == 'input'
        # of memory, as `pygfuse.compiler.symbols.sharing` says
        self.sharing = [self]
        self.is_changed = False

    # What the code may read of a tensor

    @property
    def shape(self) -> tuple[int, ...]:
        if self.is_stacked:
            raise Refused('it reads the shape of features of more than two dimensions')
        if self.rows is None:
            return self.node.shape
        return Rows.of_edges(self) if self.rows == NUM_EDGES else Rows(self.rows), *self.node.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.node.dtype

    @property
    def device(self) -> torch.device:
        return DEVICE.get()

    def is_floating_point(self) -> bool:
        return self.node.dtype.is_floating_point

    def numel(self) -> int:
        return self.node.width if self.rows is None else Rows(self.rows) * self.node.width

    # Operators

    def __setitem__(self, key: Any, item: Any) -> None:
        is_mask = isinstance(key, Symbol) and key.dtype is torch.bool and key.rows == self.rows
        if not is_mask or type(item) not in (int, float):
            raise Refused('it writes into a tensor')
        inner, shape = self.node.shape, key.node.shape
        if self.rows is None or self.is_stacked or inner[: len(shape)] != shape:
            raise Refused('it writes into a tensor by a mask of another shape')
        # the dimensions of a mask are the first
        mask = made('reshape', key, shape=(*shape, *[1] * (len(inner) - len(shape)))) if shape != inner else key
        written(self, HANDLERS['masked_fill'](self, mask, item))


def written(symbol: Symbol, result: Any) -> Symbol:
    """A symbol after a write in place."""
    if isinstance(symbol, Rearranged):
        symbol.write(result)
        return symbol
    if REMAKING.get() is not None:
        symbol, result = REMAKING.get().as_written(symbol, result)
    write(symbol, result)
    return symbol


def symbols_in(arguments: Any) -> Iterator[Symbol]:
    """The symbols in nested lists, tuples and dicts."""
    return found_in(Symbol, arguments)


def replaced(arguments: Any, function: Callable[[Symbol], Any]) -> Any:
    """Nested lists and tuples with another thing in place of each symbol."""
    if isinstance(arguments, Symbol):
        return function(arguments)
    if isinstance(arguments, (tuple, list)):
        return tuple(replaced(argument, function) for argument in arguments)
    if isinstance(arguments, dict):
        return {name: replaced(argument, function) for name, argument in arguments.items()}
    if isinstance(arguments, Tensor):
        raise Refused('it uses a tensor that is neither an argument nor held by the layer')
    if isinstance(arguments, OfEdges):
        raise Refused('it reads the edges themselves')
    return arguments


def recorded(function: Callable, args: tuple, kwargs: dict[str, Any] | None = None) -> Any:
    """Records a function of torch.

    Raises:
        Refused: If no fused form of it is known.
    """
    args, kwargs = as_handlers_take(function, args, kwargs)
    if function is Tensor.__getitem__:
        args = args[0], as_key(args[1])
    rearranged = next(found_in(Rearranged, (args, kwargs)), None)
    if rearranged is not None:
        return rearranged.record(function, args, kwargs)
    name = function.__name__
    if name == 'detach_':
        raise Refused('it detaches a tensor in place')
    if next(found_in(MadeOfEdges, (args, kwargs)), None) is not None:
        return REMAKING.get().record_beside_values(function, args, kwargs)
    if kwargs.pop('out', None) is not None:
        raise Refused(f'{name} writes into a tensor')
    writes = name.endswith('_') and not name.endswith('__')
    if kwargs.pop('inplace', False) or writes:
        name = name.removesuffix('_')
        # what it writes into is another value from then on
        function = _without_writes(name) if writes else function
        return written(args[0], _recorded(function, name, args, kwargs))
    return _recorded(function, name, args, kwargs)


def _without_writes(name: str) -> Callable:
    """The function that gives in a tensor of its own what the one in place gives."""
    for owner in (Tensor, torch, F):
        if hasattr(owner, name):
            return getattr(owner, name)
    raise Refused(f'{name}_ writes into a tensor')


def _recorded(function: Callable, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    try:
        return _recorded_as_given(function, name, args, kwargs)
    except Refused as error:
        refusal, remaking = error, REMAKING.get()
    if remaking is None:
        raise refusal
    if remaking.copies:
        with contextlib.suppress(Refused):
            if not remaking.is_of_copies:
                return HANDLERS[LIFTED](function, args, kwargs)
        raise refusal
    of_nodes = remaking.with_nodes(args)
    if of_nodes is not None:
        try:
            found = _recorded_as_given(function, name, of_nodes, kwargs)
        except Refused as error:
            refusal = error
        else:
            remaking.fix_nodes()
            return found
    if str(refusal) != BY_OTHERS and any(symbol.rows is not None for symbol in symbols_in((args, kwargs))):
        with contextlib.suppress(Refused):
            return remaking.record(function, args, kwargs, is_drawn(name))
    raise refusal


def _recorded_as_given(function: Callable, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    if name.rstrip('_') in _ARITHMETIC and any(isinstance(one, Rows) for one in args):
        args = HANDLERS[WITH_ROWS](args)
    found = list(symbols_in((args, kwargs)))
    check_current(found)
    if REMAKING.get() is not None and any(symbol.rows is not None for symbol in found):
        REMAKING.get().check_alone(name, args, kwargs)
    handler = HANDLERS.get(name.strip('_'))
    if all(symbol.rows is None for symbol in found) and name != 'dropout':
        result = _of_shared(function, name, args, kwargs)
    else:
        result = _handled(handler, function, name, args, kwargs)
    share(symbols_in(result), found, name)
    return result if torch.is_grad_enabled() else replaced(result, lambda symbol: made('detach', symbol))


def _handled(handler: Callable | None, function: Callable, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What a handler records; of nodes alone torch computes what none does."""
    try:
        if handler is None:
            raise Refused(f'{name} has no fused form on edges')
        return handler(*args, **kwargs)
    except Refused:
        is_of_nodes = are_of_nodes(list(symbols_in((args, kwargs)))) and not is_drawn(name)
        with contextlib.suppress(Refused):
            if is_of_nodes:
                return HANDLERS[ANY_OF_NODES](function, args, kwargs)
        raise


def are_of_nodes(symbols: Sequence[Symbol]) -> bool:
    """Whether values are of nodes of one set, beside shared ones."""
    rows = {symbol.rows for symbol in symbols} - {None}
    return len(rows) == 1 and rows <= {*OF_NODES} and not any(symbol.is_stacked for symbol in symbols)


def _of_shared(function: Callable, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Records any function of shared values."""
    if is_drawn(name) or (name.endswith('_') and not name.startswith('__')):
        raise Refused(f'{name} draws random numbers or writes')
    if name == 'to':
        # where the tensors of a call are, those of the layer are
        args = tuple([one for one in args if not (isinstance(one, torch.device) and one == DEVICE.get())])
        if len(args) == 1 and not kwargs:
            return args[0]
    keywords = tuple(replaced(kwargs, lambda symbol: _refuse_keyword(name)).items())
    arguments = replaced(args, lambda symbol: symbol.node)
    if has_numbers(arguments):
        return HANDLERS[BY_ROWS](name, *args)
    _refuse_values(function, name)
    examples = replaced(args, lambda symbol: symbol.node.example())
    try:
        out = function(*examples, **kwargs)
    except Exception as error:
        raise Refused(f'{name}: {error}') from error

    def symbol(part: Tensor, function: Callable, keywords: tuple) -> Symbol:
        made = Symbol(value('call', *arguments, function=function, keywords=keywords), None)
        made.is_view = shares_memory(part, examples)
        return made

    if isinstance(out, (tuple, list)) and all(isinstance(part, Tensor) for part in out):
        pieces = [(part, (('piece', k), ('function', function), *keywords)) for k, part in enumerate(out)]
        # of some the parts have names
        return type(out)([symbol(part, piece_of, of_piece) for part, of_piece in pieces])
    return symbol(out, function, keywords)


def _refuse_keyword(name: str) -> Any:
    raise Refused(f'{name} takes a value as a keyword')


def _refuse_values(function: Callable, name: str) -> None:
    if name in ('item', 'tolist', 'numpy', '__bool__', '__len__', 'nonzero', 'unique'):
        raise Refused(f'{name} of a parameter')


def made(op: str, *args: Any, **attributes: Any) -> Symbol:
    """The symbol of an operator on symbols and numbers.

    Raises:
        Refused: If they do not count the same rows.
    """
    if torch._C._is_any_autocast_enabled():
        raise Refused('it computes under autocast of its own')
    check_current(symbols_in(args))
    rows = {symbol.rows for symbol in symbols_in(args)} - {None}
    if len(rows) > 1:
        raise Refused(f'{op} of values of edges and of nodes')
    if has_numbers((args, attributes)):
        raise Refused(WITH_NUMBERS)
    node = value(op, *replaced(args, lambda symbol: symbol.node), **attributes)
    if not torch.is_grad_enabled() and op != 'detach':
        # the code has a `with` block of its own
        node = value('detach', node)
    is_stacked = any(symbol.is_stacked for symbol in symbols_in(args))
    if is_stacked and not (OPERATIONS[op].elementwise or op in _OF_STACKS):
        raise Refused(f'{op} of features of more than two dimensions')
    return Symbol(node, None if node.residency == SHARED else rows.pop(), is_stacked)


add_operators(Recorded, recorded, written)
