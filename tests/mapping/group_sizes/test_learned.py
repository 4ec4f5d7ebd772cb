"""Group sizes by graph classification."""

import pytest
import torch
from torch_geometric.data import Batch

from pygfuse.graph.csr import Csr
from pygfuse.mapping.group_sizes import learned
from pygfuse.mapping.group_sizes.learned import SIZES, GroupSizeClassifier, group_size, numbers_of, structure_of
from pygfuse.mapping.records import Shape


def csr_of(degrees, columns=50):
    indptr = torch.tensor([0, *degrees]).cumsum(0)
    index = torch.randint(columns, (int(indptr[-1]),), generator=torch.Generator().manual_seed(0))
    return Csr(indptr, index, None)


def test_structure_of_a_whole_graph():
    data = structure_of(Csr(torch.tensor([0, 2, 2, 3]), torch.tensor([7, 4, 7]), None))
    # rows 0, 1, 2 and columns 4, 7
    assert data.edge_index.tolist() == [[4, 3, 4, 0, 0, 2], [0, 0, 2, 4, 3, 4]]
    degrees = (data.x[:, 0] * learned._SCALE).exp2() - 1
    torch.testing.assert_close(degrees, torch.tensor([2.0, 0, 1, 1, 2]))
    assert data.x[:, 1].tolist() == [1, 1, 1, 0, 0]


def test_a_sample_of_a_large_graph_is_small_and_knows_whole_degrees():
    data = structure_of(csr_of([30] * 20_000 + [100_000]))
    assert data.edge_index.shape[1] <= 2 * (learned.SAMPLED_EDGES + learned.SAMPLED_EDGES_OF_ROW)
    rows = data.x[data.x[:, 1] == 1]
    assert len(rows) > 30
    torch.testing.assert_close(rows[0, 0], torch.tensor(31.0).log2() / learned._SCALE)
    hub = structure_of(csr_of([100_000]))
    assert hub.edge_index.shape[1] == 2 * learned.SAMPLED_EDGES_OF_ROW
    torch.testing.assert_close(hub.x[0, 0], torch.tensor(100_001.0).log2() / learned._SCALE)


def test_graphs_of_a_batch_do_not_mix():
    torch.manual_seed(0)
    classifier = GroupSizeClassifier().eval()
    both = [structure_of(csr_of(degrees)) for degrees in ([3] * 40, [9, 0, 2] * 20)]
    together = classifier.readout(Batch.from_data_list(both))
    apart = [classifier.readout(Batch.from_data_list([data])) for data in both]
    torch.testing.assert_close(together, torch.cat(apart))
    numbers = torch.stack([numbers_of(Shape(40, 120, 3), 64)] * 2)
    assert classifier(together, numbers).shape == (2, len(SIZES))


@pytest.mark.parametrize('degrees', [[], [0], [1], [0] * 5, [5000], [2] * 3000])
def test_any_graph_gets_a_size(degrees):
    assert group_size(csr_of(degrees), 64) in SIZES


def test_large_graphs_get_larger_groups_than_small_ones():
    assert group_size(csr_of([12] * 60_000, 60_000), 256) > group_size(csr_of([4] * 3_000, 3_000), 256)


def test_training_reduces_what_is_lost():
    # groups of 128 for graphs of few edges, of 4096 for those of many
    torch.manual_seed(0)
    structures = [structure_of(csr_of([degree] * 60)) for degree in (2, 3, 20, 24)]
    wanted = torch.tensor([2, 2, 7, 7])
    numbers = torch.stack([numbers_of(Shape(60, 60, 1), 64)] * 4)
    classifier, batch = GroupSizeClassifier(), Batch.from_data_list(structures)
    optimizer = torch.optim.Adam(classifier.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(classifier(classifier.readout(batch), numbers), wanted)
        loss.backward()
        optimizer.step()
    assert classifier(classifier.readout(batch), numbers).argmax(1).tolist() == wanted.tolist()


def test_choosing_draws_no_random_numbers_and_runs_within_autocast():
    learned._classifier.cache_clear()
    state, csr = torch.get_rng_state(), csr_of([4] * 300)
    size = group_size(csr, 64)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        assert group_size(csr, 64) == size
    assert torch.equal(torch.get_rng_state(), state)


def test_the_default_type_of_torch_does_not_matter():
    csr = csr_of([4] * 300)
    learned._classifier.cache_clear()
    size, data, numbers = group_size(csr, 64), structure_of(csr), numbers_of(Shape.of(csr), 64)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert group_size(csr, 64) == size
        torch.testing.assert_close(structure_of(csr).x, data.x, rtol=0, atol=0)
        torch.testing.assert_close(numbers_of(Shape.of(csr), 64), numbers, rtol=0, atol=0)
        learned._classifier.cache_clear()
        assert group_size(csr, 64) == size
    finally:
        torch.set_default_dtype(before)
    assert group_size(csr, 64) == size
