"""How the arguments of a launch become a block of 64-bit words."""

from __future__ import annotations

import array
import functools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import torch

from pygfuse._lib.memo import Memo


class Form(NamedTuple):
    """What a block looks like.

    Attributes:
        first: Names of what is passed before the arguments.
        head: The words before those of the arguments, as expressions.
        tensor: The words of a tensor ``{0}``, as expressions with a comma behind each.
        refused: What is true of a tensor ``{0}`` that is none of this form, as an expression.
    """

    first: tuple[str, ...]
    head: tuple[str, ...]
    tensor: str
    refused: str = ''


# a counter of parts and their number; bodies are given the lengths of arrays
PARTS = Form(('parts',), ('0', 'parts'), '{0}.data_ptr(), {0}.numel(), ')


def kinds_of(arguments: tuple) -> tuple:
    """The hashable types of arguments: what a specialisation of a kernel is keyed on."""
    return tuple([_kind_of(argument) for argument in arguments])


def _kind_of(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return argument.dtype
    if isinstance(argument, Packed):
        return argument.kinds
    return kinds_of(argument) if isinstance(argument, tuple) else type(argument)


class Packed:
    """A tuple of arguments that stays the same from call to call, with its words in a block of `PARTS`.

    Args:
        arguments: Contiguous tensors, tuples of arguments, ints, floats or None.
    """

    __slots__ = ('arguments', 'kinds', 'words')
    # equal kinds are one object
    _known: ClassVar[dict[tuple, tuple]] = {}

    def __init__(self, arguments: tuple) -> None:
        kinds = kinds_of(arguments)
        self.arguments = arguments
        self.kinds = self._known.setdefault(kinds, kinds)
        self.words = tuple(packer((self.kinds,))(0, arguments)[len(PARTS.head) :])


def bits_of(number: float) -> int:
    """The bits of a float64 as an int64."""
    return struct.unpack('q', struct.pack('d', number))[0]


def _leaves(kind: Any, value: str) -> Iterator[tuple[Any, str]]:
    """The types that are no tuples, each with the expression of its argument, in the order of the block."""
    if isinstance(kind, tuple):
        for i, item in enumerate(kind):
            yield from _leaves(item, f'{value}[{i}]')
    else:
        yield kind, value


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix('torch.')


def _words(kind: Any, value: str, form: Form) -> str:
    """The expressions of an argument's words."""
    if isinstance(kind, torch.dtype):
        return form.tensor.format(value)
    if kind is type(None):
        return ''
    return f'bits({value}), ' if kind is float else f'{value}, ' if kind is int else f'int({value}), '


def _other(kind: Any, value: str, form: Form) -> str:
    """The expression that tells an argument of another type; numbers have the types that they had."""
    if isinstance(kind, torch.dtype):
        refused = f' or {form.refused.format(value)}' if form.refused else ''
        return f'{value} is None or {value}.dtype is not {_name_of(kind)}{refused}'
    return f'{value} is not None' if kind is type(None) else f'type({value}) is not {kind.__name__}'


def _lengths(kind: Any, value: str) -> Iterator[str]:
    """The expressions that tell tuples of another length."""
    if isinstance(kind, tuple):
        yield f'len({value}) != {len(kind)}' if kind else value
        for i, item in enumerate(kind):
            yield from _lengths(item, f'{value}[{i}]')


def packed_when_met_again(memo: Memo, key: tuple, make: Callable[[], tuple]) -> tuple | Packed:
    """A tuple of arguments that is kept in a memo: packed from the second time on that it is asked for.

    Args:
        memo: That of the object whose tensors the tuple holds.
        key: Under which it is kept.
        make: Gives the tuple.
    """
    found = memo.get(key)
    if type(found) is Packed:
        return found
    return memo.put(key, make() if found is None else Packed(found))


@functools.cache
def packer(
    kinds: tuple, packed: tuple[int, ...] = (), tested: bool = True, form: Form = PARTS
) -> Callable[..., array.array | None]:
    """``pack(*first, *arguments)``: the block of arguments of these types; None for arguments of others.

    It is written out as text for these types: that takes a fraction of the time of asking what each argument is.

    Args:
        kinds: The types.
        packed: Which of the arguments are `Packed`.
        tested: Whether arguments may be of other types; else nobody asks.
        form: What stands before the arguments' words, and how a tensor becomes words.

    Example:
        >>> pack = packer((int, type(None), (float,)))
        >>> pack(3, 7, None, (0.0,))
        array('q', [0, 3, 7, 0])
        >>> pack(3, 7, 5, (0.0,)) is None
        True
    """
    names = [f'argument_{i}' for i in range(len(kinds))]
    tests, words, scope = [], [], {'array': array.array, 'bits': bits_of, 'int': int, 'Packed': Packed}
    for i, (kind, name) in enumerate(zip(kinds, names, strict=True)):
        if i in packed:
            scope[f'kinds_{i}'] = kind
            tests.append(f'type({name}) is not Packed or {name}.kinds is not kinds_{i}')
            words.append(f'*{name}.words, ')
            continue
        if isinstance(kind, tuple):
            tests.append(f'type({name}) is Packed')
        leaves = list(_leaves(kind, name))
        tests += [*_lengths(kind, name), *(_other(*leaf, form) for leaf in leaves)]
        words += [_words(*leaf, form) for leaf in leaves]
        scope |= {_name_of(kind): kind for kind, _ in leaves if isinstance(kind, torch.dtype)}
    text = (
        f'def pack({", ".join([*form.first, *names])}):\n'
        f'    if {(" or ".join(tests) if tested else "") or False}:\n'
        '        return None\n'
        f'    return array("q", ({"".join(f"{word}, " for word in form.head)}{"".join(words)}))\n'
    )
    exec(text, scope)
    return scope['pack']


def integers_that_stand_for(names: Iterable[str]) -> dict[str, int]:
    """By name an integer that stands for an argument of `written_words`: an object that is nowhere else.

    Example:
        >>> found = integers_that_stand_for(['rows', 'width'])
        >>> found['rows'] is not found['width']
        True
    """
    # of a text, as equal constants are one object
    return {name: int(f'{2**40 + k}') for k, name in enumerate(names)}


def written_words(parts: int, arguments: tuple, named: Mapping[str, object], kept: list[torch.Tensor]) -> list[str]:
    """The words of a launch's block, as `packer` makes it, as expressions; ``bits`` in them stands for `bits_of`.

    Args:
        parts: The number of parts.
        arguments: Of a launch: what stands for those that differ from call to call, and the others as they are.
        named: What stands for an argument, by its name: objects that are nowhere else among the arguments.
        kept: To which tensors are added that are in the block as they are.

    Example:
        >>> size = 12345
        >>> written_words(2, (7, (size, None)), {'size': size}, [])
        ['0', '2', '7', 'size']
    """
    names = {id(value): name for name, value in named.items()}

    def words(value: Any) -> Iterator[str]:
        name = names.get(id(value))
        if isinstance(value, tuple):
            for item in value:
                yield from words(item)
        elif isinstance(value, torch.Tensor) and name is None:
            kept.append(value)
            yield from (str(value.data_ptr()), str(value.numel()))
        elif isinstance(value, torch.Tensor):
            yield from PARTS.tensor.format(name).removesuffix(', ').split(', ')
        elif isinstance(value, float):
            yield f'bits({name})' if name else str(bits_of(value))
        elif value is not None:
            yield name or str(int(value))

    return [*[word.replace('parts', str(parts)) for word in PARTS.head], *words(arguments)]
