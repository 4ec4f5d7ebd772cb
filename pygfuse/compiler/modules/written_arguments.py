"""Arguments of a module that it writes into: tensors of the caller, who sees what was written."""

from __future__ import annotations

from collections.abc import Mapping

from pygfuse.compiler.symbols.symbol import Symbol


class WrittenArguments:
    """What a capture notes of them.

    Args:
        arguments: The symbols of all arguments by name.

    Attributes:
        symbols: Those that are written into, by name.
    """

    def __init__(self, arguments: Mapping[str, Symbol]) -> None:
        self._names = {id(symbol): name for name, symbol in arguments.items()}
        self.symbols: dict[str, Symbol] = {}

    def forbid(self, symbol: Symbol) -> None:
        """Notes that something may lie in the memory of an argument, if the symbol is one."""
        self._names.pop(id(symbol), None)

    def may_write(self, symbol: Symbol) -> bool:
        """Whether a symbol is an argument with a row for each node or edge, which is written into; notes that it is."""
        name = self._names.get(id(symbol))
        if name is None or symbol.rows is None or symbol.is_stacked:
            return False
        self.symbols[name] = symbol
        return True
