"""Statements: variables, branches, loops, and what a function returns."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types

from pygfuse.cpu.translation.expressions import Builder, Expressions
from pygfuse.cpu.translation.functions import Function
from pygfuse.cpu.translation.values import Computed, kind_of, load, merged, new_slot, store
from pygfuse.cpu.vectors import numbers


class Statements(Expressions):
    """One call of a function: its statements are written where the builder is.

    Args:
        builder: Writes LLVM's instructions.
        function: What is called.
        arguments: One for each parameter.
    """

    def __init__(self, builder: Builder, function: Function, arguments: Sequence[Any]) -> None:
        super().__init__(builder, function.names)
        if len(arguments) != len(function.parameters):
            raise ValueError(f'Expected {len(function.parameters)} arguments of {function.name} (got {len(arguments)})')
        self.function = function
        self.returned: list[tuple[ir.Block, Any]] = []
        # where `continue` and `break` of the loops around a statement go
        self._loops: list[tuple[ir.Block, ir.Block]] = []
        self.end = builder.append_basic_block(f'end_of_{function.name}')
        for name, argument in zip(function.parameters, arguments, strict=True):
            if name in function.assigned:
                self._assign_name(name, argument)
            else:
                self.variables[name] = argument

    def run(self) -> Any:
        """Writes the whole function, and returns what it does."""
        self._block(self.function.syntax.body)
        if not self.builder.block.is_terminated:
            self._return(None)
        self.builder.position_at_end(self.end)
        return merged(self.builder, self.returned)

    def call(self, function: Function, arguments: Sequence[Any]) -> Any:
        return translate_call(self.builder, function, arguments)

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self.builder.block.is_terminated:
                return
            try:
                getattr(self, f'_{type(statement).__name__}', self._refuse)(statement)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                if isinstance(error, TranslationError):
                    raise
                raise TranslationError(self._place(statement), error) from error

    def _place(self, statement: ast.stmt) -> str:
        line = self.function.line + statement.lineno - 1
        return f'{self.function.file}:{line}: {ast.unparse(statement).splitlines()[0]}'

    def _refuse(self, statement: ast.stmt) -> None:
        raise ValueError(f'a kernel has no {type(statement).__name__}')

    def _Pass(self, statement: ast.Pass) -> None:
        pass

    def _Expr(self, statement: ast.Expr) -> None:
        if not isinstance(statement.value, ast.Constant):  # a docstring
            self.evaluate(statement.value)

    # Variables

    def _Assign(self, statement: ast.Assign) -> None:
        value = self.evaluate(statement.value)
        for target in statement.targets:
            self._assign(target, value)

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self._assign_name(target.id, value)
        elif isinstance(target, ast.Tuple):
            for item, own in zip(target.elts, value, strict=True):
                self._assign(item, own)
        elif isinstance(target, ast.Subscript):
            self.store_item(self.evaluate(target.value), self.evaluate(target.slice), value)
        else:
            raise ValueError(f'a kernel has no assignment to {ast.unparse(target)!r}')

    def _assign_name(self, name: str, value: Any) -> None:
        if name == '_':
            return
        if name not in self.slots:
            self.slots[name] = new_slot(self.builder, value)
        store(self.builder, self.slots[name], value)

    def _AugAssign(self, statement: ast.AugAssign) -> None:
        target = statement.target
        if isinstance(target, ast.Name):
            before = self.evaluate(ast.Name(target.id, ast.Load()))
            self._assign_name(target.id, self.binary(type(statement.op), before, self.evaluate(statement.value)))
            return
        assert isinstance(target, ast.Subscript)
        array, place = self.evaluate(target.value), self.evaluate(target.slice)
        before = self.load_item(array, place)
        self.store_item(array, place, self.binary(type(statement.op), before, self.evaluate(statement.value)))

    # Branches

    def _If(self, statement: ast.If) -> None:
        condition = self.condition(statement.test)
        if isinstance(condition, bool):
            self._block(statement.body if condition else statement.orelse)
            return
        then, otherwise, end = (self.builder.append_basic_block(name) for name in ('then', 'else', 'end_if'))
        self.builder.cbranch(condition, then, otherwise)
        for block, statements in ((then, statement.body), (otherwise, statement.orelse)):
            self.builder.position_at_end(block)
            self._block(statements)
            self._branch(end)
        self.builder.position_at_end(end)

    def _branch(self, block: ir.Block) -> None:
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    # Loops

    def _For(self, statement: ast.For) -> None:
        call = statement.iter
        if not isinstance(call, ast.Call) or self.evaluate(call.func) is not range:
            self._for_each(statement)
            return
        start, stop, step = _range(*(self.evaluate(argument) for argument in call.args))
        kind = numbers.common_kind(
            [kind_of(thing) for thing in (start, stop) if isinstance(thing, Computed)] or [types.int64]
        )
        counter = new_slot(self.builder, Computed(kind, None))
        store(self.builder, counter, start)
        stop = self.cast(stop, kind)
        within = ast.Gt if not isinstance(step, Computed) and step < 0 else ast.Lt

        def goes_on() -> ir.Value:
            return numbers.compare(self.builder, within, (kind, kind), (load(self.builder, counter).ir, stop.ir))

        def advance() -> None:
            store(self.builder, counter, self.binary(ast.Add, load(self.builder, counter), self.cast(step, kind)))

        def body() -> None:
            self._assign(statement.target, load(self.builder, counter))
            self._block(statement.body)

        self._loop(goes_on, body, advance)

    def _for_each(self, statement: ast.For) -> None:
        """A loop over a tuple: its statements are written for each item."""
        items = self.evaluate(statement.iter)
        if not isinstance(items, tuple):
            raise ValueError(f'a kernel has loops over a range or a tuple only (got {items!r})')
        for item in items:
            self._assign(statement.target, item)
            self._block(statement.body)

    def _While(self, statement: ast.While) -> None:
        self._loop(
            lambda: self.as_bit(self.condition(statement.test)), lambda: self._block(statement.body), lambda: None
        )

    def _loop(self, goes_on: Callable[[], ir.Value], body: Callable[[], None], advance: Callable[[], None]) -> None:
        head, inside, next_, end = (
            self.builder.append_basic_block(name) for name in ('loop', 'body', 'next', 'end_loop')
        )
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(goes_on(), inside, end)
        self.builder.position_at_end(inside)
        self._loops.append((next_, end))
        body()
        self._loops.pop()
        self._branch(next_)
        self.builder.position_at_end(next_)
        advance()
        self.builder.branch(head)
        self.builder.position_at_end(end)

    def _Continue(self, statement: ast.Continue) -> None:
        self.builder.branch(self._loops[-1][0])

    def _Break(self, statement: ast.Break) -> None:
        self.builder.branch(self._loops[-1][1])

    # Results

    def _Return(self, statement: ast.Return) -> None:
        self._return(None if statement.value is None else self.evaluate(statement.value))

    def _return(self, value: Any) -> None:
        self.returned.append((self.builder.block, value))
        self.builder.branch(self.end)


class TranslationError(ValueError):
    """What a kernel's body does is not in the subset of Python that is translated."""

    def __init__(self, place: str, reason: Exception) -> None:
        super().__init__(f'{place}\n{reason}')


def _range(*bounds: Any) -> tuple[Any, Any, Any]:
    if len(bounds) == 1:
        return 0, bounds[0], 1
    return (*bounds, 1) if len(bounds) == 2 else bounds


def translate_call(builder: Builder, function: Function, arguments: Sequence[Any]) -> Any:
    """Writes a function's code where the builder is, and returns what it returns."""
    before = set() if function.fuses_products else set(map(id, builder.instructions()))
    found = Statements(builder, function, arguments).run()
    if not function.fuses_products:
        builder.exact |= set(map(id, builder.instructions())) - before
    return found
