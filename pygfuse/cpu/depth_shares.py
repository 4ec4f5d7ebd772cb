"""Sums over many rows in a list of products, dealt to the parts of the work by rows.

A weight's gradient has few rows and is a sum over many. Parts that take rows of the result would each read all that is
summed; so each takes rows of that, writes a product to a place of its own, and a second list adds these up.
"""

from __future__ import annotations

from typing import NamedTuple

from pygfuse.codegen.product_list import ADDED_UP, IN_PARTS, UNKNOWN, WORDS

Words = tuple[int, ...]


class Shares(NamedTuple):
    """How the products of a list are dealt to parts.

    Attributes:
        products: The words of each product.
        sizes: How many numbers all parts write for it; 0 for a product whose rows are dealt.
    """

    products: list[Words]
    sizes: list[int]

    @property
    def size(self) -> int:
        """How many numbers all parts write."""
        return sum(self.sizes)

    def lists(self, parts: int, address: int, item_bytes: int) -> tuple[Words, Words]:
        """The list whose products are dealt, and the list that adds up what its parts wrote.

        Args:
            parts: The number of parts.
            address: Where what they write lies.
            item_bytes: Bytes of a number.
        """
        dealt, sums = [], []
        for product, size in zip(self.products, self.sizes, strict=True):
            if size == 0:
                dealt += product
                continue
            _, rows, depth, width, *factors, _, addend, addend_step, out, out_step, _ = product
            dealt += (IN_PARTS, rows, depth, width, *factors, 0, 0, 0, address, width, UNKNOWN)
            products = 0, 0, 0, address, rows * width
            sums += (ADDED_UP, rows, parts, width, *products, 0, addend, addend_step, out, out_step, UNKNOWN)
            address += size * item_bytes
        return tuple(dealt), tuple(sums)


def shares_of(words: Words, parts: int) -> Shares | None:
    """How a list is dealt to so many parts, or None if the rows of all its products are.

    Args:
        words: The list, see `pygfuse.codegen.product_list`.
        parts: The number of parts.
    """
    products = [words[i : i + WORDS] for i in range(0, len(words), WORDS)]
    sizes = [parts * product[1] * product[3] if _is_dealt_by_depth(product, parts) else 0 for product in products]
    # these are there once the list is done
    late = {product[12] for product, size in zip(products, sizes, strict=True) if size}
    for product, size in zip(products, sizes, strict=True):
        if not size and (product[4] in late or product[10] in late):
            return None
    return Shares(products, sizes) if late else None


def _is_dealt_by_depth(product: Words, parts: int) -> bool:
    flags, rows, depth, width, _, _, column_step, _, _, bias, *_ = product
    # the left factor is read by columns; what parts write is at most half of what they read
    is_sum_over_rows = not flags and not bias and column_step != 1
    return is_sum_over_rows and 0 < 2 * parts * rows * width <= depth * (rows + width)
