"""Orders of dimensions within rows, taken last."""

import pytest
import torch

from pygfuse.compiler.ir.values import in_order, value
from pygfuse.compiler.passes.permutations import permutations_last
from pygfuse.compiler.passes.shifts import shifts_after_maps
from tests.compiler.support import check, computed, edge, on_edges, shared, source, target

ORDERS = (0, 2, 1), (0, 3, 1, 2), (0, 2, 3, 1)
SHAPES = {3: (2, 3), 4: (2, 3, 4)}


def turned(x, order=ORDERS[0]):
    return value('permute', x, dims=order)


def left(run, output):
    """The value after a pass that may leave it as it is."""
    found = run(output)
    torch.testing.assert_close(computed(found), computed(output))
    return found


def ops_of(output):
    return [node.op for node in in_order(output)]


@pytest.mark.parametrize('order', ORDERS)
def test_products_and_sums_of_all_that_is_behind(order):
    shape = SHAPES[len(order)]
    x, y = turned(source(*shape), order), turned(target(*shape), order)
    dims = tuple(range(1, len(order)))
    found = check(permutations_last, value('sum', value('mul', x, y), dims=dims, keepdim=False))
    assert 'permute' not in ops_of(found)


def test_sums_whose_rest_keeps_its_order():
    product = value('mul', turned(source(2, 3)), turned(target(2, 3)))
    for dim in (1, 2):
        found = check(permutations_last, value('sum', product, dims=(dim,), keepdim=False))
        assert 'permute' not in ops_of(found)


def test_sums_whose_rest_does_not():
    x = value('relu', turned(source(2, 3, 4), (0, 3, 1, 2)))
    x = value('add', x, turned(target(2, 3, 4), (0, 3, 1, 2)))
    for dims in ((2,), (3,), (1,)):
        left(permutations_last, value('sum', x, dims=dims, keepdim=False))
        left(permutations_last, value('sum', x, dims=dims, keepdim=True))


def test_factors_that_are_broadcast():
    product = value('mul', turned(source(2, 3)), value('reshape', edge(2), shape=(1, 2)))
    found = check(permutations_last, value('reduce', product, reduce='sum'))
    assert found.op == 'permute'
    product = value('mul', turned(source(2, 3)), value('reshape', edge(3), shape=(3, 1)))
    assert check(permutations_last, product).op == 'permute'


def test_values_of_another_order_stay():
    x, y = turned(source(3, 3)), target(3, 3)
    assert left(permutations_last, value('mul', x, y)).op == 'mul'
    others = turned(source(2, 2, 2), (0, 3, 1, 2)), turned(target(2, 2, 2), (0, 2, 3, 1))
    assert left(permutations_last, value('mul', *others)).op == 'mul'
    assert left(permutations_last, value('mul', turned(edge(2, 3)), shared(3, 2))).op == 'mul'


def test_numbers_that_are_added_to_activations():
    for op, number in (('sub', 0.7), ('add', -0.3), ('add', 1)):
        activation = value('softplus', edge(4), beta=1, threshold=20)
        mapped = value('linear', value(op, activation, number), shared(3, 4))
        found = check(shifts_after_maps, value('add', mapped, shared(3)))
        assert on_edges(found, 'linear')[0].args[0].op == 'softplus'
        assert sum(node.op == 'add' for node in in_order(found)) == 1


def test_large_numbers_are_added_first():
    mapped = value('linear', value('add', value('relu', edge(4)), 100.0), shared(3, 4))
    assert left(shifts_after_maps, mapped).args[0].op == 'add'
