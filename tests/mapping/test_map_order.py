"""The estimate by which a linear map comes before a sum over edges or after it."""

from pygfuse.mapping.map_order import AGGREGATE_FIRST, MAP_FIRST, MappedSum, cheaper, cost

SQUARE = MappedSum(10_000, 10_000, 400_000, 64, 64, 4, True, True, False)


def test_narrower_rows_are_walked():
    for width, mapped_width, expected in ((512, 64, MAP_FIRST), (64, 512, AGGREGATE_FIRST)):
        work = SQUARE._replace(width=width, mapped_width=mapped_width)
        assert cheaper(work, MAP_FIRST) == cheaper(work, AGGREGATE_FIRST) == expected


def test_equal_widths_stay_as_they_are():
    for usual in (MAP_FIRST, AGGREGATE_FIRST):
        assert cheaper(SQUARE, usual) == usual


def test_without_a_gradient_of_features_only_mapped_rows_are_walked_back():
    first = SQUARE._replace(trains_x=False)
    assert cheaper(first, MAP_FIRST) == AGGREGATE_FIRST
    assert cheaper(first._replace(width=96), MAP_FIRST) == AGGREGATE_FIRST
    assert cheaper(first._replace(width=256), AGGREGATE_FIRST) == MAP_FIRST
    # forward alone there is one walk in any case
    forward = first._replace(trains_map=False)
    assert cheaper(forward, MAP_FIRST) == MAP_FIRST
    assert cheaper(forward._replace(width=96), AGGREGATE_FIRST) == MAP_FIRST


def test_gradients_of_edge_weights_walk_back_in_any_case():
    work = SQUARE._replace(trains_x=False, width=120)
    assert cheaper(work, MAP_FIRST) == AGGREGATE_FIRST
    assert cost(work._replace(trains_edges=True), AGGREGATE_FIRST) > 1.5 * cost(work, AGGREGATE_FIRST)


def test_few_targets_of_many_sources_are_mapped_afterwards():
    work = SQUARE._replace(num_sources=200_000, num_targets=1_000, num_edges=30_000, width=128)
    assert cheaper(work, AGGREGATE_FIRST) == AGGREGATE_FIRST
    assert cheaper(work._replace(num_sources=1_000), AGGREGATE_FIRST) == MAP_FIRST


def test_little_work_stays_as_it_is():
    work = SQUARE._replace(num_sources=50, num_targets=50, num_edges=100, width=512)
    assert cheaper(work, AGGREGATE_FIRST) == AGGREGATE_FIRST
