"""What is broken in what layers do with rows of nodes around their walks."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

HEADS = 'tests/ops/nodes/test_head_products.py'
DIRECTIONS = 'tests/ops/nodes/test_directions.py'

OF_ROWS_OF_NODES = (
    # dots of heads
    Mutation(
        'the second vector of heads',
        'cpu/nodes/head_products.py',
        'of_row = of_row + second_row * grad',
        'of_row = of_row - second_row * grad',
        HEADS,
    ),
    Mutation(
        'the sum of the second vector of heads',
        'cpu/nodes/head_products.py',
        'second_sum = second_sum + row * grad',
        'second_sum = row * grad',
        HEADS,
    ),
    Mutation(
        'the gradient of features behind dots',
        'cpu/nodes/head_products.py',
        'of_row = of_row + load_row(begun, v * width + channel)',
        'of_row = load_row(begun, v * width + channel)',
        HEADS,
    ),
    # rows of length one
    Mutation(
        'a step along a row of length one',
        'cpu/nodes/directions.py',
        'grad = (grad - row * sum_channels(grad * row)) / lengths[v]',
        'grad = grad / lengths[v]',
        DIRECTIONS,
    ),
    Mutation(
        'rows too short to have a direction',
        'cpu/nodes/directions.py',
        'grad = grad / least',
        'grad = (grad - row * sum_channels(grad * row)) / least',
        DIRECTIONS,
    ),
    Mutation(
        'what else reads rows with directions',
        'cpu/nodes/directions.py',
        'grad = grad + load_row(begun, v * width)',
        'grad = grad + 0.0',
        DIRECTIONS,
    ),
    Mutation(
        'long sums over heads',
        'cpu/nodes/head_products.py',
        '_ROWS = 256',
        '_ROWS = 2**30',
        HEADS,
    ),
)
