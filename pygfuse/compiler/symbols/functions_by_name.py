"""What functions of torch do to the dimensions of a value, by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pygfuse.compiler.ir.operations import OPERATIONS

# functions that take no dimension, and compute a row of a row
ALIKE = {
    'clone', 'contiguous', 'detach', 'double', 'dropout', 'embedding', 'float', 'full_like', 'is_contiguous',
    'is_floating_point', 'layer_norm', 'linear', 'ones_like', 'to', 'type', 'type_as', 'zeros_like',
}  # fmt: skip
ELEMENTWISE = {name for name, operation in OPERATIONS.items() if operation.elementwise and name != 'prelu'} | {
    'absolute', 'bitwise_and', 'bitwise_not', 'bitwise_or', 'clamp_max', 'clamp_min', 'clip', 'divide', 'greater',
    'greater_equal', 'hardtanh', 'less', 'less_equal', 'log_sigmoid', 'multiply', 'negative', 'not_equal', 'rsub',
    'subtract', 'true_divide',
}  # fmt: skip
# functions that take a dimension, or several: where, by which name, and which by default
OF_DIMENSIONS: dict[str, tuple[int, str, Any]] = {
    **dict.fromkeys(('sum', 'mean', 'amax', 'amin', 'max', 'min', 'softmax', 'log_softmax'), (1, 'dim', None)),
    **dict.fromkeys(('cumsum', 'cumprod'), (1, 'dim', None)),
    **dict.fromkeys(('squeeze', 'select', 'narrow', 'index_select', 'index_add', 'unflatten'), (1, 'dim', None)),
    **dict.fromkeys(('scatter_add', 'scatter_reduce'), (1, 'dim', None)),
    **dict.fromkeys(('cat', 'concat', 'concatenate', 'unbind'), (1, 'dim', 0)),
    **dict.fromkeys(('split', 'chunk'), (2, 'dim', 0)),
    **dict.fromkeys(('norm', 'vector_norm', 'linalg_vector_norm'), (2, 'dim', None)),
    **dict.fromkeys(('normalize', 'cosine_similarity'), (2, 'dim', 1)),
    'cross': (2, 'dim', None),
    'linalg_cross': (2, 'dim', -1),
}
# of these the result has one dimension more
BETWEEN = {'unsqueeze': (1, 'dim', None), 'stack': (1, 'dim', 0)}
# names of NumPy's that torch's functions take, too
_OF_NUMPY = {'axis': 'dim', 'keepdims': 'keepdim'}
# torch's names of first arguments, and of those behind them
_FIRST, _SECOND = ('condition', 'input', 'tensors', 'tensor'), ('other', 'mat2', 'exponent')


def as_handlers_take(function: Callable, args: tuple, kwargs: Mapping[str, Any] | None) -> tuple[tuple, dict[str, Any]]:
    """Arguments of a function of torch as handlers take them: the first ones by their places, others by torch's names.

    Example:
        >>> import torch
        >>> as_handlers_take(torch.sum, (), {'input': 1, 'axis': 1})
        ((1,), {'dim': 1})
    """
    if not kwargs:
        return args, {}
    named = {_OF_NUMPY.get(name, name): value for name, value in kwargs.items()}
    for name in _FIRST:
        if name in named:
            args = (*args, named.pop(name))
    before = 2 if function.__name__ == 'where' else 1
    if len(args) == before and 'mat1' not in named:
        for name in _SECOND:
            if name in named:
                args = (*args, named.pop(name))
    return args, named
