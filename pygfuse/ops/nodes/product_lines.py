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

from pygfuse._lib.backends import launches_of, product_list_of
from pygfuse.codegen.launch_lines import Entry, LaunchLines
from pygfuse.codegen.product_list import PLACE_OF_TABLE, Matrix, ProductList, product_words, sum_words

# of a product: rows, depth and width
Sizes = tuple[str | int, str | int, str | int]


class ProductLines(LaunchLines):
    """Lines as they are written.

    Args:
        like: The name of a tensor whose type and device all matrices have.
        of: That type and device, where they are known: then products are launches like others.
    """

    def __init__(self, like: str, of: tuple[torch.dtype, torch.device] | None = None) -> None:
        super().__init__(None if of is None else launches_of(of[1]).InTurn, like, 0 if of is None else of[0].itemsize)
        self._of = of
        self._words: list[str | int] = []
        self._sizes: list[Sizes] = []

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
            (1, rows, width), Matrix(f'address_of_one({self.like})', 0, 0), of, out, addend=out if adds else None
        )

    def sum_of_blocks(self, rows: str | int, count: int, width: int, of: str, out: Matrix) -> None:
        """Writes the sum of the blocks of columns, so many of a width, that a contiguous matrix has by its name."""
        self._words += sum_words((rows, count, width), Matrix(f'{of}.data_ptr()', count * width, width), out)
        self._sizes.append((rows, count, width))

    def sum_of_two(self, rows: str | int, width: str | int, first: Matrix, second: Matrix, out: Matrix) -> None:
        """Writes the sum of two matrices, of which `out` may be one."""
        self._words += sum_words((rows, 1, width), Matrix(first.address, first.row_step, 0), out, second)
        self._sizes.append((rows, 1, width))

    def launch(self, entry: Entry) -> None:
        """Writes a launch, which runs behind the products written before."""
        self._finish_list()
        super().launch(entry)

    def wait(self) -> None:
        """Has what follows begin once the products and launches before are computed."""
        self._finish_list()
        super().wait()

    def function(self, arguments: str, result: str, names: Mapping[str, object] = MappingProxyType({})) -> Callable:
        """As of `LaunchLines`."""
        own = {'kernels_of': product_list_of, 'address_of_one': _address_of_one, 'refuse': _refuse}
        return super().function(arguments, result, {**own, **names})

    def _finish_list(self) -> None:
        """Makes the products written since the last a list."""
        if not self._words:
            return
        listed, work, like = ProductList(self._words), _work_of(self._sizes), self.like
        words, self._words, self._sizes = [*listed.head, *listed.names], [], []
        if self._of is None:
            name = self.knows(f'list_{len(self._scope)}', listed)
            given = f'{like}.dtype, {name}, ({", ".join(map(str, words))}), {work}'
            self._lines.append(f'kernels_of({like}.device).multiply_listed({given})')
            return
        dtype, device = self._of
        launch = product_list_of(device).OfList(dtype, listed)
        super().launch(Entry(launch, words, ((PLACE_OF_TABLE, 0),), work))


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
