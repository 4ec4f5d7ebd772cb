"""A list of products of matrices as words of 64 bits: how a kernel reads it, and the texts that write it.

A product is ``out = addend + bias + left @ right``. Its words: flags, rows, depth and width; of `left` the address, the
steps from row to row and from column to column; of `right` the address and the step from row to row; the address of
`bias`; of `addend`, which may be `out`, and of `out` the address and the step from row to row; and whether `right` is
finite, which the kernel writes there once it had to know. Steps are counted in numbers, and an address of 0 stands for
nothing.
"""

from __future__ import annotations

from typing import NamedTuple

# words of a product
WORDS = 15
# a flag: rows of `right` are the columns that it is read by
TURNED = 1
# a flag: the first parts of the work, their number in place of `addend`'s step, take a share of the depth each, and
# write their products to places of their own in `out`
IN_PARTS = 2
# a flag: `right` is what so many parts as the depth wrote, and their sum is the product
ADDED_UP = 4
# whether all numbers of `right` are finite
UNKNOWN, FINITE, NOT_FINITE = 0, 1, 2


class Matrix(NamedTuple):
    """Where a matrix lies, in texts that are evaluated where the list is written.

    Attributes:
        address: The address of its first number.
        row_step, column_step: From row to row, and from column to column.
    """

    address: str
    row_step: str | int
    column_step: str | int = 1

    @property
    def turned(self) -> Matrix:
        """The transpose."""
        return Matrix(self.address, self.column_step, self.row_step)


def product_words(
    shape: tuple[str | int, str | int, str | int],
    left: Matrix | None,
    right: Matrix | None,
    out: Matrix,
    bias: str | int = 0,
    addend: Matrix | None = None,
) -> str:
    """The text of a product's words, separated by commas.

    Args:
        shape: Rows, depth and width.
        left: ``[rows, depth]``; with `right` None where the depth is 0.
        right: ``[depth, width]``, of which rows or columns lie side by side.
        out: ``[rows, width]``, rows side by side.
        bias: The address of ``[width]``, or 0.
        addend: As `out`.

    Example:
        >>> x, weight, out = Matrix('x', 'k'), Matrix('w', 'k').turned, Matrix('y', 'm')
        >>> product_words(('n', 'k', 'm'), x, weight, out, bias='b')
        '1, n, k, m, x, k, 1, w, k, b, 0, 0, y, m, 0'
    """
    left, right = left or _NOTHING, right or _NOTHING
    is_turned = right.column_step != 1
    right_step = right.column_step if is_turned else right.row_step
    own = addend or _NOTHING
    words = [TURNED if is_turned else 0, *shape, *left, right.address, right_step, bias, *own[:2], *out[:2], UNKNOWN]
    return ', '.join(map(str, words))


_NOTHING = Matrix('0', 0)
