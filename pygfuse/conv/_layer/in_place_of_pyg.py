"""What lies between a fused class and PyG's: PyG writes methods anew for its classes, and ours have their names."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from torch_geometric.nn import MessagePassing

from pygfuse._lib.written_by_pyg import function_of, is_template, original
from pygfuse.conv._layer.scripting import as_scriptable

_METHODS = ('message', 'aggregate', 'update', 'edge_update', 'message_and_aggregate')
# those that PyG writes anew for each class
_TEMPLATES = ('propagate', 'edge_updater')


class InPlaceOfPyG(MessagePassing):
    """A mixin before one of PyG's classes, that stays right in copies, pickles, scripts and for explainers."""

    # PyG's class behind the fused one
    plain: ClassVar[type[MessagePassing]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # not along the order of resolution: mixins and classes made by torch may come before the fused class
        found = [
            base for base in cls.__bases__ if not issubclass(base, InPlaceOfPyG) and issubclass(base, MessagePassing)
        ]
        if found and not hasattr(cls, 'plain'):
            cls.plain = found[0]
        if found and cls.__module__.startswith('pygfuse.conv.'):
            # PyG reads there which types a class takes
            cls.forward.__signature__ = inspect.signature(found[0].forward)

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        fuse = self.fuse
        # PyG writes them for the first layer of a class in the process, and others may run as a product
        self.fuse = self.inspector.implements('message_and_aggregate')
        super()._set_jittable_templates(raise_on_error)
        self.fuse = fuse
        # PyG takes what the class inherits for the original, also the template of a parent, which knows no masks
        kind = type(self)
        for name in _TEMPLATES:
            setattr(kind, f'_orig_{name}', original(kind, name))

    def __setstate__(self, data: dict[str, Any]) -> None:
        super().__setstate__(data)
        if self._explain or self._decomposed_layers > 1:
            # a bound method is pickled by its name, which means the template; PyG looks for calls of it in this source
            self.__dict__['propagate'] = type(self)._orig_propagate.__get__(self, MessagePassing)

    def what_is_overridden(self) -> str | None:
        """The reason, if any, for which the layer is more than PyG's class."""
        for name in _METHODS:
            if name in self.__dict__ or getattr(type(self), name) is not getattr(self.plain, name):
                return f'{name} is overridden'
        for name in _TEMPLATES:
            function = function_of(getattr(self, name))
            known = function is getattr(MessagePassing, name)
            if not known and not any(is_template(kind, function, name) for kind in (type(self), self.plain)):
                return f'{name} is overridden'
        return None

    def __prepare_scriptable__(self) -> MessagePassing:
        return as_scriptable(self)
