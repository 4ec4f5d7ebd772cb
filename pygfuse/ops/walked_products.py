"""Features of edges times a weight as walks on a device take them, and the gradients of their parts.

Values of heads ``[edges, H]`` exist only during a walk. Channels are formed within it; on a device whose walks form
them edge by edge and where they are no wider than the features, so that the user holds a larger tensor, they exist
during a walk, as one matrix product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pygfuse._lib.backends import forms_products_by_chunks
from pygfuse.ops.nodes.large_products import product as product_of
from pygfuse.ops.nodes.large_products import product_over_rows
from pygfuse.program.products import Product
from pygfuse.program.program import EdgeProgram
from pygfuse.program.trace import CHANNELS


def is_formed(program: EdgeProgram, name: str, product: Product) -> bool:
    """Whether a walk takes a product multiplied out: heads, numbers, and rows that are no wider than the features."""
    features, weight = product.features, product.weight
    if program.operands[name].level != CHANNELS:
        return True
    return not forms_products_by_chunks(features.device.type) and features.shape[1] >= weight.shape[1]


def as_walked(program: EdgeProgram, name: str, product: Product, forms: bool = False) -> Tensor | Product:
    """A product as a walk takes it: as it is, with its features and those of loops in one, or multiplied out.

    Args:
        program: The program.
        name: The operand that it is of.
        product: The product.
        forms: Whether it is multiplied out in any case.
    """
    if not forms and not is_formed(program, name, product):
        return in_parts(product)
    features, weight, loops = product
    if loops is None:
        return product_of(features, weight)
    if features.shape[1] > weight.shape[1]:
        # the narrower rows are copied
        return torch.cat([product_of(features, weight), product_of(loops, weight)])
    return product_of(torch.cat([features, loops]), weight)


def in_parts(product: Product) -> Product:
    """The features and the weight of a product that walks multiply, contiguous."""
    features, weight, loops = product
    if loops is not None and not forms_products_by_chunks(features.device.type):
        features, loops = torch.cat([features, loops]), None
    return Product(features.contiguous(), weight.contiguous(), None if loops is None else loops.contiguous())


def rows_in(value: Tensor | Product) -> int:
    """How many rows an operand has, those of loops too."""
    if isinstance(value, Product):
        return len(value.features) + (0 if value.loops is None else len(value.loops))
    return len(value)


def gradient_of(product: Product, found: Tensor | Product, needed: Product) -> Product:
    """The gradients of a product's parts, from what a walk gave for `as_walked`.

    Args:
        product: The product.
        found: The gradient of its values, or of its features (None if nobody needs it) and its weight.
        needed: Which parts need a gradient; the others have None.
    """
    if isinstance(found, Product):
        of_features, of_weight, of_loops = found
        if product.loops is not None and of_loops is None and of_features is not None:
            # copies: the gradients of an operator's arguments may not share memory
            of_features, of_loops = (part.clone() for part in of_features.tensor_split([len(product.features)]))
    else:
        of_edges, of_own = found.tensor_split([len(product.features)])
        turned = product.weight.t()
        of_features = product_of(of_edges, turned) if needed.features else None
        of_loops = product_of(of_own, turned) if needed.loops else None
        of_weight = _gradient_of_weight(product, found) if needed.weight else None
    found = Product(of_features, of_weight, of_loops)
    return Product(*(part if is_needed else None for part, is_needed in zip(found, needed, strict=True)))


def _gradient_of_weight(product: Product, grad: Tensor) -> Tensor:
    rows = product.features.shape[0]
    found = product_over_rows(product.features, grad[:rows])
    return found if product.loops is None else found + product_over_rows(product.loops, grad[rows:])
