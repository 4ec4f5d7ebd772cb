"""Measuring and remembering the best mapping."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor

import pygfuse
from pygfuse import autotune
from pygfuse._lib.device_table import DeviceTable
from pygfuse.conv import GraphConv, SAGEConv
from pygfuse.mapping import records as measured
from pygfuse.mapping.choice import choose
from pygfuse.mapping.mapping import Mapping
from pygfuse.tune.autotune import _clearly_faster


@pytest.fixture(autouse=True)
def remembered(tmp_path, monkeypatch):
    # kernels stay where they are: only what is remembered goes elsewhere
    monkeypatch.setattr(DeviceTable, 'path', tmp_path / 'mappings.json')
    yield
    measured.forget()


def example():
    return Data(x=torch.randn(60, 8), edge_index=torch.randint(60, (2, 400)))


def step_times(monkeypatch, best):
    """Replaces the clock: steps under `best` take half as long."""

    def step(model, positional, named, mapping):
        model(*positional, **named)
        return 0.5 if mapping == best else 1.0

    monkeypatch.setattr('pygfuse.tune.autotune._step', step)


def test_the_best_is_remembered_and_used(monkeypatch):
    data, conv, best = example(), SAGEConv(8, 8), Mapping('edge', 1024)
    step_times(monkeypatch, best)
    tuning = autotune(conv, data, repeats=2, progress=False)
    assert tuning.best == best
    assert '<- remembered' in str(tuning).split('edge, parts of 1024')[1].split('\n')[0]
    found = []
    monkeypatch.setattr('pygfuse.cpu.edges.walked_edges.choose', lambda *call: found.append(choose(*call)) or found[-1])
    conv(data.x, data.edge_index.clone())
    assert [mapping for _, mapping in found] == [best]


def test_nothing_is_remembered_where_nothing_is_faster(monkeypatch):
    step_times(monkeypatch, None)
    tuning = autotune(SAGEConv(8, 8), example(), repeats=1, progress=False)
    assert tuning.best is None
    assert 'stays' in str(tuning)


def test_clearly_faster_means_in_most_rounds():
    assert _clearly_faster([1, 1, 1, 9], [2, 2, 2, 2], 0.03)
    assert not _clearly_faster([1, 1, 9, 9, 1], [2, 2, 2, 2, 2], 0.03)
    assert not _clearly_faster([1.99] * 4, [2.0] * 4, 0.03)


def test_model_gradients_buffers_and_random_numbers_are_as_before():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
    conv = SAGEConv(8, 8)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.conv = model, conv

        def forward(self, x, edge_index):
            return self.conv(self.first(x), edge_index)

    whole, data, state = Model(), example(), torch.get_rng_state()
    autotune(whole, data, candidates=[Mapping()], repeats=1, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert int(model[0].num_batches_tracked) == 0
    assert all(parameter.grad is None for parameter in whole.parameters())


def test_inputs_get_no_gradients():
    data = example()
    leaf, wanted = data.x.clone().requires_grad_(), []

    class Model(SAGEConv):
        def forward(self, x, edge_index):
            wanted.append([value.requires_grad for value in x])
            return super().forward(x, edge_index)

    # what is computed has its own graph, which more than one step needs
    autotune(Model(8, 8), ((leaf, 2 * leaf), data.edge_index), [Mapping()], 1, progress=False)
    assert leaf.grad is None
    assert len(wanted) > 1
    assert all(value == [True, True] for value in wanted)
    autotune(Model(8, 8), {'x': (leaf, data.x), 'edge_index': data.edge_index}, [Mapping()], 1, progress=False)
    assert leaf.grad is None
    assert wanted[-1] == [True, False]


def test_weights_of_a_sparse_adjacency_get_no_gradients():
    weight = torch.rand(3).requires_grad_()
    adjacency = torch.sparse_csr_tensor(torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 0]), weight)
    autotune(GraphConv(8, 8), (torch.randn(3, 8), adjacency), [Mapping()], 1, progress=False)
    assert weight.grad is None


@pytest.mark.skipif(not WITH_TORCH_SPARSE, reason='torch_sparse is not installed')
def test_weights_of_a_sparse_tensor_get_no_gradients():
    weight, index = torch.rand(3).requires_grad_(), torch.tensor([0, 1, 2])
    adjacency = SparseTensor(row=index, col=index, value=weight, sparse_sizes=(3, 3))
    autotune(GraphConv(8, 8), (torch.randn(3, 8), adjacency), [Mapping()], 1, progress=False)
    assert weight.grad is None
    assert adjacency.storage.value() is weight


@pytest.mark.parametrize('repeats', [0, -1])
def test_at_least_one_step_is_measured(repeats):
    with pytest.raises(ValueError, match=rf"'repeats'.*\(got {repeats}\)"):
        autotune(SAGEConv(8, 8), example(), repeats=repeats, progress=False)


def test_other_ways_to_give_data():
    data = example()
    for given in ((data.x, data.edge_index), {'x': data.x, 'edge_index': data.edge_index}):
        assert autotune(SAGEConv(8, 8), given, [Mapping()], 1, progress=False).graphs >= 1
    with pytest.raises(ValueError, match=r"'data'.*int"):
        autotune(SAGEConv(8, 8), 3)


def test_a_model_without_fused_layers_is_refused():
    with pytest.raises(ValueError, match=r"'model'.*pygfuse\.report"):
        autotune(pygfuse.unfuse(SAGEConv(8, 8)), example())
