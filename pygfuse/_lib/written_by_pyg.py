"""Methods that PyG writes anew for each class of layers, by a template."""

from __future__ import annotations

import types
from typing import Any

from torch_geometric.nn import MessagePassing


def function_of(method: Any) -> Any:
    """The function of a bound method; of what is none, itself."""
    # torch 2.15 traces no look for `__func__`: it finds none
    return method.__func__ if isinstance(method, types.MethodType) else method


def is_template(kind: type, function: Any, name: str) -> bool:
    """Whether PyG wrote a class's method by its template; where it cannot, it takes the method for both."""
    return getattr(kind, f'_jinja_{name}', None) is function is not getattr(kind, f'_orig_{name}')


def is_written_by_pyg(kind: type, name: str) -> bool:
    """Whether a method of a class is that of `MessagePassing`, or what PyG wrote by its template for it."""
    return original(kind, name) is original(MessagePassing, name)


def has_template_of_all(kind: type) -> bool:
    """Whether a class has the ``propagate`` that PyG wrote for `MessagePassing` itself, as no layer of it was made."""
    written = vars(MessagePassing).get('_jinja_propagate')
    return written is not None and getattr(kind, 'propagate', None) is written


def original(kind: type, name: str) -> Any:
    """The method of a class without PyG's templates."""
    for parent in kind.__mro__:
        function = vars(parent).get(name)
        if function is not None and not is_template(parent, function, name):
            return function
    # somebody made a layer of the class behind all others, which has a template since
    return getattr(MessagePassing, f'_orig_{name}')
