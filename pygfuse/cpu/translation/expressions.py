"""Expressions: operators, calls, tuples, and places in arrays."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.translation.memory import Memory
from pygfuse.cpu.translation.values import (
    CONTEXT,
    Array,
    Computed,
    converted,
    from_registers,
    in_registers,
    is_known_number,
    kind_of,
    load,
    merged,
)
from pygfuse.cpu.vectors import numbers
from pygfuse.cpu.vectors.elementwise import WORDS
from pygfuse.cpu.vectors.intrinsics import Intrinsic
from pygfuse.cpu.vectors.simd import SimdType

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ELEMENTS = {np.int32: types.int32, np.int64: types.int64, np.float32: types.float32, np.float64: types.float64}
_CONVERSIONS = {np.uint64: types.uint64, np.int64: types.int64, float: types.float64, int: types.int64}


class Builder(ir.IRBuilder):
    """Writes the instructions of one LLVM function, and knows those that must be exact.

    Attributes:
        memory: What the function allocates.
        exact: Instructions, by their ``id``, in which products and sums stay apart.
    """

    _MAY_FUSE = frozenset(('fadd', 'fsub', 'fmul', 'fdiv', 'frem', 'fcmp'))

    def __init__(self, function: ir.Function) -> None:
        super().__init__(function.append_basic_block('variables'))
        self.memory = Memory(self)
        self.exact: set[int] = set()

    def instructions(self) -> Iterator[ir.Instruction]:
        """All that was written so far."""
        return (instruction for block in self.function.blocks for instruction in block.instructions)

    def allow(self, flags: Sequence[str]) -> None:
        """Allows LLVM what `flags` say, wherever nothing was said; where results must be exact, no product is fused."""
        for instruction in self.instructions():
            if instruction.opname not in self._MAY_FUSE:
                continue
            if id(instruction) in self.exact:
                instruction.flags = [flag for flag in instruction.flags if flag != 'contract']
            elif not instruction.flags:
                instruction.flags.extend(flags)


class Expressions:
    """The expressions of one call of a function.

    Args:
        builder: Writes LLVM's instructions.
        names: What names that are not variables stand for.
    """

    def __init__(self, builder: Builder, names: Mapping[str, object]) -> None:
        self.builder, self._names = builder, names
        # parameters that are never assigned to, and the places of all other variables
        self.variables: dict[str, Any] = {}
        self.slots: dict[str, Any] = {}

    def call(self, function: Function, arguments: Sequence[Any]) -> Any:
        raise NotImplementedError

    def evaluate(self, expression: ast.expr) -> Any:
        """What an expression is: a value, a tuple, or what is known before the kernel runs."""
        write = getattr(self, f'_{type(expression).__name__}', None)
        if write is None:
            raise ValueError(f'a kernel has no {type(expression).__name__}')
        return write(expression)

    def cast(self, thing: Any, kind: types.Type) -> Computed:
        return Computed(kind, converted(self.builder, thing, kind))

    def _Constant(self, expression: ast.Constant) -> Any:
        return expression.value

    def _Name(self, expression: ast.Name) -> Any:
        name = expression.id
        if name in self.variables:
            return self.variables[name]
        if name in self.slots:
            return load(self.builder, self.slots[name])
        return self._names[name]

    def _Attribute(self, expression: ast.Attribute) -> Any:
        return getattr(self.evaluate(expression.value), expression.attr)

    def _Tuple(self, expression: ast.Tuple) -> tuple:
        return tuple(self.evaluate(item) for item in expression.elts)

    # Operators

    def _BinOp(self, expression: ast.BinOp) -> Any:
        return self.binary(type(expression.op), self.evaluate(expression.left), self.evaluate(expression.right))

    def binary(self, operation: type[ast.operator], x: Any, y: Any) -> Any:
        """An operator on two things."""
        function = _OPERATORS[operation]
        if not isinstance(x, Computed) and not isinstance(y, Computed):
            return function(x, y)
        if isinstance(kind_of(x), SimdType) or isinstance(kind_of(y), SimdType):
            return self._word(function, (x, y))
        x, y = self._meeting(x, y)
        return Computed(*numbers.binary(self.builder, operation, (x.kind, y.kind), (x.ir, y.ir)))

    def _meeting(self, x: Any, y: Any) -> tuple[Computed, Computed]:
        """Two numbers as values; an integer that is known has a sign only if the other one has."""
        kinds = [thing.kind for thing in (x, y) if isinstance(thing, Computed)]
        found = []
        for thing in (x, y):
            unsigned = isinstance(thing, int) and kinds == [types.uint64] and thing >= 0
            found.append(self.cast(thing, types.uint64 if unsigned else kind_of(thing)))
        return found[0], found[1]

    def _UnaryOp(self, expression: ast.UnaryOp) -> Any:
        if isinstance(expression.op, ast.Not):
            condition = self.condition(expression.operand)
            if isinstance(condition, bool):
                return not condition
            return Computed(types.boolean, self.builder.not_(condition))
        operand = self.evaluate(expression.operand)
        if not isinstance(expression.op, ast.USub):
            raise ValueError(f'a kernel has no {type(expression.op).__name__}')
        if not isinstance(operand, Computed):
            return -operand
        if isinstance(operand.kind, SimdType):
            return self._word(operator.neg, (operand,))
        return Computed(*numbers.negative(self.builder, operand.kind, operand.ir))

    def _Compare(self, expression: ast.Compare) -> Any:
        found: Any = True
        left = self.evaluate(expression.left)
        for operation, comparator in zip(expression.ops, expression.comparators, strict=True):
            right = self.evaluate(comparator)
            holds = self._compare(type(operation), left, right)
            if found is True:
                found = holds
            else:
                found = Computed(types.boolean, self.builder.and_(self.as_bit(found), self.as_bit(holds)))
            left = right
        return found

    def _compare(self, operation: type[ast.cmpop], x: Any, y: Any) -> Any:
        if operation in (ast.Is, ast.IsNot):
            if y is not None:
                raise ValueError('a kernel asks of nothing but None what it is')
            return (x is None) == (operation is ast.Is)
        if not isinstance(x, Computed) and not isinstance(y, Computed):
            return _OPERATORS[operation](x, y)
        x, y = self._meeting(x, y)
        return Computed(types.boolean, numbers.compare(self.builder, operation, (x.kind, y.kind), (x.ir, y.ir)))

    def condition(self, expression: ast.expr) -> bool | ir.Value:
        """Whether an expression holds: known, or one bit."""
        found = self.evaluate(expression)
        return numbers.truth(self.builder, found.ir, found.kind) if isinstance(found, Computed) else bool(found)

    def as_bit(self, thing: Any) -> ir.Value:
        """What holds or does not, as one bit."""
        if isinstance(thing, bool):
            return ir.Constant(ir.IntType(1), thing)
        return thing.ir if isinstance(thing, Computed) else thing

    def _BoolOp(self, expression: ast.BoolOp) -> Any:
        """``and`` and ``or``: an operand is computed only if those before it do not decide."""
        decides = isinstance(expression.op, ast.Or)
        found = self.condition(expression.values[0])
        for item in expression.values[1:]:
            if isinstance(found, bool):
                if found == decides:
                    return found
                found = self.condition(item)
                continue
            more, end = (self.builder.append_basic_block(name) for name in ('undecided', 'decided'))
            decided = self.builder.block
            self.builder.cbranch(found, *((end, more) if decides else (more, end)))
            self.builder.position_at_end(more)
            last = self.condition(item)
            arriving = [(decided, decides), (self.builder.block, last)]
            self.builder.branch(end)
            self.builder.position_at_end(end)
            found = self.builder.phi(ir.IntType(1))
            for block, holds in arriving:
                found.add_incoming(self.as_bit(holds), block)
        return found if isinstance(found, bool) else Computed(types.boolean, found)

    def _IfExp(self, expression: ast.IfExp) -> Any:
        condition = self.condition(expression.test)
        if isinstance(condition, bool):
            return self.evaluate(expression.body if condition else expression.orelse)
        then, otherwise, end = (self.builder.append_basic_block(name) for name in ('then', 'else', 'end_if'))
        self.builder.cbranch(condition, then, otherwise)
        arriving = []
        for block, branch in ((then, expression.body), (otherwise, expression.orelse)):
            self.builder.position_at_end(block)
            found = self.evaluate(branch)
            arriving.append((self.builder.block, found))
            self.builder.branch(end)
        self.builder.position_at_end(end)
        return merged(self.builder, arriving)

    # Calls

    def _Call(self, expression: ast.Call) -> Any:
        if expression.keywords:
            raise ValueError('a kernel has no arguments by name')
        function = self.evaluate(expression.func)
        arguments = tuple(self.evaluate(argument) for argument in expression.args)
        if isinstance(function, Intrinsic):
            return self._intrinsic(function, arguments)
        if isinstance(function, Function):
            return self.call(function, arguments)
        if function in WORDS:
            return self._word(function, arguments)
        if function is len:
            return self._length(*arguments)
        if function in (min, max):
            return self._extreme(function, arguments)
        if function is np.empty:
            length, element = arguments
            return self.builder.memory.allocate(_ELEMENTS[element], converted(self.builder, length, types.int64))
        if hasattr(function, '_fields'):
            return function(*arguments)
        kind = function if isinstance(function, types.Type) else _CONVERSIONS.get(function)
        if kind is None:
            raise ValueError(f'a kernel calls no {function!r}; a plain function has to be marked as inlined')
        return self.cast(arguments[0], kind)

    def _intrinsic(self, function: Intrinsic, arguments: Sequence[Any]) -> Any:
        signature, emit = function.define(*map(kind_of, arguments))
        values = [converted(self.builder, item, kind) for item, kind in zip(arguments, signature.args, strict=True)]
        return from_registers(self.builder, signature.return_type, emit(CONTEXT, self.builder, signature, values))

    def _word(self, word: Any, arguments: Sequence[Any]) -> Computed:
        values = [in_registers(self.builder, argument) for argument in arguments]
        return Computed(*WORDS[word](CONTEXT, self.builder, [kind_of(argument) for argument in arguments], values))

    def _extreme(self, function: Any, arguments: Sequence[Any]) -> Any:
        if all(map(is_known_number, arguments)):
            return function(arguments)
        found = arguments[0]
        for argument in arguments[1:]:
            x, y = self._meeting(found, argument)
            found = Computed(*numbers.extreme(self.builder, function is max, (x.kind, y.kind), (x.ir, y.ir)))
        return found

    # Tuples and arrays

    def _length(self, thing: Any) -> Any:
        if isinstance(thing, tuple):
            return len(thing)
        if not isinstance(thing, Array):
            raise ValueError(f'Expected a tuple or an array (got {thing!r})')
        return Computed(types.int64, thing.length)

    def _Subscript(self, expression: ast.Subscript) -> Any:
        return self.load_item(self.evaluate(expression.value), self.evaluate(expression.slice))

    def _Slice(self, expression: ast.Slice) -> slice:
        bounds = (None if item is None else self.evaluate(item) for item in (expression.lower, expression.upper))
        return slice(*bounds)

    def load_item(self, memory: Any, place: Any) -> Any:
        """What is at a place of a tuple, an array or a pointer."""
        if isinstance(memory, tuple):
            return memory[place]
        return Computed(memory.kind.dtype, self.builder.load(self._address(memory, place)))

    def store_item(self, memory: Computed, place: Any, thing: Any) -> None:
        """Puts a number at a place of an array or a pointer."""
        self.builder.store(converted(self.builder, thing, memory.kind.dtype), self._address(memory, place))

    def _address(self, memory: Computed, place: Any) -> ir.Value:
        wide = types.uint64 if kind_of(place) == types.uint64 else types.int64
        return self.builder.gep(memory.ir, [converted(self.builder, place, wide)])
