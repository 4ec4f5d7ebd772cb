"""Modules of a model, chosen by class or by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from torch.nn import Module

Chosen = str | type | Iterable[str | type]


class Selection:
    """What an argument chooses.

    Args:
        argument: The argument's name, for errors.
        chosen: Classes (those derived from them included), names of modules in the model, or patterns of names in which
            ``*`` stands for any text; one of them, or several.

    Example:
        >>> import torch
        >>> selection = Selection('include', ['convs.*', torch.nn.Bilinear])
        >>> selection.has('convs.0', torch.nn.Linear(2, 2)), selection.has('lin', torch.nn.Linear(2, 2))
        (True, False)
    """

    def __init__(self, argument: str, chosen: Chosen) -> None:
        self._argument = argument
        is_list = isinstance(chosen, Iterable) and not isinstance(chosen, (str, type))
        self._items = [*chosen] if is_list else [chosen]
        for item in self._items:
            if not isinstance(item, (str, type)):
                raise TypeError(
                    f"Expected '{argument}' to hold classes and names of layers (got {item!r}, a {type(item).__name__})"
                )

    def has(self, name: str, module: Module) -> bool:
        """Whether a module is chosen."""
        return any(_is_chosen(item, name, module) for item in self._items)

    def check(self, modules: dict[str, Module]) -> None:
        """Raises a ValueError that names the first item that chooses none of the modules."""
        for item in self._items:
            if not any(_is_chosen(item, name, module) for name, module in modules.items()):
                known = ', '.join(f'{name} ({type(module).__name__})' for name, module in modules.items()) or 'none'
                text = repr(item) if isinstance(item, str) else item.__name__
                raise ValueError(
                    f"Expected '{self._argument}' to choose layers of the model (got {text}; its layers are: {known})"
                )


def _is_chosen(item: str | type, name: str, module: Module) -> bool:
    return isinstance(module, item) if isinstance(item, type) else fnmatch.fnmatchcase(name, item)
