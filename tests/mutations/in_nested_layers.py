"""What is broken in layers within modules, in numbers of nodes, and in what refusals leave behind."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_ABSENT = 'tests/compiler/test_absent_and_added.py'
_ENDS = 'tests/conv/modules/test_both_ends.py'
_LAYERS = 'tests/conv/modules/test_nested_layers.py'
_NORMALISED = 'tests/compiler/test_normalised.py'
_OTHERS = 'tests/conv/modules/test_other_edges.py'
_REFUSALS = 'tests/compiler/test_after_refusals.py'

OF_NESTED_LAYERS = (
    Mutation(
        'calls of one layer that are one',
        'compiler/passes/subexpressions.py',
        "('dropout', 'dropout_of_nodes', 'layer')",
        "('dropout', 'dropout_of_nodes')",
        f'{_LAYERS} -k dropout_of_one_layer',
    ),
    Mutation(
        'statistics of layers within a module',
        'compiler/ir.py',
        "NORMALISATIONS = 'batch_norm', 'norm_of_nodes', 'layer'",
        "NORMALISATIONS = 'batch_norm', 'norm_of_nodes'",
        f'{_LAYERS} -k nobody_reads',
    ),
    Mutation(
        'the number of groups of nodes',
        'compiler/leaves.py',
        'bound.arguments[name] = index.max().item() + 1',
        'pass',
        f'{_LAYERS} -k number_of_graphs',
    ),
    Mutation(
        'models whose layers have names',
        'compiler/watch.py',
        'return sequential_call(self, module, *args, **kwargs)',
        'pass',
        f'{_LAYERS} -k models_of',
    ),
    Mutation(
        'layers without gradients',
        'compiler/nested_layers.py',
        "return Symbol(node if torch.is_grad_enabled() else value('detach', node), NUM_TARGETS)",
        'return Symbol(node, NUM_TARGETS)',
        f'{_LAYERS} -k without_gradients',
    ),
    Mutation(
        'statistics that move where there are no gradients',
        'compiler/watch.py',
        "node = found.node.args[0] if found.node.op == 'detach' else found.node",
        'node = found.node',
        f'{_LAYERS} -k without_gradients',
    ),
    Mutation(
        'hooks of layers whose copy is called',
        'compiler/nested_layers.py',
        'part._forward_hooks.clear()',
        'pass',
        f'{_LAYERS} -k hooks_of_layers',
    ),
    Mutation(
        'the layer whose copy is called',
        'compiler/nested_layers.py',
        'layer = copy.deepcopy(module).eval()',
        'layer = module',
        f'{_LAYERS} -k statistics_move',
    ),
    Mutation(
        'parts of layers within a module',
        'compiler/watch.py',
        'for name, child in part._modules.items():',
        'for name, child in ():',
        f'{_LAYERS} -k other_channels',
    ),
    Mutation(
        'edges that layers within a module read',
        'compiler/nested_layers.py',
        'if isinstance(item, EdgeIndexRows) and item.made is REMAKING.get().edges.made and item.kind is Tensor:',
        'if isinstance(item, EdgeIndexRows):',
        f'{_LAYERS} -k other_edges',
    ),
    Mutation(
        'nodes that layers within a module read',
        'compiler/nested_layers.py',
        'if remaking is None or remaking.copies or remaking.edges.of_two_sets:',
        'if remaking is None or remaking.copies:',
        f'{_LAYERS} -k other_edges',
    ),
    Mutation(
        'values of edges that are computed for a layer',
        'compiler/modules.py',
        'node.op in REDUCTIONS or any(True for _ in computed_for(node))',
        'node.op in REDUCTIONS',
        f'{_LAYERS} -k computed_for_a_layer',
    ),
    Mutation(
        'values that other edges read',
        'compiler/kept.py',
        "_TOGETHER = ('softmax_of_sources', 'of_other_edges', 'typed_map')",
        "_TOGETHER = ('softmax_of_sources', 'typed_map')",
        f'{_OTHERS} -k its_own_code',
    ),
    Mutation(
        'numbers of other edges that are negative',
        'compiler/views.py',
        'return _of_other_edges(x, key, True)',
        'return _of_other_edges(x, key, False)',
        f'{_OTHERS} -k from_the_end',
    ),
    Mutation(
        'values of nodes that other edges read',
        'compiler/views.py',
        "x = Symbol(value('on_edges', x.node), x.rows)",
        'pass',
        f'{_OTHERS} -k OfNodes',
    ),
    Mutation(
        'None that is stored in a dataclass',
        'compiler/data_objects.py',
        'return Absent if stored[key] is None and issubclass(fields.kind, Data) else stored[key]',
        'return Absent if stored[key] is None else stored[key]',
        f'{_OTHERS} -k stored_in_one',
    ),
    Mutation(
        'values of other edges that are not in memory',
        'compiler/kept.py',
        'if taker.op in _NEVER_APART and not',
        'if False and not',
        f'{_OTHERS} -k cannot_be_in_memory',
    ),
    Mutation(
        'which column of edges',
        'compiler/places.py',
        'return self.rows[key[1]] if is_column',
        'return self.rows[1 - key[1]] if is_column',
        f'{_ENDS} -k its_own_code',
    ),
    Mutation(
        'parts of what is stacked',
        'compiler/piles.py',
        'if not self._is_of_one:',
        'if False:',
        'tests/compiler/test_piles.py -k refused',
    ),
    Mutation(
        'columns that are written to',
        'conv/_edge_columns.py',
        'return ATTACHED.keep(columns, _KEY, state, made, held=columns.detach())',
        'return found if found is not None else _KEPT.setdefault(id(columns), made)\n\n\n_KEPT: dict = {}',
        f'{_ENDS} -k change_in_place',
    ),
    Mutation(
        'how many edges columns are',
        'conv/_few_of_a_module.py',
        'count += max(edges.shape)',
        'count += edges.shape[-1]',
        f'{_ENDS} -k few_edges',
    ),
    Mutation(
        'the number of rows as a length',
        'compiler/leaves.py',
        'return found.shape[0] if isinstance(found, (Recorded, OfEdges)) else len(found)',
        'return len(found)',
        f'{_OTHERS} -k its_own_code',
    ),
    Mutation(
        'which nodes are counted',
        'compiler/called.py',
        'TARGET: edges.num_targets, SOURCE: edges.num_sources}[counted]',
        'TARGET: edges.num_sources, SOURCE: edges.num_sources}[counted]',
        f'{_ABSENT} -k of_each_call',
    ),
    Mutation(
        'what a capture draws',
        'compiler/capture.py',
        "return torch.random.fork_rng(devices=(device,) if device is not None and device.type == 'cuda' else ())",
        'return contextlib.nullcontext()',
        f'{_REFUSALS} -k drawn',
    ),
    Mutation(
        'hooks that are removed',
        'compiler/watch.py',
        'if any(map(is_changed, self.unhooked)) or not all(map(is_changed, self.hooked)):',
        'if any(map(is_changed, self.unhooked)):',
        f'{_REFUSALS} -k removed',
    ),
    Mutation(
        'parameters that get their shapes',
        'compiler/watch.py',
        "            self.add(found, '__class__', type(found))\n",
        '',
        f'{_LAYERS} -k initialises',
    ),
    Mutation(
        'how an argument lies in memory',
        'compiler/layouts.py',
        'if not x.is_given or x.is_copy:',
        'if True:',
        f'{_REFUSALS} -k lies_in_memory',
    ),
    Mutation(
        'whether two arguments are one',
        'compiler/surroundings.py',
        "if name == 'IS_OP' and before.startswith(_OF_CODE):",
        'if False:',
        f'{_REFUSALS} -k are_one',
    ),
    Mutation(
        'writes to statistics that are counted',
        'ops/edge_mlp/batch_norm.py',
        'running.data.mul_(1 - factor)',
        'running.mul_(1 - factor)',
        f'{_NORMALISED} -k before_one_backward',
    ),
    Mutation(
        'statistics that move before backward',
        'ops/edge_mlp/batch_norm.py',
        'return module.running_mean.clone(), module.running_var.clone()',
        'return module.running_mean, module.running_var',
        f'{_NORMALISED} -k before_backward_reads',
    ),
)
