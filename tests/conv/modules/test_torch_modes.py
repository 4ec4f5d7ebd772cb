"""Such modules where torch copies, compiles, scripts or casts them."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import pygfuse
from tests.compiler import modules_of_objects as objects
from tests.compiler import own_modules as own
from tests.compiler.own_modules import NODES
from tests.conv.modules.arguments import MODULES, arguments_of, assert_same_in_traces, given


def test_copies_pickles_and_swaps():
    module, arguments = own.Mean(), arguments_of(own.Mean, given())
    expected = module(**arguments)
    model = torch.nn.ModuleList([module, torch.nn.Linear(2, 2)])
    assert pygfuse.fuse(model, include=own.Mean) is model
    assert isinstance(module, own.Mean)
    assert repr(module) == repr(own.Mean())
    torch.testing.assert_close(module(**arguments), expected)
    assert 'walk' in str(pygfuse.explain(module)) or 'network' in str(pygfuse.explain(module))
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert copied.note.reason is None
        assert not copied.was_captured
        torch.testing.assert_close(copied(**arguments), expected)
        assert copied.was_captured
    (row,) = pygfuse.report(model)
    assert (row.layer, row.why_not) == ('0', None)
    assert type(pygfuse.unfuse(model)[0]) is own.Mean
    assert '_plans' not in vars(module)


def test_blocks_that_are_compiled_themselves_are_captured_with_what_holds_them():
    torch.manual_seed(0)
    module, arguments = own.WithinOthers(), arguments_of(own.WithinOthers, given())
    expected = module(**arguments)
    pygfuse.fuse(module, include=[own.Mean, own.WithinOthers])
    torch.testing.assert_close(module(**arguments), expected)
    assert module.note.reason is None
    assert not module.blocks[0].was_captured


@pytest.mark.parametrize('kind', [tuple, list])
def test_rows_of_edges_within_torch_compile(kind):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, compiled = own.Scores(), pygfuse.compile(own.Scores())
    compiled.load_state_dict(module.state_dict())
    traced = torch.compile(compiled, backend='aot_eager', fullgraph=True)
    for seed, edges in ((0, 200), (1, 210), (2, 220)):
        arguments = arguments_of(own.Scores, given(seed, edges=edges))
        expected = module(**arguments)
        torch.testing.assert_close(traced(**{**arguments, 'edge_index': kind(arguments['edge_index'])}), expected)
        assert compiled.note.reason is None


def test_a_hook_within_is_called():
    module, arguments = own.Mean(), arguments_of(own.Mean, given())
    compiled, seen = pygfuse.compile(copy.deepcopy(module)), []
    compiled(**arguments)
    compiled.mlp.register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert seen == [1]
    assert 'a hook is registered' in compiled.note.reason


@pytest.mark.parametrize('kind', [own.Equivariant, own.Recurrent, own.Scores, own.Degrees], ids=lambda k: k.__name__)
def test_autocast_gives_the_types_of_its_own_code(kind):
    torch.manual_seed(0)
    module, arguments = kind(), arguments_of(kind, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    with torch.autocast('cpu', torch.bfloat16):
        theirs, ours = module(**arguments), compiled(**arguments)
    for found, wanted in zip(*(out if isinstance(out, tuple) else (out,) for out in (ours, theirs)), strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, atol=0.1, rtol=0.1)


NOT_TRACED = {
    own.Attention: 'torch compiles',  # its edges are within a tuple
    objects.Expander: 'torch compiles',  # an object holds them
    objects.Transformed: 'torch compiles',
    objects.Updated: 'torch compiles',
    own.Recurrent: 'torch compiles no norm_of_nodes',
    own.Guarded: 'torch compiles no norm_of_nodes',
}


FAST = own.Interaction, own.States, own.Mean


@pytest.mark.parametrize(
    'kind', [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in MODULES]
)
def test_within_torch_compile(kind):
    torch.manual_seed(0)
    assert_same_in_traces(kind(), arguments_of(kind, given()), NOT_TRACED.get(kind), fullgraph=True)


class OfEdges(torch.nn.Module):
    """Nothing tells how many nodes there are."""

    def forward(self, edge_attr, edge_index):
        return edge_attr.new_zeros(NODES, edge_attr.shape[1]).index_add(0, edge_index[1], edge_attr)


def test_a_module_of_edges_alone():
    torch._dynamo.reset()
    arguments = {name: given()[name] for name in ('edge_attr', 'edge_index')}
    module, compiled = OfEdges(), pygfuse.compile(OfEdges())
    for run in (compiled, torch.compile(compiled, backend='aot_eager', fullgraph=True)):
        torch.testing.assert_close(run(**arguments), module(**arguments))
    assert compiled.note.reason == 'torch compiles'


def test_a_trace_of_several_sizes():
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, traces = own.Normalised(), torch._dynamo.testing.CompileCounter()
    traced = torch.compile(pygfuse.compile(copy.deepcopy(module)), backend=traces, fullgraph=True)
    for nodes in (30, 40, 50, 60, 70):
        arguments = arguments_of(own.Normalised, given(nodes=nodes, edges=3 * nodes))
        torch.testing.assert_close(traced(**arguments), module(**arguments))
    assert traces.frame_count <= 3


def test_torch_scripts_its_own_code():
    module, arguments = own.Scores(), arguments_of(own.Scores, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    torch.testing.assert_close(torch.jit.script(compiled)(**arguments), module(**arguments))
    torch.testing.assert_close(compiled(**arguments), module(**arguments))
    assert compiled.note.reason is None


def test_checkpoints_inference_and_parameters_of_a_call():
    torch.manual_seed(0)
    module, arguments = own.Attention(dropout=0.5), arguments_of(own.Attention, given())
    compiled = pygfuse.compile(copy.deepcopy(module))
    x = arguments['data'][0].requires_grad_()
    found = []
    for run in (lambda: compiled(**arguments)[0], lambda: checkpoint(compiled, use_reentrant=False, **arguments)[0]):
        torch.manual_seed(3)
        found.append(torch.autograd.grad(run().sin().sum(), [x, *compiled.parameters()]))
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)
    module.eval(), compiled.eval()
    with torch.inference_mode():
        torch.testing.assert_close(compiled(**arguments)[0], module(**arguments)[0])
    others = {name: tensor * 2 for name, tensor in module.state_dict().items()}
    ours, theirs = (torch.func.functional_call(one, others, (), arguments)[0] for one in (compiled, module))
    torch.testing.assert_close(ours, theirs)
    assert compiled.note.reason is None


def test_threads_give_the_same_bits():
    torch.manual_seed(0)
    compiled, arguments, found = pygfuse.compile(own.Equivariant()), arguments_of(own.Equivariant, given()), []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(compiled(**arguments)[1])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
