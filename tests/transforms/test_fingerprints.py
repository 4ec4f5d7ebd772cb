"""The fingerprints of edges."""

import pytest
import torch

from pygfuse.transforms.fingerprints import fingerprints, fits
from tests.support.parity import random_edges

EDGES = random_edges(30, 30, 90)


def test_the_order_of_edges_does_not_matter():
    found = fingerprints(EDGES, torch.tensor([30]))
    assert torch.equal(fingerprints(EDGES[:, torch.randperm(90)], torch.tensor([30])), found)
    assert found[0, :2].tolist() == [30, 90]


def test_graphs_that_stand_one_after_another_have_those_they_have_alone():
    both = torch.cat([EDGES, EDGES[:, :50] + 30], dim=1)
    alone = [fingerprints(edges, torch.tensor([30])) for edges in (EDGES, EDGES[:, :50])]
    assert torch.equal(fingerprints(both, torch.tensor([30, 30])), torch.cat(alone))


OTHERS = {
    'one edge less': (lambda: EDGES[:, 1:], 30),
    'another source': (lambda: torch.cat([EDGES[:, 1:], (EDGES[:, :1] + torch.tensor([[1], [0]])) % 30], dim=1), 30),
    'sources and targets exchanged': (lambda: EDGES.flip(0), 30),
    'a node that is not there': (lambda: torch.cat([EDGES[:, 1:], torch.tensor([[0], [30]])], dim=1), 30),
    'more nodes': (lambda: EDGES, 31),
}


@pytest.mark.parametrize('name', OTHERS)
def test_other_edges_do_not_fit(name):
    found = fingerprints(EDGES, torch.tensor([30]))
    assert fits(found, EDGES, 30)
    make, num_nodes = OTHERS[name]
    assert not fits(found, make(), num_nodes)
