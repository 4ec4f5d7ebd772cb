"""What layers have in common that the compiler captures: the plans of their calls, which no copy takes along."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from torch.nn import Module

from pygfuse.compiler import Plan
from pygfuse.conv._compiled.plans import Plans
from pygfuse.conv._layer.noted import Noted


class Planned(Noted):
    """A mixin before a class of modules, whose calls run by plans.

    Attributes:
        plain: The class behind the compiled one.
        compiled: The compiled form of a class.
        is_captured_whole: Whether what is captured is the ``forward`` of that class.
    """

    plain: ClassVar[type[Module]]
    compiled: ClassVar[Callable[[type[Module]], type]]
    is_captured_whole: ClassVar[bool] = False
    _plans: Plans | None = None
    # attributes that follow from calls, which copies make anew
    _of_calls: ClassVar[tuple[str, ...]] = ('_plans',)

    @property
    def was_captured(self) -> bool:
        """Whether any call has been captured, or refused."""
        return bool(self._plans)

    def plans(self) -> list[Plan]:
        """The plans that calls of this layer have made."""
        return [plan for known in (self._plans or {}).values() for _, plan in known if isinstance(plan, Plan)]

    def forget_plans(self) -> None:
        """Forgets what was captured: copies of a layer of the class behind this one would take it for theirs."""
        for name in self._of_calls:
            self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in self._of_calls}

    def __reduce_ex__(self, protocol: Any) -> Any:
        kind = type(self)
        # a class that its module has by its name is found again by that
        if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind:
            return super().__reduce_ex__(protocol)
        return _blank, (type(self).compiled, self.plain), self.__getstate__()


def _blank(compiled: Callable[[type[Module]], type], plain: type[Module]) -> Planned:
    """A compiled layer without anything in it, for copies and pickles."""
    kind = compiled(plain)
    return kind.__new__(kind)
