"""Group sizes in force: what walks do with them."""

import functools
import gc
import importlib
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pygfuse import Mapping, execution_paths, force_mapping, group_sizes
from pygfuse.conv import GATConv, GCNConv, SAGEConv
from pygfuse.graph.csr import Csr
from pygfuse.mapping.choice import choose
from pygfuse.mapping.group_sizes.chooser import CHOOSERS, TABLE, with_group_size
from pygfuse.mapping.mapping import forced


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    kept = {}
    monkeypatch.setattr(TABLE, 'get', kept.get)
    monkeypatch.setattr(TABLE, 'remember', kept.update)


def sizes_of_walks(monkeypatch, conv, x, edge_index):
    found = []
    monkeypatch.setattr('pygfuse.cpu.edges.walked_edges.choose', lambda *call: found.append(choose(*call)) or found[-1])
    conv(x, edge_index).sum().backward()
    return [mapping.part_work for _, mapping in found]


def example(nodes=60, edges=900):
    return torch.randn(nodes, 8, requires_grad=True), torch.randint(nodes, (2, edges))


def test_a_function_decides_for_forward_and_backward(monkeypatch):
    seen = []

    def chooser(csr, row_bytes):
        seen.append((csr.num_rows, csr.num_edges, row_bytes))
        return 77

    x, edge_index = example()
    conv = SAGEConv(8, 8)
    with group_sizes(chooser):
        assert set(sizes_of_walks(monkeypatch, conv, x, edge_index)) == {77}
        conv(x, edge_index)
    # by target and by source, once each
    assert seen == [(60, 900, 32)] * 2
    assert 77 not in sizes_of_walks(monkeypatch, conv, x, edge_index)


def test_a_forced_mapping_goes_before(monkeypatch):
    with group_sizes(lambda csr, row_bytes: 77), force_mapping(Mapping('edge', 55)):
        assert set(sizes_of_walks(monkeypatch, SAGEConv(8, 8), *example())) == {55}


def test_nothing_known_leaves_the_size(monkeypatch):
    x, edge_index = example()
    conv = SAGEConv(8, 8)
    # few edges are not cut, and nobody is asked
    monkeypatch.setattr('pygfuse.cpu.backend.is_single_part', lambda *_: False)
    monkeypatch.setattr('pygfuse.cpu.adjoint.is_single_part', lambda *_: False)
    monkeypatch.setattr('pygfuse.mapping.few_edges.MOST_BYTES', 0)
    expected = sizes_of_walks(monkeypatch, conv, x, edge_index)
    assert expected
    with group_sizes(lambda csr, row_bytes: None):
        assert sizes_of_walks(monkeypatch, conv, x, edge_index) == expected


def test_blocks_nest():
    csr = Csr(torch.tensor([0, 1]), torch.tensor([0]), None)
    with group_sizes(lambda csr, row_bytes: 5):
        with group_sizes(lambda csr, row_bytes: 6):
            assert with_group_size(Mapping(), csr, 4) == Mapping(part_work=6)
        assert with_group_size(Mapping('edge', two_pass=True), csr, 4) == Mapping('edge', 5, True)
    assert with_group_size(Mapping(), csr, 4) == Mapping()


def test_an_unknown_chooser():
    with pytest.raises(ValueError, match=r"'chooser'.*regression.*'guess'"), group_sizes('guess'):
        pass


@pytest.mark.parametrize('wrong', [12.5, 0, -3, torch.tensor(64), '64'])
def test_a_function_that_returns_no_size(wrong):
    x, edge_index = example()
    with group_sizes(lambda csr, row_bytes: wrong), pytest.raises(ValueError, match=r"'chooser' to return .*\(got "):
        SAGEConv(8, 8)(x, edge_index)


def test_a_size_may_be_of_numpy(monkeypatch):
    with group_sizes(lambda csr, row_bytes: np.int64(77)):
        assert {type(size) for size in sizes_of_walks(monkeypatch, SAGEConv(8, 8), *example())} == {int}


def test_what_functions_said_is_kept_as_long_as_they_live():
    csr, kept = Csr(torch.tensor([0, 1]), torch.tensor([0]), None), []
    for size in range(1, 20):
        chooser = functools.partial(lambda size, csr, row_bytes: size, size)
        kept.append(weakref.ref(chooser))
        with group_sizes(chooser):
            assert with_group_size(Mapping(), csr, 4) == Mapping(part_work=size)
    del chooser
    gc.collect()
    assert not any(reference() for reference in kept)
    assert not any(len(sizes) for sizes in csr.memo._values.values())


def test_a_chooser_that_cannot_be_kept_is_asked_each_time():
    class Unhashable:
        __hash__, asked = None, 0

        def __call__(self, csr, row_bytes):
            self.asked += 1
            return 40 + self.asked

    csr = Csr(torch.tensor([0, 1]), torch.tensor([0]), None)
    with group_sizes(Unhashable()):
        assert [with_group_size(Mapping(), csr, 4).part_work for _ in range(2)] == [41, 42]


@pytest.mark.parametrize('name', CHOOSERS)
def test_each_chooser_serves_forward_and_backward(name, monkeypatch):
    x, edge_index = example(300, 6000)
    conv = GCNConv(8, 8)
    expected = torch.autograd.grad(conv(x, edge_index)[:40].sum(), x)
    module, sizes = importlib.import_module(CHOOSERS[name]), []
    ask = module.group_size
    monkeypatch.setattr(module, 'group_size', lambda *given: sizes.append(ask(*given)) or sizes[-1])
    taken = []

    def chosen(*call):
        edges, mapping = choose(*call)
        if forced() is None:  # no walk of a search
            taken.append(mapping.part_work)
        return edges, mapping

    monkeypatch.setattr('pygfuse.cpu.edges.walked_edges.choose', chosen)
    with group_sizes(name):
        found = torch.autograd.grad(conv(x, edge_index)[:40].sum(), x)
    # edges by target and by source
    assert len(sizes) == 2
    assert None not in sizes
    assert set(taken) == set(sizes)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def results(conv, x, edge_index, active, size):
    with group_sizes(lambda csr, row_bytes: size), execution_paths(active < len(x)):
        out = conv(x, edge_index)
        return out.detach(), *torch.autograd.grad(out[:active].square().sum(), [x, *conv.parameters()])


@pytest.mark.parametrize('conv', [GCNConv(6, 6), SAGEConv(6, 6, aggr='max'), GATConv(6, 3, heads=2)])
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_numbers_are_the_same_for_any_size(conv, data):
    nodes = data.draw(st.integers(1, 12))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=80))
    pairs += [(node, 0) for node in range(nodes)] * data.draw(st.integers(0, 3))  # a hub
    edge_index = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).t().contiguous()
    active = data.draw(st.integers(0, nodes))
    size = data.draw(st.integers(1, 40))
    conv, x = conv.double(), torch.randn(nodes, 6, dtype=torch.double, requires_grad=True)
    expected = results(conv, x, edge_index, active, 10**9)
    for found, right in zip(results(conv, x, edge_index, active, size), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10)


def test_where_no_row_is_cut_sums_are_the_same_bits_for_any_size():
    x, edge_index = torch.randn(400, 16, requires_grad=True), torch.arange(400).repeat(5)
    edge_index = torch.stack([edge_index[torch.randperm(2000)], edge_index])
    conv = GCNConv(16, 16)

    def gradients(size):
        with group_sizes(lambda csr, row_bytes: size), execution_paths(True):
            out = conv(x, edge_index)
            return out, torch.autograd.grad(out[:50].sum(), x)[0]

    # vertex-balanced: rows of fewer than twice a part's work are whole
    expected = gradients(10**9)
    for size in (40, 100, 555):
        assert all(torch.equal(found, right) for found, right in zip(gradients(size), expected, strict=True))


def test_results_do_not_depend_on_threads():
    x, edge_index = example(50, 4000)
    edge_index[1, :1500] = 7
    conv, threads, found = GATConv(8, 8), torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            with group_sizes(lambda csr, row_bytes: 60):
                out = conv(x, edge_index)
                found.append((out, *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])))
    finally:
        torch.set_num_threads(threads)
    # parameters' gradients go on through torch's own products
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
