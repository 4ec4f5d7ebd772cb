"""A call like the one before is looked at less: whatever changes in between is noticed all the same."""

import contextlib
import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.explain.algorithm.utils import set_masks

from pygfuse import execution_paths, force_mapping
from pygfuse._lib.modes import ablation
from pygfuse.conv import EdgeConv, FAConv, GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv, TransformerConv
from pygfuse.conv._layer.repeated import is_like, is_of_kind, kind_of
from pygfuse.hag.attach import attach
from pygfuse.transforms import find_hag
from tests.support.parity import random_edges

WIDTH, NODES, EDGES = 8, 30, 120
EDGE_INDEX = random_edges(NODES, NODES, EDGES)
LAYERS = {
    'GAT': lambda: GATConv(WIDTH, WIDTH, heads=2, edge_dim=3),
    'GATv2': lambda: GATv2Conv(WIDTH, WIDTH, edge_dim=3),
    'GCN': lambda: GCNConv(WIDTH, WIDTH),
    'GIN': lambda: GINConv(torch.nn.Linear(WIDTH, WIDTH)),
    'Graph': lambda: GraphConv(WIDTH, WIDTH),
    'SAGE': lambda: SAGEConv(WIDTH, WIDTH),
    'Transformer': lambda: TransformerConv(WIDTH, WIDTH, edge_dim=3),
}


def layer_of(name: str) -> torch.nn.Module:
    torch.manual_seed(3)
    return LAYERS[name]()


def features() -> torch.Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(5))


def given(conv) -> tuple:
    return (torch.ones(EDGES, 3),) if getattr(conv, 'edge_dim', None) else ()


def known(name: str) -> torch.nn.Module:
    """A layer whose next call, if nothing changes, is like those before."""
    conv = layer_of(name)
    for _ in range(2):
        conv(features(), EDGE_INDEX, *given(conv))
    others = {'edge_attr': given(conv)[0]} if given(conv) else {}
    kinds = [kind_of(conv, features(), EDGE_INDEX, others) for _ in range(2)]
    assert is_like(*kinds)
    assert is_again(kinds[0], conv, features(), EDGE_INDEX, others)
    return conv


def is_again(kind, conv, *call) -> bool:
    """Whether a call is of a kind, told by both ways to ask."""
    found = is_of_kind(kind, conv, *call)
    assert found == is_like(kind_of(conv, *call), kind)
    return found


def masked(conv) -> None:
    set_masks(conv, torch.linspace(0, 1, EDGES), EDGE_INDEX, apply_sigmoid=False)


def with_maximum(conv) -> None:
    conv.aggr, conv.aggr_module = 'max', pyg.aggr.MaxAggregation()


def with_message(conv) -> None:
    conv.message = lambda x_j: 2 * x_j


def with_hook(conv) -> None:
    conv.register_aggregate_forward_hook(lambda module, inputs, out: 3 * out)


def with_hooked_aggregation(conv) -> None:
    conv.aggr_module.register_forward_hook(lambda module, inputs, out: 3 * out)


def with_another_map(conv) -> None:
    torch.manual_seed(9)
    conv.lin_edge = torch.nn.Sequential(torch.nn.Linear(3, WIDTH))


CHANGES = {
    'explained': (masked, ('GIN', 'SAGE', 'GCN')),
    'hooked': (with_hook, tuple(LAYERS)),
    'hooked aggregation': (with_hooked_aggregation, tuple(LAYERS)),
    'maximum': (with_maximum, ('GIN', 'SAGE', 'Graph', 'GCN')),
    'message': (with_message, ('GIN', 'SAGE')),
    'flow': (lambda conv: setattr(conv, 'flow', 'target_to_source'), tuple(LAYERS)),
    'no loops': (lambda conv: setattr(conv, 'add_self_loops', False), ('GAT', 'GATv2', 'GCN')),
    'no norm': (lambda conv: setattr(conv, 'normalize', False), ('GCN',)),
    'slope': (lambda conv: setattr(conv, 'negative_slope', 0.9), ('GAT', 'GATv2')),
    'mean of heads': (lambda conv: setattr(conv, 'concat', False), ('GATv2', 'Transformer')),
    'bias gone': (lambda conv: setattr(conv, 'bias', None), ('GAT', 'GATv2', 'GCN')),
    'another map': (with_another_map, ('GATv2', 'Transformer')),
    'hooked map': (
        lambda conv: conv.lin_edge.register_forward_hook(lambda module, inputs, out: 2 * out),
        ('GAT', 'GATv2', 'Transformer'),
    ),
}  # fmt: skip


CASES = [(change, name) for change, (_, names) in CHANGES.items() for name in names]


@pytest.mark.parametrize(('change', 'name'), CASES)
def test_changes_of_a_layer_are_noticed(change, name):
    """After calls of one kind as before any call."""
    changed, new = known(name), layer_of(name)
    for conv in (changed, new):
        CHANGES[change][0](conv)
    x = features()
    found, expected = (conv(x, EDGE_INDEX, *given(conv)) for conv in (changed, new))
    assert torch.equal(found, expected)
    assert changed.note.reason == new.note.reason


@pytest.mark.parametrize('name', ['GIN', 'GAT'])
def test_a_patched_class_is_noticed(name, monkeypatch):
    conv = known(name)
    kind = type(conv)
    monkeypatch.setattr(kind, 'message', lambda self, **arguments: None)
    assert conv.why_not() == 'message is overridden'
    others = {'edge_attr': given(conv)[0]} if given(conv) else {}
    assert not is_again(conv.note.known.kind, conv, features(), EDGE_INDEX, others)


BLOCKS = {
    'mapping': lambda: force_mapping('edge'),
    'paths': lambda: execution_paths(True),
    'ablation': lambda: ablation(fusion=False),
    'autocast': lambda: torch.autocast('cpu', torch.bfloat16),
    'functions': lambda: torch.device('cpu'),
}


@pytest.mark.parametrize('block', BLOCKS)
@pytest.mark.parametrize('name', ['GIN', 'GAT'])
def test_nothing_is_taken_for_known_inside_a_block(name, block):
    conv = known(name)
    before = kind_of(conv, features(), EDGE_INDEX, {})
    with BLOCKS[block]():
        assert kind_of(conv, features(), EDGE_INDEX, {}) is None
        assert not is_again(before, conv, features(), EDGE_INDEX, {})


def test_other_arguments_are_another_kind():
    conv = known('GIN')
    x = features()
    for other_x, other_edges in (
        (x[:, :4], EDGE_INDEX),
        (x.double(), EDGE_INDEX),
        (x.unsqueeze(0), EDGE_INDEX),
        ((x, None), EDGE_INDEX),
        (x[:0], EDGE_INDEX),
        (x, EDGE_INDEX.int()),
    ):
        assert not is_again(conv.note.known.kind, conv, other_x, other_edges, {'size': None})
    names = [kind_of(conv, x, EDGE_INDEX, {name: x}) for name in ('x_0', 'edge_attr')]
    assert is_again(names[0], conv, x, EDGE_INDEX, {'x_0': x})
    assert not is_like(*names)
    for call in ((x.requires_grad_().as_subclass(Marked), EDGE_INDEX), (x, EDGE_INDEX.to_sparse())):
        assert kind_of(conv, *call, {'size': None}) is None
        assert not is_again(conv.note.known.kind, conv, *call, {'size': None})


@pytest.mark.parametrize('name', LAYERS)
def test_every_part_of_a_layer_is_looked_at(name):
    conv = known(name)
    others = {'edge_attr': given(conv)[0]} if given(conv) else {}
    for part, module in list(conv._modules.items()):
        before = kind_of(conv, features(), EDGE_INDEX, others)
        conv._modules[part] = copy.deepcopy(module)
        assert not is_again(before, conv, features(), EDGE_INDEX, others)


def test_tensors_that_a_layer_holds_are_not_looked_at():
    conv = known('GIN')
    before = kind_of(conv, features(), EDGE_INDEX, {})
    for held in (features(), features(), 'no tensor'):
        conv.__dict__['held'] = held
        assert is_again(before, conv, features(), EDGE_INDEX, {}) == isinstance(held, torch.Tensor)


def test_parts_of_a_network_on_edges_are_looked_at():
    conv = EdgeConv(torch.nn.Sequential(torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.ReLU()))
    for _ in range(2):
        conv(features(), EDGE_INDEX)
    before = conv.note.known.kind
    conv(features(), EDGE_INDEX)
    assert is_like(before, conv.note.known.kind)
    conv.nn[0] = copy.deepcopy(conv.nn[0])
    conv(features(), EDGE_INDEX)
    assert not is_like(before, conv.note.known.kind)


def test_edges_with_a_hag_are_looked_at():
    edge_index, conv = EDGE_INDEX.clone(), known('SAGE')
    assert kind_of(conv, features(), edge_index, {}) is not None
    attach(edge_index, find_hag(edge_index, (NODES, NODES), capacity=None, progress=False))
    assert kind_of(conv, features(), edge_index, {}) is None


class Marked(torch.Tensor):
    pass


def test_errors_come_as_before():
    conv, x = known('SAGE'), features()
    with contextlib.suppress(RuntimeError), pytest.raises(ValueError, match='edge_index'):
        conv(x, torch.tensor([[0, NODES], [0, 1]]))
    with pytest.raises(ValueError, match="Expected 'x' to have 8 features"):
        conv(x[:, :5], EDGE_INDEX)
    gat = known('GAT')
    with pytest.raises(ValueError, match='edge_attr'):
        gat(x, EDGE_INDEX, torch.ones(EDGES - 1, 3))


def test_x_0_of_another_type_is_another_kind():
    conv, x = FAConv(WIDTH), features()
    for _ in range(2):
        conv(x, x, EDGE_INDEX)
    with pytest.raises(RuntimeError, match='size of tensor'):
        conv(x, x.double()[:, :4], EDGE_INDEX)


@pytest.mark.parametrize('name', LAYERS)
def test_training_and_evaluation(name):
    """Dropout is drawn in training only."""
    conv = layer_of(name)
    if not hasattr(conv, 'dropout'):
        pytest.skip('has no dropout')
    conv.dropout, x = 0.9, features()
    for _ in range(3):
        conv(x, EDGE_INDEX, *given(conv))
    conv.eval()
    first, second = (conv(x, EDGE_INDEX, *given(conv)) for _ in range(2))
    assert torch.equal(first, second)
    conv.train()
    assert not torch.equal(conv(x, EDGE_INDEX, *given(conv)), conv(x, EDGE_INDEX, *given(conv)))
