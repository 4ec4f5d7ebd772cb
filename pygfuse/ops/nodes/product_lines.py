"""Lines of Python, written out once for a kind of call, in which products of matrices that follow one another are one
launch.

Of few rows, a product of torch's takes most of its time before it multiplies.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from pygfuse._lib.backends import product_list_of
from pygfuse.codegen.product_list import Matrix, ProductList, product_words, sum_words

# of a product: rows, depth and width
Sizes = tuple[str | int, str | int, str | int]


class ProductLines:
    """Lines as they are written.

    Args:
        like: The name of a tensor whose type and device all matrices have.
    """

    def __init__(self, like: str) -> None:
        self._like = like
        self._lines: list[str] = []
        self._words: list[str | int] = []
        self._sizes: list[Sizes] = []
        self._scope: dict[str, object] = {}

    def say(self, line: str) -> None:
        """Writes a line, which runs behind all that was written before."""
        self._flush()
        self._lines.append(line)

    def prepare(self, line: str) -> None:
        """Writes a line that reads no result of the products before it, and runs before them."""
        self._lines.append(line)

    def expect(self, conditions: Sequence[str], *names: str) -> None:
        """Writes a check that tensors fit one another, as no kernel looks at shapes.

        Args:
            conditions: What has to be true.
            names: The tensors that an error names.
        """
        given = ', '.join(f'{name}={name}' for name in names)
        self.prepare(f'if not ({" and ".join(conditions)}): refuse({given})')

    def product(
        self,
        sizes: Sizes,
        left: Matrix | None,
        right: Matrix | None,
        out: Matrix,
        bias: str | int = 0,
        addend: Matrix | None = None,
    ) -> None:
        """Writes ``out = addend + bias + left @ right``, see `product_words`; one that reads an earlier result as
        `left` or `addend` has as many rows, and none reads one as `right` unless a line was said between.

        Args:
            sizes: Rows, depth and width.
            left, right, out, addend: The matrices.
            bias: The address of a vector.
        """
        self._words += product_words(sizes, left, right, out, bias, addend)
        self._sizes.append(sizes)

    def column_sums(self, rows: str | int, width: str | int, of: Matrix, out: Matrix, adds: bool = False) -> None:
        """Writes the sums of a matrix's columns: a product with ones."""
        self.product(
            (1, rows, width), Matrix(f'address_of_one({self._like})', 0, 0), of, out, addend=out if adds else None
        )

    def sum_of_blocks(self, rows: str | int, count: int, width: int, of: str, out: Matrix) -> None:
        """Writes the sum of the blocks of columns, so many of a width, that a contiguous matrix has by its name."""
        self._words += sum_words((rows, count, width), Matrix(f'{of}.data_ptr()', count * width, width), out)
        self._sizes.append((rows, count, width))

    def wait(self) -> None:
        """Has the products that follow begin once those before are computed."""
        self._flush()

    def function(self, arguments: str, result: str, names: Mapping[str, object] = MappingProxyType({})) -> Callable:
        """``function(arguments)``: all that was written, and what it returns.

        Args:
            arguments: The names of its arguments.
            result: What it returns, an expression.
            names: What other names stand for.
        """
        self._flush()
        text = ''.join(f'    {line}\n' for line in [*self._lines, f'return {result}'])
        own = {'kernels_of': product_list_of, 'address_of_one': _address_of_one, 'refuse': _refuse}
        scope = {**own, **self._scope, **names}
        exec(f'def function({arguments}):\n{text}', scope)
        return scope['function']

    def _flush(self) -> None:
        if self._words:
            listed, name = ProductList(self._words), f'list_{len(self._scope)}'
            self._scope[name] = listed
            block = ', '.join(map(str, [*listed.head, *listed.names]))
            like = self._like
            given = f'{like}.dtype, {name}, ({block}), {_work_of(self._sizes)}'
            self._lines.append(f'kernels_of({like}.device).multiply_listed({given})')
            self._words, self._sizes = [], []


def matrix(name: str, row_step: str | int, offset: str | int = 0) -> Matrix:
    """A tensor's memory, or what of it begins behind so many bytes."""
    address = f'{name}.data_ptr()'
    return Matrix(address if offset == 0 else f'{address} + {offset}', row_step)


def contiguous(names: Sequence[str]) -> str:
    """A line that has these tensors contiguous."""
    return f'{", ".join(names)} = {", ".join(f"{name}.contiguous()" for name in names)}'


def is_mapped_by_list(x: Tensor, *weights: Tensor) -> bool:
    """Whether products of a list take less than torch's for rows on a CPU and weights of their type.

    Args:
        x: ``[rows, in]``.
        weights: ``[out, in]`` each.
    """
    listed = product_list_of(x.device)
    if listed is None:
        return False
    return all(listed.is_faster(x.dtype, *x.shape, weight.shape[0]) for weight in weights)


def _refuse(**tensors: Tensor | None) -> None:
    shapes = ', '.join(f'{name} {list(tensor.shape)}' for name, tensor in tensors.items() if tensor is not None)
    raise ValueError(f'Expected rows and the weights and biases of linear maps to fit one another (got {shapes})')


def _work_of(sizes: Sequence[Sizes]) -> str:
    """The number of multiplications of products, each term that is met again computed once."""
    terms = Counter(tuple(sorted(map(str, each))) for each in sizes)
    return ' + '.join(' * '.join(term if count == 1 else (str(count), *term)) for term, count in terms.items())


@functools.lru_cache(maxsize=16)
def _one(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(1, dtype=dtype, device=device)


def _address_of_one(like: Tensor) -> int:
    return _one(like.dtype, like.device).data_ptr()
