"""The functions that are translated: their syntax trees, and what the names in them stand for."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import inspect
import textwrap
from collections import ChainMap
from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True, eq=False)
class Function:
    """A function that translated code calls: its code takes the place of each call.

    Attributes:
        name: Its name.
        syntax: Its syntax tree.
        names: What names that are not its own stand for.
        file, line: Where its syntax tree begins.
        fuses_products: Whether a product and a sum may become one instruction.
    """

    name: str
    syntax: ast.FunctionDef
    names: Mapping[str, object]
    file: str
    line: int
    fuses_products: bool = True

    @functools.cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(argument.arg for argument in self.syntax.args.args)

    @functools.cached_property
    def assigned(self) -> frozenset[str]:
        """The names that it assigns to."""
        found = (node for node in ast.walk(self.syntax) if isinstance(node, ast.Name))
        return frozenset(node.id for node in found if isinstance(node.ctx, ast.Store))


def inlined(function: Callable, fuses_products: bool = True) -> Function:
    """A function of translated code, from its source.

    Args:
        function: A plain function in the subset of Python that is translated.
        fuses_products: Whether a product and a sum may become one instruction.

    Raises:
        ValueError: If its source was changed since this process read it.
    """
    code = function.__code__
    syntax = _definition(textwrap.dedent(inspect.getsource(function)))
    parameters = tuple(argument.arg for argument in syntax.args.args)
    if (syntax.name, parameters) != (function.__name__, code.co_varnames[: code.co_argcount]):
        raise ValueError(
            f'Expected the source of {function.__name__!r} (got that of {syntax.name!r}): '
            f'{code.co_filename} was changed since this process read it'
        )
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    names = ChainMap(dict(zip(code.co_freevars, cells, strict=True)), function.__globals__, vars(builtins))
    return Function(function.__name__, syntax, names, code.co_filename, code.co_firstlineno, fuses_products)


def of_text(text: str, names: Mapping[str, object]) -> Function:
    """A function of translated code, from its text.

    Args:
        text: A definition.
        names: What the names in it stand for, beside Python's own.
    """
    syntax = _definition(text)
    return Function(syntax.name, syntax, ChainMap({**names}, vars(builtins)), f'<{syntax.name}>', 1)


@functools.lru_cache(maxsize=1024)
def _definition(text: str) -> ast.FunctionDef:
    found = ast.parse(text).body[0]
    if not isinstance(found, ast.FunctionDef):
        raise ValueError(f"Expected 'text' to be a function's definition (got {text.splitlines()[0]!r})")
    return found
