"""Each pass alone: what it gives is equal to what it got, and what it is for is done."""

import pytest

from pygfuse.compiler.ir.values import in_order, value
from pygfuse.compiler.passes import PASSES, optimised
from pygfuse.compiler.passes.after_sum import linear_maps_after_sums
from pygfuse.compiler.passes.contraction import contract_edge_features
from pygfuse.compiler.passes.detached import detached_first
from pygfuse.compiler.passes.no_operation import remove_no_operations
from pygfuse.compiler.passes.reordering import reorder_broadcasts
from pygfuse.compiler.passes.small_sums import small_sums_written_out
from pygfuse.compiler.passes.softmax import softmax_taken_apart
from pygfuse.compiler.passes.split_concatenation import split_concatenations
from pygfuse.compiler.passes.subexpressions import share_subexpressions
from tests.compiler.support import check, edge, on_edges, shared, source, target


def both(dim=1, features=4):
    return value('cat', (target(features), source(features), edge(3)), dim=dim)


def test_sums_with_nothing_go():
    x = value('mul', value('add', source(4), 0), 1)
    assert check(remove_no_operations, value('reshape', x, shape=(4,))).op == 'input'


def test_equal_values_are_one():
    x, y = source(4), target(4)
    output = value('add', value('relu', value('add', x, y)), value('relu', value('add', x, y)))
    found = check(share_subexpressions, output)
    assert len(in_order(found)) == 5


def test_values_drawn_at_random_stay_two():
    x = value('add', source(4), target(4))
    output = value('add', value('dropout', x, p=0.5), value('dropout', x, p=0.5))
    assert len([node for node in in_order(share_subexpressions(output)) if node.op == 'dropout']) == 2


def test_a_map_of_a_concatenation_becomes_maps_of_its_parts():
    found = check(split_concatenations, value('linear', both(), shared(5, 11)))
    assert not on_edges(found, 'cat')
    assert [node.args[0].op for node in on_edges(found, 'linear')] == ['input']


def test_a_contraction_of_a_concatenation_becomes_contractions_of_its_parts():
    weighted = value('mul', value('leaky_relu', both(), negative_slope=0.2), shared(11))
    found = check(split_concatenations, value('sum', weighted, dims=(1,), keepdim=True))
    assert not on_edges(found, 'cat')
    assert [node.width for node in on_edges(found, 'mul')] == [3]


@pytest.mark.parametrize('places', [(slice(0, 4),), (slice(2, 9),), (5,), (slice(-3, None),)])
def test_parts_of_a_concatenation(places):
    found = check(split_concatenations, value('index', both(), places=places))
    assert max((node.width for node in on_edges(found, 'cat')), default=0) < 11


def test_a_reduction_of_a_concatenation_is_one_of_its_parts():
    found = check(split_concatenations, value('reduce', both(), reduce='max'))
    assert found.op == 'cat'
    assert not on_edges(found, 'cat')


def test_a_stack_of_equal_operators_is_one_operator():
    sums = [value('add', value('add', source(4), target(4)), shared(4, name=f'bias {k}')) for k in range(2)]
    found = check(split_concatenations, value('stack', tuple(sums), dim=1))
    assert not on_edges(found, 'stack')


def test_a_map_of_a_difference_is_a_difference_of_maps():
    found = check(reorder_broadcasts, value('linear', value('sub', source(4), target(4)), shared(5, 4)))
    assert not on_edges(found, 'linear')


def test_a_map_of_nested_sums_reaches_all_terms():
    total = value('add', value('add', source(4), value('sub', target(4), source(4))), shared(4, name='bias'))
    found = check(reorder_broadcasts, value('linear', total, shared(5, 4)))
    assert not on_edges(found, 'linear')


def test_a_map_of_what_a_number_scales_is_scaled():
    found = check(reorder_broadcasts, value('linear', value('mul', edge(1), source(4)), shared(5, 4)))
    assert not on_edges(found, 'linear')


def test_a_map_of_something_nonlinear_stays():
    output = value('linear', value('relu', value('add', source(4), target(4))), shared(5, 4))
    assert reorder_broadcasts(output) is output


def test_edge_features_are_contracted_with_the_weight_first():
    mapped = value('reshape', value('linear', edge(3), shared(8, 3)), shape=(2, 4))
    found = check(contract_edge_features, value('sum', value('mul', mapped, shared(1, 2, 4)), dims=(2,), keepdim=False))
    (linear,) = on_edges(found, 'linear')
    assert linear.args[1].shape == (2, 3)


def test_a_map_of_a_map_of_edge_features_is_one():
    found = check(contract_edge_features, value('linear', value('linear', edge(3), shared(8, 3)), shared(5, 8)))
    assert len(on_edges(found, 'linear')) == 1


@pytest.mark.parametrize('reduce', ['sum', 'mean'])
def test_a_last_map_comes_after_a_sum(reduce):
    inner = value('linear', value('relu', value('add', source(4), target(4))), shared(5, 4))
    output = value('reduce', value('add', inner, shared(5, name='bias')), reduce=reduce)
    assert not on_edges(check(linear_maps_after_sums, output), 'linear')


@pytest.mark.parametrize('heads', [(), (2,)], ids=['rows', 'heads'])
@pytest.mark.parametrize('reduce', ['sum', 'mean'])
def test_the_maps_among_weighted_terms_come_after_a_sum(reduce, heads):
    mapped = value('linear', value('relu', value('add', source(4), target(4))), shared(5, 4))
    row = value('add', value('add', source(5), mapped), shared(5, name='bias'))
    row = value('reshape', row, shape=(1, 5)) if heads else row
    output = value('reduce', value('mul', row, value('softmax', edge(*heads, 1))), reduce=reduce)
    found = check(linear_maps_after_sums, output)
    assert not on_edges(found, 'linear')
    assert [node.op for node in in_order(found)].count('reduce') == 2


def test_a_map_of_what_is_brought_stays_with_the_walk():
    output = value('reduce', value('mul', value('linear', edge(4), shared(5, 4)), edge(1)), reduce='sum')
    assert linear_maps_after_sums(output) is output


def test_a_last_map_stays_before_a_maximum():
    inner = value('linear', value('relu', value('add', source(4), target(4))), shared(5, 4))
    output = value('reduce', inner, reduce='max')
    assert linear_maps_after_sums(output) is output


def test_a_softmax_taken_apart():
    score = value('add', source(2), target(2))
    output = value('reduce', value('mul', value('softmax', score), value('softmax', score)), reduce='sum')
    assert not on_edges(check(softmax_taken_apart, output), 'softmax')


def test_what_is_detached_is_computed_of_detached_values():
    score = value('sum', value('relu', value('mul', source(2, 4), edge(2, 4))), dims=(2,), keepdim=False)
    output = value('detach', value('softmax', value('detach', score)))
    found = check(detached_first, value('mul', output, value('sigmoid', edge(2))))
    assert {node.args[0].op for node in in_order(found) if node.op == 'detach'} == {'input'}


def test_dropout_that_is_detached_stays():
    output = value('detach', value('dropout', value('add', source(4), target(4)), p=0.5))
    assert detached_first(output) is output


def test_short_sums_are_written_out():
    chosen = value('softmax_of_row', value('add', source(3), target(3)), dim=1)
    weighed = value('mul', source(3, 4), value('reshape', chosen, shape=(3, 1)))
    summed = value('sum', weighed, dims=(1,), keepdim=False)
    output = value('reduce', value('linear', value('tanh', summed), shared(5, 4)), reduce='sum')
    assert not on_edges(check(small_sums_written_out, output), 'softmax_of_row', 'sum', 'linear')


def test_long_sums_stay():
    output = value('reduce', value('sum', value('mul', source(9), target(9)), dims=(1,), keepdim=True), reduce='sum')
    assert small_sums_written_out(output) is output


@pytest.mark.parametrize('name', PASSES)
def test_passes_can_be_left_out(name):
    output = value('reduce', value('relu', value('linear', both(), shared(5, 11))), reduce='sum')
    found = optimised(output, without=(name,))
    assert bool(on_edges(found, 'cat')) == (name == 'split_concatenations')


def test_naive_attention_becomes_the_expert_s():
    score = value('leaky_relu', value('linear', both(), shared(1, 11)), negative_slope=0.2)
    output = value('reduce', value('mul', value('softmax', score), source(4)), reduce='sum')
    found = optimised(output)
    # what remains on the edges has one number each, but for the weighted neighbour
    widths = {node.op: node.width for node in on_edges(found, 'add', 'leaky_relu', 'softmax', 'mul')}
    assert widths == {'add': 1, 'leaky_relu': 1, 'softmax': 1, 'mul': 4}


def test_softmaxes_of_softmaxes_are_all_taken_apart():
    inner = value('softmax', source(2))
    outer = value('softmax', value('mul', inner, target(2)))
    found = softmax_taken_apart(value('reduce', outer, reduce='sum'), [inner, outer])
    assert not any(node.op == 'softmax' for node in in_order(found))
    check(softmax_taken_apart, value('reduce', outer, reduce='sum'))
