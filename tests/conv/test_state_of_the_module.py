"""Layers as models come to have them: copied, loaded, hooked, parametrized, wrapped, changed after construction.

Whatever is done to a layer of PyG's and to the fused one, both compute the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch.distributed.fsdp import fully_shard
from torch.nn import Module
from torch.nn.utils import parametrize, prune
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.explain.metric import fidelity
from torch_geometric.nn import MessagePassing

import pygfuse
from pygfuse.ops.nodes.linear import apply_linear
from tests.support import cases as table
from tests.support.cases import CHANNELS, EDGE_DIM, FEATURES, HEADS, LAYERS, Layer
from tests.support.parity import GRAPHS
from tests.support.scripts import run_text
from tests.support.states import (
    REPLACED,
    STATES,
    WEIGHTS,
    MessagePassingMixin,
    Mixin,
    Noisy,
    OwnTensor,
    maps,
    of_another_tensor,
    own_class,
    parametrized,
    places,
    plain_linear,
    through_a_file,
)

RANDOM = GRAPHS['random']()
GAT = Layer('GATConv', table.ATTENTION, aggregations=table.SUMS)
GAT_EDGES = Layer('GATConv', {**table.ATTENTION, 'edge_dim': EDGE_DIM}, 'edge_attr', EDGE_DIM)
EVERY = (GAT, GAT_EDGES, *LAYERS)
# each kind of edge input, of map and of reduction once; the others say the same for longer
FAST = (GAT_EDGES, table.GCN_WEIGHTS, table.SAGE, table.GINE_EDGES, table.CG_EDGES)
every = pytest.mark.parametrize(
    'layer',
    [layer if layer in FAST else pytest.param(layer, marks=pytest.mark.slow) for layer in EVERY],
    ids=str,
)


def found_by(conv: Module, inputs: dict[str, Any]) -> list[torch.Tensor | None]:
    """The output and the gradients of inputs and parameters."""
    torch.manual_seed(1)
    inputs = {name: value.detach().clone().requires_grad_() for name, value in inputs.items()}
    out = conv(edge_index=RANDOM.edge_index, **inputs)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    wanted = [*inputs.values(), *(p for p in conv.parameters() if p.requires_grad)]
    return [out, *torch.autograd.grad((out * weights).sum(), wanted, allow_unused=True)]


def check(layer: Layer, change: Callable[[Module], Module | None], **options: Any) -> Module:
    """Parity of the layer after a change, which may give another module; returns the fused layer."""
    inputs, found = layer.inputs(RANDOM, dtype=torch.float64), []
    for conv in layer.pair(torch.float64, **options):
        torch.manual_seed(2)
        changed = change(conv)
        conv = conv if changed is None else changed
        found.append(found_by(conv, inputs))
    for got, expected in zip(found[1], found[0], strict=True):
        assert (got is None) == (expected is None)
        if got is not None:
            torch.testing.assert_close(got, expected)
    return conv


def reason_of(layer: Any) -> str | None:
    """Why a fused layer's last call ran PyG's path; None for PyG's own."""
    return layer.note.reason if hasattr(layer, 'note') else None


def fused_part(model: Module) -> Any:
    return next(module for module in model.modules() if hasattr(module, 'note'))


# Copies and modes


@every
@pytest.mark.parametrize('state', STATES)
def test_states_that_run_fused(state, layer):
    assert fused_part(check(layer, STATES[state])).note.reason is None


@every
def test_lazy_layers_fused_before_their_first_call(layer):
    if layer.in_channels is None or not layer.lazy:
        pytest.skip('has no lazy form')
    inputs, found = layer.inputs(RANDOM), []
    # PyG's GMMConv finds the width in the first argument without a name
    arguments = [inputs['x'], RANDOM.edge_index, *([] if layer.edge is None else [inputs[layer.edge]])]
    for prepare in (lambda conv: conv, pygfuse.fuse):
        torch.manual_seed(0)
        conv = prepare(layer.parity.pyg(**{**layer.options, layer.in_channels: -1}))
        found.append((conv(*arguments), found_by(conv, inputs)[0]))
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)
    assert conv.note.reason is None


# What PyG writes into classes: templates of `propagate`, and the original that an explainer takes


ORIGINS: dict[str, Callable[[Module], Module]] = {
    'fused': pygfuse.fuse,
    'a copy': lambda conv: copy.deepcopy(pygfuse.fuse(conv)),
    'from a file': lambda conv: through_a_file(pygfuse.fuse(conv)),
    'there and back': lambda conv: pygfuse.fuse(copy.deepcopy(pygfuse.unfuse(copy.deepcopy(pygfuse.fuse(conv))))),
    'a subclass': lambda conv: own_class(pygfuse.fuse(conv)),
    'a mixin before': lambda conv: own_class(pygfuse.fuse(conv), Mixin),
    "a mixin of PyG's class before": lambda conv: own_class(pygfuse.fuse(conv), MessagePassingMixin),
    "of PyG's after all": lambda conv: pygfuse.unfuse(copy.deepcopy(pygfuse.fuse(conv))),
}


def masked(conv: Module, inputs: dict[str, Any], copied: Callable[[Module], Module] = lambda conv: conv) -> Any:
    """The output under a random mask of edges, after a copy."""
    mask = torch.rand(RANDOM.num_edges, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    set_masks(conv, mask, RANDOM.edge_index, apply_sigmoid=False)
    return copied(conv)(edge_index=RANDOM.edge_index, **inputs)


@every
@pytest.mark.parametrize('origin', ORIGINS)
def test_masks_of_an_explainer(origin, layer):
    inputs = layer.inputs(RANDOM, dtype=torch.float64)
    pyg, fused = layer.pair(torch.float64)
    conv = ORIGINS[origin](copy.deepcopy(pyg))
    before, expected = pyg(edge_index=RANDOM.edge_index, **inputs), masked(pyg, inputs)
    assert not torch.allclose(before, expected)
    for layer_of_ours in (conv, fused):
        torch.testing.assert_close(layer_of_ours(edge_index=RANDOM.edge_index, **inputs), before)
        assert reason_of(layer_of_ours) is None
        for copied in (lambda conv: conv, copy.deepcopy, through_a_file):
            if type(layer_of_ours).__name__.startswith('Own') and copied is through_a_file:
                continue  # classes made here cannot be pickled
            if copied is through_a_file and not hasattr(layer_of_ours, 'note'):
                continue  # PyG's own forgets its masks
            torch.testing.assert_close(masked(layer_of_ours, inputs, copied), expected)
        clear_masks(layer_of_ours)
        torch.testing.assert_close(layer_of_ours(edge_index=RANDOM.edge_index, **inputs), before)
        assert reason_of(layer_of_ours) is None
    torch.testing.assert_close(masked(copy.deepcopy(pyg), inputs), expected)


IN_ANY_ORDER = """
import copy, sys
import torch, torch_geometric.nn as pyg
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
import pygfuse

makers = {
    'GATConv': lambda nn: nn.GATConv(4, 4), 'SAGEConv': lambda nn: nn.SAGEConv(4, 4),
    'GINConv': lambda nn: nn.GINConv(torch.nn.Linear(4, 4)), 'GATv2Conv': lambda nn: nn.GATv2Conv(4, 4),
}
steps = {
    'P': lambda make: make(pyg), 'F': lambda make: make(pygfuse.conv), 'S': lambda make: pygfuse.fuse(make(pyg)),
    'C': lambda make: copy.deepcopy(pygfuse.fuse(make(pyg))), 'U': lambda make: pygfuse.unfuse(make(pygfuse.conv)),
}
x, edge_index = torch.randn(6, 4), torch.randint(6, (2, 20))
for make in makers.values():
    made = [steps[step](make) for step in sys.argv[1]]
    for _ in range(2):
        for conv in made:
            for other in made:
                other.load_state_dict(conv.state_dict())
            plain = conv(x, edge_index)
            set_masks(conv, torch.full((20,), 0.5), edge_index, apply_sigmoid=False)
            conv.found = conv(x, edge_index)
            assert not torch.allclose(conv.found, plain), type(conv)
            torch.testing.assert_close(conv.found, made[0].found)
            clear_masks(conv)
            torch.testing.assert_close(conv(x, edge_index), plain)
"""


@pytest.mark.parametrize('steps', ['FPSC', 'SCFP', 'CUPF', 'UPCF'])
def test_classes_stay_right_in_any_order(steps, tmp_path):
    done = run_text(tmp_path, IN_ANY_ORDER, steps)
    assert done.returncode == 0, done.stderr


class Net(Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.first, self.last = kind(FEATURES, 8), kind(8, 3)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize(
    'kind', [pyg.GATConv, pyg.GCNConv, pyg.SAGEConv, pyg.GATv2Conv], ids=lambda kind: kind.__name__
)
def test_an_explainer_explains_the_same(kind):
    torch.manual_seed(0)
    model, found = Net(kind), []
    for net in (model, copy.deepcopy(pygfuse.fuse(copy.deepcopy(model)))):
        torch.manual_seed(0)
        explainer = Explainer(
            net,
            GNNExplainer(epochs=5),
            explanation_type='model',
            node_mask_type='attributes',
            edge_mask_type='object',
            model_config={'mode': 'multiclass_classification', 'task_level': 'node', 'return_type': 'raw'},
        )
        explanation = explainer(RANDOM.x(FEATURES), RANDOM.edge_index)
        found.append((explanation.node_mask, explanation.edge_mask, *fidelity(explainer, explanation)))
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)
    net(RANDOM.x(FEATURES), RANDOM.edge_index)
    assert net.first.note.reason is None


# Other classes than the fused one


class Louder:
    """A mixin that overrides a method of PyG's."""

    def message(self, *arguments, **named):
        return 2 * super().message(*arguments, **named)


class LouderMessagePassing(MessagePassing):
    """The same of PyG's base class."""

    def message(self, x_j):
        return 2 * x_j


def test_a_mixin_that_overrides_the_message_is_not_overruled():
    class Loud(Louder, pygfuse.conv.SAGEConv):
        def message(self, x_j):
            return super().message(x_j)

    class LoudByClass(LouderMessagePassing, pygfuse.conv.SAGEConv):
        pass

    class OfPyG(pyg.SAGEConv):
        def message(self, x_j):
            return 2 * x_j

    class LoudAfter(pygfuse.conv.SAGEConv, OfPyG):
        pass

    plain = OfPyG(FEATURES, 3)
    x = RANDOM.x(FEATURES)
    for kind in (Loud, LoudByClass, LoudAfter):
        conv = kind(FEATURES, 3)
        conv.load_state_dict(plain.state_dict())
        torch.testing.assert_close(conv(x, RANDOM.edge_index), plain(x, RANDOM.edge_index))
        assert conv.note.reason == 'message is overridden'
        assert pygfuse.report(conv).rows[0].why_not == 'message is overridden'


def test_a_propagate_of_ones_own_is_not_overruled():
    class Own(pygfuse.conv.SAGEConv):
        def propagate(self, edge_index, size=None, **named):
            return 2 * super().propagate(edge_index, size=size, **named)

    class OfPyG(pyg.SAGEConv):
        def propagate(self, edge_index, size=None, **named):
            return 2 * super().propagate(edge_index, size=size, **named)

    plain, conv, x = OfPyG(FEATURES, 3), Own(FEATURES, 3), RANDOM.x(FEATURES)
    conv.load_state_dict(plain.state_dict())
    expected = plain(x, RANDOM.edge_index)
    for twin in (conv, copy.deepcopy(conv)):
        torch.testing.assert_close(twin(x, RANDOM.edge_index), expected)
        assert twin.note.reason == 'propagate is overridden'
    patched = pygfuse.conv.SAGEConv(FEATURES, 3)
    patched.load_state_dict(plain.state_dict())
    propagate = patched.propagate
    patched.propagate = lambda *given, **named: 2 * propagate(*given, **named)
    torch.testing.assert_close(patched(x, RANDOM.edge_index), expected)
    assert patched.note.reason == 'propagate is overridden'


@pytest.fixture
def one_process():
    torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield torch.distributed.device_mesh.init_device_mesh('cpu', (1,))
    torch.distributed.destroy_process_group()


@every
def test_fully_sharded(layer, one_process):
    if any(parameter.dim() == 0 for parameter in layer.fused().parameters()):
        pytest.skip('torch shards no scalars')
    inputs, found = layer.inputs(RANDOM, dtype=torch.float64), []
    pyg, fused = layer.pair(torch.float64)
    fully_shard(fused, mesh=one_process)
    for conv in (pyg, fused):
        out = conv(edge_index=RANDOM.edge_index, **inputs)
        out.square().sum().backward()
        grads = [parameter.grad for parameter in conv.parameters()]
        found.append([out, *(grad.full_tensor() if hasattr(grad, 'full_tensor') else grad for grad in grads)])
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)
    assert fused.note.reason is None


# Parametrizations


class Counted(Module):
    """The identity, which counts how often it is evaluated."""

    def __init__(self, counts: dict[str, int], name: str) -> None:
        super().__init__()
        self.counts, self.name = counts, name

    def forward(self, x):
        self.counts[self.name] = self.counts.get(self.name, 0) + 1
        return x.clone()


@every
@pytest.mark.parametrize('training', [True, False])
def test_each_parameter_is_evaluated_as_often_as_by_pyg(training, layer):
    found = []
    for conv in layer.pair():
        counts: dict[str, int] = {}
        parametrized(conv.train(training), lambda name, counts=counts: Counted(counts, name))
        counts.clear()  # registration evaluates
        conv(edge_index=RANDOM.edge_index, **layer.inputs(RANDOM))
        found.append(counts)
    assert found[0]
    assert found[1] == found[0]
    if layer.name not in ('EdgeConv', 'NNConv'):
        assert conv.note.reason is None


@every
def test_random_parametrizations_draw_as_in_pyg(layer):
    check(layer, lambda conv: parametrized(conv, lambda name: Noisy()))


@every
@pytest.mark.parametrize('kind', WEIGHTS)
@pytest.mark.filterwarnings('ignore:.*weight_norm')
def test_weights_that_are_computed(kind, layer):
    def change(conv: Module) -> None:
        for _, module, name in list(places(conv)):
            parameter = getattr(module, name)
            if parameter.dim() == 2 and module is not conv:
                WEIGHTS[kind](module, name)

    check(layer, change)


@every
def test_pruned_parameters_of_the_layer_itself(layer):
    names = [name for name, _ in layer.fused().named_parameters(recurse=False) if name != 'eps']
    if not names:
        pytest.skip('has none')

    def change(conv: Module) -> None:
        for name in names:
            prune.random_unstructured(conv, name, 0.4)

    assert check(layer, change).note.reason is None


# Maps that were replaced


RUN_FUSED = ('with a bias', 'without a bias')


@every
@pytest.mark.parametrize('kind', REPLACED)
def test_maps_that_were_replaced(kind, layer):
    for name in maps(layer.fused()):
        conv = check(layer, lambda conv, name=name: setattr(conv, name, REPLACED[kind](getattr(conv, name))))
        if kind in RUN_FUSED:
            assert conv.note.reason is None
        elif conv.note.reason is not None:
            assert name in conv.note.reason


@every
@pytest.mark.parametrize('kind', RUN_FUSED)
def test_all_maps_replaced_at_once(kind, layer):
    def change(conv: Module) -> None:
        for name in maps(conv):
            setattr(conv, name, REPLACED[kind](getattr(conv, name)))

    assert check(layer, change).note.reason is None


@pytest.mark.parametrize('kind', ['an adapter', 'a sequence'])
@pytest.mark.parametrize(
    'layer', [GAT, table.GATV2, table.TRANSFORMER, table.GCN, table.SAGE, table.GRAPH, table.FA, table.GATED], ids=str
)
def test_maps_that_need_not_be_taken_apart_are_called(kind, layer):
    for name in maps(layer.fused()):
        conv = check(layer, lambda conv, name=name: setattr(conv, name, REPLACED[kind](getattr(conv, name))))
        assert conv.note.reason is None


@pytest.mark.parametrize('aggr', ['add', 'max'])
@pytest.mark.parametrize(
    ('layer', 'names'),
    [
        (table.GCN, ['lin']),
        (table.SAGE, ['lin_l', 'lin_r']),
        (table.GRAPH, ['lin_rel', 'lin_root']),
        (table.GATED, ['lin_key', 'lin_query', 'lin_value', 'lin_skip']),
    ],
    ids=str,
)
def test_identities_for_maps(layer, names, aggr):
    def change(conv: Module) -> None:
        for name in names:
            setattr(conv, name, torch.nn.Identity())

    options = {'out_channels': FEATURES, 'aggr': aggr}
    assert check(layer, change, **options).note.reason is None


def test_a_map_of_another_width():
    conv = check(table.GCN, lambda conv: setattr(conv, 'lin', torch.nn.Linear(FEATURES, 5).double()), bias=False)
    assert conv.note.reason is None
    conv = check(
        table.GCN,
        lambda conv: setattr(conv, 'lin', torch.nn.Linear(FEATURES, FEATURES).double()),
        in_channels=FEATURES + 3,
    )
    assert conv.note.reason is None


def test_edge_features_of_another_width_than_announced():
    for layer in (GAT_EDGES, table.GATV2_EDGES, table.TRANSFORMER_EDGES, table.GINE_EDGES):
        other = Layer(layer.name, layer.options, 'edge_attr', 5)
        name = 'lin' if layer.name == 'GINEConv' else 'lin_edge'

        def change(conv: Module, name: str = name) -> None:
            torch.manual_seed(3)
            setattr(conv, name, torch.nn.Linear(5, getattr(conv, name).weight.shape[0]).double())

        assert check(other, change).note.reason is None


@pytest.mark.parametrize('loops', [True, False])
@pytest.mark.parametrize('options', [{'fill_value': 'add'}, {'fill_value': 0.5}], ids=str)
@pytest.mark.parametrize('layer', [GAT_EDGES, table.GATV2_EDGES], ids=str)
def test_the_bias_of_edges_reaches_self_loops(layer, options, loops):
    def change(conv: Module) -> None:
        conv.lin_edge = plain_linear(conv.lin_edge, True)

    assert check(layer, change, add_self_loops=loops, **options).note.reason is None


def test_the_bias_of_edges_without_reorganisation():
    def change(conv: Module) -> None:
        conv.lin_edge = plain_linear(conv.lin_edge, True)

    with pygfuse.ablation(reorganisation=False):
        assert check(GAT_EDGES, change).note.reason == 'lin_edge has a bias'


def test_a_hook_on_the_activation_is_called():
    def change(conv: Module) -> None:
        conv.act.register_forward_hook(lambda module, given, out: 2 * out)

    conv = check(table.GATED, change, act=torch.nn.Sigmoid())  # the default one is the same in all layers
    assert conv.note.reason == 'a hook is registered on act'


def test_an_aggregation_with_a_forward_of_its_own():
    def change(conv: Module) -> None:
        forward = conv.aggr_module.forward
        conv.aggr_module.forward = lambda *given, **named: 2 * forward(*given, **named)

    assert check(table.SAGE, change).note.reason == 'forward of aggr_module is overridden'


def test_a_linear_map_of_another_class_of_tensors_is_called(monkeypatch):
    monkeypatch.setattr('pygfuse.ops.nodes.linear.LEAST_BYTES', 0)
    module = of_another_tensor(torch.nn.Linear(3, 2))
    assert type(apply_linear(module, torch.randn(9, 3))) is OwnTensor


def evaluations(conv: Module, *given: Any) -> list[torch.Tensor]:
    """The buffers of spectral norms after a call, which iterates them for each evaluation of a weight."""
    torch.manual_seed(4)
    for name in maps(conv):
        WEIGHTS['spectral_norm'](getattr(conv, name), 'weight')
    conv(*given)
    return list(conv.buffers())


@pytest.mark.parametrize('case', ['without edges', 'a pair of one tensor'])
def test_weights_are_evaluated_as_often_as_in_pyg(case):
    x, edge_index, edge_attr = torch.randn(30, FEATURES), torch.randint(30, (2, 50)), torch.randn(50, EDGE_DIM)
    given = ((x, x), edge_index, edge_attr)
    if case == 'without edges':
        given = (x, edge_index[:, :0], edge_attr[:0])
    expected, found = (evaluations(conv, *given) for conv in GAT_EDGES.pair(torch.float32, add_self_loops=False))
    assert len(found) > 0
    for buffer, right in zip(found, expected, strict=True):
        torch.testing.assert_close(buffer, right)


@pytest.mark.parametrize('layer', [table.GIN, table.GINE], ids=str)
def test_a_learned_number_is_read_only_with_targets(layer):
    """Each read of it draws: what the network draws after it would be others."""
    found = []
    for conv in layer.pair(torch.float64, train_eps=True):
        parametrize.register_parametrization(conv, 'eps', Noisy())
        parametrize.register_parametrization(conv.nn[0], 'weight', Noisy())
        given = {name: value.double() for name, value in layer.inputs(RANDOM).items()}
        torch.manual_seed(3)
        x = given.pop('x')
        found.append(conv((x, None), RANDOM.edge_index, **given, size=(len(x), len(x))))
    torch.testing.assert_close(found[1], found[0])


def test_a_copy_of_an_unfused_layer_has_plans_of_its_own():
    conv = pygfuse.fuse(pyg.GATConv(FEATURES, 4, aggr='max', add_self_loops=False), compile=True)
    x, edge_index = torch.randn(30, FEATURES), torch.randint(30, (2, 50))
    expected = conv(x, edge_index)
    again = pygfuse.fuse(copy.deepcopy(pygfuse.unfuse(conv)), compile=True)
    torch.testing.assert_close(again(x, edge_index), expected)


# Attributes that were changed

CHANGED = [
    (GAT, {'concat': False, 'bias': None}),
    (GAT, {'negative_slope': 0.7, 'add_self_loops': False}),
    (GAT, {'heads': 1, 'out_channels': HEADS * CHANNELS, 'att_src': None, 'att_dst': None}),
    (GAT_EDGES, {'fill_value': 'max'}),
    (table.GATV2, {'concat': False, 'bias': None, 'negative_slope': 0.7}),
    (table.GATV2, {'add_self_loops': False, 'share_weights': True}),
    (table.TRANSFORMER, {'root_weight': False}),
    (table.GCN, {'improved': True, 'add_self_loops': False}),
    (table.GCN, {'normalize': False}),
    (table.GCN, {'cached': True}),
    (table.SAGE, {'normalize': True, 'root_weight': False}),
    (table.SAGE, {'project': True}),
    (table.GIN, {'eps': 0.25}),
    (table.FA, {'eps': 0.0, 'add_self_loops': False}),
    (table.AGNN, {'add_self_loops': False}),
    (table.GATED, {'root_weight': False, 'act': torch.nn.Tanh()}),
    (table.GMM, {'root': None}),
    *[(layer, {'flow': 'target_to_source'}) for layer in EVERY],
    *[(layer, {'aggr': 'mean', 'aggr_module': pyg.aggr.MeanAggregation()}) for layer in EVERY],
    *[(layer, {'aggr': 'min'}) for layer in EVERY],
    *[(layer, {'fuse': False}) for layer in EVERY],
]


@pytest.mark.parametrize(('layer', 'attributes'), CHANGED, ids=str)
def test_attributes_changed_after_construction(layer, attributes):
    def change(conv: Module) -> None:
        for name, value in attributes.items():
            if name in ('att_src', 'att_dst'):
                value = torch.nn.Parameter(getattr(conv, name).detach().view(1, 1, -1))
            if name == 'eps' and layer.name == 'GINConv':
                conv.eps.data.fill_(value)
            else:
                setattr(conv, name, copy.deepcopy(value))

    conv = check(layer, change)
    assert (conv.note.reason is None) == (list(attributes) != ['aggr'])


@pytest.mark.parametrize('node_dim', [-1, -2, 0])
@pytest.mark.parametrize('layer', [table.SAGE, table.GCN, table.GIN, table.GMM, table.CG, table.EDGE_CONV], ids=str)
def test_another_dimension_of_nodes(layer, node_dim):
    inputs, found = layer.inputs(RANDOM), []
    for conv in layer.pair():
        conv.node_dim = node_dim
        try:
            found.append(conv(edge_index=RANDOM.edge_index, **inputs))
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            found.append(type(error))
    if isinstance(found[0], type):
        assert isinstance(found[1], type)
    else:
        torch.testing.assert_close(found[1], found[0])
