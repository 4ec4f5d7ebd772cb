"""What lies between a fused class and PyG's: PyG writes methods anew for its classes, and ours have their names."""

from __future__ import annotations

import inspect
import types
from typing import Any, ClassVar

from torch_geometric.nn import MessagePassing

from pygfuse.conv._scripting import as_scriptable

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
        if found and cls.__module__.startswith(__package__):
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
            setattr(kind, f'_orig_{name}', _original(kind, name))

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


def function_of(method: Any) -> Any:
    """The function of a bound method; of what is none, itself."""
    # torch 2.15 traces no look for `__func__`: it finds none
    return method.__func__ if isinstance(method, types.MethodType) else method


def is_template(kind: type, function: Any, name: str) -> bool:
    """Whether PyG wrote a class's method by its template; where it cannot, it takes the method for both."""
    return getattr(kind, f'_jinja_{name}', None) is function is not getattr(kind, f'_orig_{name}')


def written_by_pyg(kind: type, name: str) -> bool:
    """Whether a method of a class is that of `MessagePassing`, or what PyG wrote by its template for it."""
    return _original(kind, name) is _original(MessagePassing, name)


def has_template_of_all(kind: type) -> bool:
    """Whether a class has the ``propagate`` that PyG wrote for `MessagePassing` itself, as no layer of it was made."""
    written = vars(MessagePassing).get('_jinja_propagate')
    return written is not None and getattr(kind, 'propagate', None) is written


def _original(kind: type, name: str) -> Any:
    """The method of a class without PyG's templates."""
    for parent in kind.__mro__:
        function = vars(parent).get(name)
        if function is not None and not is_template(parent, function, name):
            return function
    # somebody made a layer of the class behind all others, which has a template since
    return getattr(MessagePassing, f'_orig_{name}')
