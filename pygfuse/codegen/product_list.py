"""A list of products of matrices as words of 64 bits: how a kernel reads it, and the texts that write it.

A product is ``out = addend + bias + left @ right``. Its words: flags, rows, depth and width; of `left` the address, the
steps from row to row and from column to column; of `right` the address and the step from row to row; the address of
`bias`; of `addend`, which may be `out`, and of `out` the address and the step from row to row. Steps are counted in
numbers, and an address of 0 stands for nothing.

A kernel reads a list by its entries, two words for each of these: a place in a table, and what is added to what stands
there. So a list that is written once is made once, and of each call only what differs is put into a table.
"""

from __future__ import annotations

import array
import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# words of a product
WORDS = 14
# of a block: a counter and the number of parts, that once more, address and length of the list, the block's own
# address, and nothing
BEFORE_NUMBERS, PLACE_OF_TABLE, PLACE_OF_NOTHING = 7, 5, 6
# a flag: rows of `right` are the columns that it is read by
TURNED = 1
# a flag: the first parts of the work, their number in place of `addend`'s step, take a share of the depth each, and
# write their products to places of their own in `out`
IN_PARTS = 2
# a flag: the product is the sum of as many matrices as the depth, which `right` holds: the steps are those from one to
# the next and, in place of `left`'s, from row to row
ADDED_UP = 4


class Matrix(NamedTuple):
    """Where a matrix lies, in texts that are evaluated where the list is written.

    Attributes:
        address: The address of its first number.
        row_step, column_step: From row to row, and from column to column.
    """

    address: str | int
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
) -> tuple[str | int, ...]:
    """The words of a product, numbers or texts.

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
        (1, 'n', 'k', 'm', 'x', 'k', 1, 'w', 'k', 'b', 0, 0, 'y', 'm')
    """
    left, right = left or _NOTHING, right or _NOTHING
    is_turned = right.column_step != 1
    right_step = right.column_step if is_turned else right.row_step
    own = addend or _NOTHING
    return TURNED if is_turned else 0, *shape, *left, right.address, right_step, bias, *own[:2], *out[:2]


def sum_words(
    shape: tuple[str | int, str | int, str | int], matrices: Matrix, out: Matrix, addend: Matrix | None = None
) -> tuple[str | int, ...]:
    """The words of a sum of matrices.

    Args:
        shape: Rows, the number of matrices, and width.
        matrices: The first, with the steps from row to row and from one matrix to the next.
        out, addend: As of a product.

    Example:
        >>> sum_words(('n', 3, 4), Matrix('x', 12, 4), Matrix('y', 4))
        (4, 'n', 3, 4, 0, 12, 0, 'x', 4, 0, 0, 0, 'y', 4)
    """
    address, row_step, step = matrices
    return ADDED_UP, *shape, 0, row_step, 0, address, step, 0, *(addend or _NOTHING)[:2], *out[:2]


_NOTHING = Matrix(0, 0)


class ProductList:
    """A list whose words are numbers, and others that come with each call.

    Args:
        words: The words: numbers, and texts that stand for others.

    Attributes:
        names: The texts, each once, in the order in which what they stand for comes.
        entries: Two words for each word, the place of its number and what is added.
        may_be_dealt: Whether a product may be a sum over many rows that parts share.

    Example:
        >>> listed = ProductList(sum_words((2, 3, 'w'), Matrix('x', 'w'), Matrix('y', 'w')))
        >>> listed.names, listed.words((5, 7, 8))
        (('w', 'x', 'y'), (4, 2, 3, 5, 0, 5, 0, 7, 1, 0, 0, 0, 8, 5))
    """

    def __init__(self, words: Sequence[str | int]) -> None:
        self.names = tuple(dict.fromkeys(word for word in words if isinstance(word, str)))
        places = {name: place for place, name in enumerate(self.names, BEFORE_NUMBERS)}
        self.entries = array.array('q')
        for word in words:
            self.entries.extend((places[word], 0) if isinstance(word, str) else (PLACE_OF_NOTHING, word))
        # addresses of an array that is written to no more
        self.address, self.count = self.entries.buffer_info()[0], len(words) // WORDS
        products = [words[i : i + WORDS] for i in range(0, len(words), WORDS)]
        self.may_be_dealt = any(map(may_be_dealt, products))
        # numbers that come with a call, and those that do not behind them
        known = {word: place for place, word in enumerate(dict.fromkeys((*self.names, *words)))}
        self._pick = operator.itemgetter(*[known[word] for word in words])
        self._constants = tuple(word for word in known if not isinstance(word, str))

    @property
    def head(self) -> tuple[int, ...]:
        """What stands in a block before the numbers of a call that is one part."""
        return 0, 1, 1, self.address, self.count, 0, 0

    def words(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """The words, given what comes with a call."""
        return self._pick((*numbers, *self._constants))


def may_be_dealt(product: Sequence[str | int]) -> bool:
    """Whether a product, of which some words may not be known yet, has a left factor that is read by columns, and
    neither flags nor a bias."""
    flags, column_step, bias = product[0], product[6], product[9]
    return flags == 0 and column_step != 1 and bias == 0


def entries_of(words: Sequence[int]) -> array.array:
    """The entries of words that are all known."""
    entries = array.array('q', (PLACE_OF_NOTHING, 0)) * len(words)
    entries[1::2] = array.array('q', words)
    return entries
