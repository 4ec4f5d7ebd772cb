"""Sums over many rows in a list of products, dealt to the parts of the work by rows.

A weight's gradient has few rows and is a sum over many. Parts that take rows of the result would each read all that is
summed; so each takes rows of that, writes a product to a place of its own, and a second list adds these up.
"""

from __future__ import annotations

from typing import NamedTuple

from pygfuse.codegen.product_list import ADDED_UP, IN_PARTS, WORDS, may_be_dealt

Words = tuple[int, ...]


class Shares(NamedTuple):
    """How the products of a list are dealt to parts.

    Attributes:
        products: The words of each product.
        shares: Among how many parts its depth is dealt; 0 for a product whose rows are dealt.
    """

    products: list[Words]
    shares: list[int]

    @property
    def size(self) -> int:
        """How many numbers all parts write."""
        return sum(share * product[1] * product[3] for product, share in zip(self.products, self.shares, strict=True))

    def lists(self, address: int, item_bytes: int) -> tuple[Words, Words]:
        """The list whose products are dealt, and the list that adds up what its parts wrote.

        Args:
            address: Where what they write lies.
            item_bytes: Bytes of a number.
        """
        dealt, sums = [], []
        for product, shares in zip(self.products, self.shares, strict=True):
            if shares == 0:
                dealt += product
                continue
            _, rows, depth, width, *factors, _, addend, addend_step, out, out_step = product
            dealt += (IN_PARTS, rows, depth, width, *factors, 0, 0, shares, address, width)
            products = 0, width, 0, address, rows * width
            sums += (ADDED_UP, rows, shares, width, *products, 0, addend, addend_step, out, out_step)
            address += shares * rows * width * item_bytes
        return tuple(dealt), tuple(sums)


def shares_of(words: Words, parts: int) -> Shares | None:
    """How a list is dealt to so many parts, or None if the rows of all its products are.

    Args:
        words: The list, see `pygfuse.codegen.product_list`.
        parts: The number of parts.
    """
    products = [words[i : i + WORDS] for i in range(0, len(words), WORDS)]
    all_shares = [_shares_of_depth(product, parts) for product in products]
    # these are there once the list is done
    late = {product[12] for product, shares in zip(products, all_shares, strict=True) if shares}
    for product, shares in zip(products, all_shares, strict=True):
        if not shares and (product[4] in late or product[10] in late):
            return None
    return Shares(products, all_shares) if late else None


def _shares_of_depth(product: Words, parts: int) -> int:
    _, rows, depth, width, *_ = product
    if not may_be_dealt(product) or not rows * width:
        return 0
    # what parts write is at most half of what they read
    shares = min(parts, depth * (rows + width) // (2 * rows * width))
    return shares if shares > 1 else 0
