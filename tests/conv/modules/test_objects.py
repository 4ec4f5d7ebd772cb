"""Modules whose arguments hold tensors by name: data of PyG's, and dicts."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch_geometric.data import Batch, Data

import pygfuse
from pygfuse.compiler.forms.chunked import Chunked
from tests.compiler import modules_of_objects as objects
from tests.compiler.own_modules import NODES, OF_EDGES, WIDTH
from tests.conv.modules.arguments import arguments_of, assert_same, given


def updated(**others):
    data = given()
    return Data(data['x'], data['edge_index'], **others)


def test_data_and_dicts_are_the_same_to_a_module():
    torch.manual_seed(0)
    for weighed in ({}, {'edge_weight': given()['edge_weight']}):
        data = updated(**weighed)
        for held in (data, data.to_dict()):
            assert_same(objects.Updated(), {'data': held})


def test_it_returns_the_object_that_it_was_given():
    data = updated()
    before, compiled = data.x, pygfuse.compile(objects.Updated())
    assert compiled(data) is data
    assert compiled.note.reason is None
    assert data.x is not before
    assert data.layers == 0
    assert data.edge_index is not None
    assert set(data.to_dict()) == {'x', 'edge_index', 'layers'}


def test_what_a_module_does_not_read_makes_no_other_kind_of_call():
    compiled = pygfuse.compile(objects.Updated())
    for count in range(1, 30):
        data = updated(
            y=torch.randn(count), names=['a'] * count, others=object(), edge_label_index=torch.ones(2, count)
        )
        compiled(data)
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 1


def test_batches_of_other_sizes_are_of_one_kind():
    torch.manual_seed(0)
    module = objects.Transformed()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for graphs in range(2, 8):
        one = [Data(torch.randn(9, WIDTH), torch.randint(9, (2, 40)), torch.randn(40, OF_EDGES)) for _ in range(graphs)]
        batch = Batch.from_data_list(one)
        other = batch.clone()
        torch.testing.assert_close(compiled(batch), module(other))
        assert compiled.note.reason is None
        assert set(batch.keys()) == set(other.keys())
        torch.testing.assert_close(batch.attn, other.attn)
    (plan,) = compiled.plans()
    # scores are read from memory
    assert not any(isinstance(form, Chunked) for form in plan.walks.values())


def test_a_score_that_several_sums_read_is_made_once():
    compiled = pygfuse.compile(objects.Expander(heads=1))
    compiled(**arguments_of(objects.Expander, given()))
    text = str(pygfuse.explain(compiled))
    assert 'sum_channels' not in text[text.index('\nwalk: ') :]
    (plan,) = compiled.plans()
    assert not any(isinstance(form, Chunked) for form in plan.walks.values())


def test_what_an_object_lacks_is_another_kind_of_call():
    torch.manual_seed(0)
    module = objects.Transformed()
    compiled = pygfuse.compile(copy.deepcopy(module))
    for has_features in (True, False, True, False):
        batch = arguments_of(objects.Transformed, given())['batch']
        if not has_features:
            del batch.edge_attr
        other = batch.clone()
        found, expected = compiled(batch), module(other)
        assert compiled.note.reason is None
        torch.testing.assert_close(found[0], expected[0])
        assert (found[1] is None) == (expected[1] is None) == (not has_features)
        assert set(batch.keys()) == set(other.keys())
    assert len(compiled.plans()) == 2


class Branches(torch.nn.Module):
    """What it reads of an object depends on a setting."""

    def __init__(self):
        super().__init__()
        self.is_weighed = False

    def forward(self, data):
        message = data.x[data.edge_index[0]]
        if self.is_weighed:
            message = message * data.weight.view(-1, 1)
        data.out = torch.zeros_like(data.x).index_add(0, data.edge_index[1], message)
        return data.out


def test_a_setting_that_has_it_read_more():
    module = Branches()
    compiled = pygfuse.compile(copy.deepcopy(module))
    data = updated(weight=given()['edge_weight'])
    for is_weighed in (False, True, False, True):
        module.is_weighed = compiled.is_weighed = is_weighed
        torch.testing.assert_close(compiled(data), module(data.clone()))
        assert compiled.note.reason is None
        assert data.out is not None


def test_a_name_that_is_missing_is_the_module_s_own_error():
    compiled = pygfuse.compile(Branches())
    compiled.is_weighed = True
    with pytest.raises(AttributeError, match='weight'):
        compiled(updated())


class Own(Data):
    @property
    def doubled(self):
        return self.x * 2


REFUSED = {
    'goes through its names': (lambda data: [data[key] for key in data.keys()], 'it reads keys of data'),  # noqa: SIM118
    'copies it': (lambda data: data.clone(), 'it reads clone of data'),
    'reads what its class computes': (lambda data: data.doubled, 'it reads doubled of data'),
    'asks whether it is empty': (lambda data: 1 if data else 0, 'it reads data as a whole'),
    'takes from it': (lambda data: data.__delitem__('x'), 'it reads data as a whole'),
    'stores a list': (lambda data: setattr(data, 'found', [1]), 'it stores a list'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_what_has_no_fused_form_runs_its_own_code_once(name):
    does, reason = REFUSED[name]

    class Refused(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(WIDTH)

        def forward(self, data):
            x = self.norm(data.x)
            data.out = torch.zeros_like(x).index_add(0, data.edge_index[1], x[data.edge_index[0]])
            self.does(data)
            return data.out

    Refused.does = lambda self, data: does(data)
    compiled = pygfuse.compile(Refused())
    data = given()
    held = Own(data['x'], data['edge_index'])
    for calls in (1, 2):
        compiled(held.clone())
        assert reason in compiled.note.reason
        assert compiled.norm.num_batches_tracked == calls


def test_a_method_of_a_dict_that_tells_of_all_it_holds():
    class Items(torch.nn.Module):
        def forward(self, data):
            return sum(
                torch.zeros_like(data['x']).index_add(0, data['edge_index'][1], item[data['edge_index'][0]])
                for key, item in data.items()
                if key != 'edge_index'
            )

    data = updated().to_dict()
    compiled = pygfuse.compile(Items())
    torch.testing.assert_close(compiled(data), Items()(data))
    assert compiled.note.reason == 'it calls items of data, a dict'


def test_few_edges_within_an_object(by_pyg):
    compiled = pygfuse.compile(objects.Updated())
    for _ in range(3):
        data = updated()
        expected = objects.Updated.forward(compiled, data.clone())
        torch.testing.assert_close(compiled(data).x, expected.x)
        assert 'so few edges' in compiled.note.reason
    assert compiled._few.has((updated(),), {})
    assert compiled._few.has((), {'data': updated().to_dict()})
    assert not compiled._few.has((Data(),), {})


def test_copies_know_nothing_of_what_was_read():
    compiled = pygfuse.compile(objects.Updated())
    compiled(updated())
    for copied in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert '_read' not in copied.__dict__
        torch.testing.assert_close(copied(updated()).x, compiled(updated()).x)
        assert copied.note.reason is None


def test_objects_within_tuples():
    class Pair(torch.nn.Module):
        def forward(self, pair):
            first, scale = pair
            return torch.zeros_like(first.x).index_add(0, first.edge_index[1], first.x[first.edge_index[0]]) * scale

    compiled = pygfuse.compile(Pair())
    data = updated()
    torch.testing.assert_close(compiled((data, 2.0)), Pair()((data, 2.0)))
    assert compiled.note.reason is None


def test_numbers_of_nodes_and_of_graphs():
    class Counts(torch.nn.Module):
        def forward(self, data):
            out = data.x.new_zeros(data.num_nodes, WIDTH)
            return out.index_add(0, data.edge_index[1], data.x[data.edge_index[0]]) / data.num_graphs

    compiled = pygfuse.compile(Counts())
    for nodes in (NODES, NODES + 3):
        one = Data(torch.randn(nodes, WIDTH), torch.randint(nodes, (2, 50)))
        batch = Batch.from_data_list([one, one])
        torch.testing.assert_close(compiled(batch), Counts()(batch))
        assert compiled.note.reason is None
    assert len(compiled.plans()) == 1


def test_attributes_of_data_are_none_where_it_holds_nothing():
    class Weighed(torch.nn.Module):
        def forward(self, data):
            message = data.x[data.edge_index[0]]
            if data.edge_attr is not None:
                message = message * data.edge_attr[:, :1]
            return torch.zeros_like(data.x).index_add(0, data.edge_index[1], message)

    compiled = pygfuse.compile(Weighed())
    for data in (updated(), updated(edge_attr=given()['edge_attr'])):
        torch.testing.assert_close(compiled(data), Weighed()(data))
        assert compiled.note.reason is None
