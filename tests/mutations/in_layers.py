"""What is broken in layers."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

STATE = 'tests/conv/test_state_of_the_module.py -m "not slow"'
GAT = 'tests/conv/gat_conv'
ALL = 'tests/conv/all_convs -m "not slow"'
NEIGHBOURS = 'tests/conv/test_neighbours.py -m "not slow"'
ORDER = 'tests/conv/layer/test_map_order.py'

OF_LAYERS = (
    # layers
    Mutation(
        'features that a layer before has given',
        'conv/_layer/density.py',
        'if type(x) is not Tensor or x.requires_grad or x.dim() != 2',
        'if type(x) is not Tensor or x.dim() != 2',
        'tests/test_reporting.py -k nothing_is_told',
    ),
    Mutation(
        'a layer that is explained',
        'conv/_layer/fallback.py',
        'if conv.explain:',
        'if False:',
        f'{STATE} -k masks',
    ),
    Mutation(
        'a hook on messages',
        'conv/_layer/fallback.py',
        "    '_message_forward_hooks',\n",
        '',
        f'{ALL} -k hooks_are_called',
    ),
    Mutation(
        'a hook on a map',
        '_lib/hooks.py',
        '        module._forward_hooks\n',
        '        False\n',
        'tests/_lib/test_hooks.py tests/conv/all_convs -k hooks',
    ),
    Mutation(
        'an aggregation that was replaced',
        'conv/_layer/fallback.py',
        'if type(conv.aggr_module) is not _AGGREGATIONS[conv.aggr]:',
        'if False:',
        f'{ALL} -k another_aggregation',
    ),
    Mutation(
        'types that are mixed',
        'conv/_layer/fallback.py',
        'if len(dtypes) > 1 and not',
        'if False and not',
        f'{NEIGHBOURS} -k another_type',
    ),
    Mutation(
        'ties over a matrix',
        'conv/_layer/fallback.py',
        "return f'aggr={conv.aggr!r} over a sparse adjacency gives",
        "return None and f'aggr={conv.aggr!r} over a sparse adjacency gives",
        NEIGHBOURS,
    ),
    Mutation(
        'the order of weights',
        'conv/_layer/attention.py',
        'return weights[ids]',
        'return weights',
        f'{GAT} -k adjacencies',
    ),
    Mutation(
        'dropout of weights that are returned',
        'conv/gat_conv.py',
        'attention=AFTER_DROPOUT',
        'attention="before dropout"',
        f'{GAT} -k "dropout"',
    ),
    Mutation(
        'the gradient of weights under dropout',
        'conv/_layer/attention.py',
        'dropout, seed, weights.detach())',
        'dropout, seed, weights)',
        f'{GAT} -k returned_weights',
    ),
    Mutation(
        'the bias of edges',
        'conv/gat_conv.py',
        'alpha_src = total(alpha_src, None if bias is None else (self.by_head(bias) * att_edge).sum(dim=-1))',
        'pass',
        f'{STATE} -k all_maps_replaced_at_once',
    ),
    Mutation(
        'dropout in evaluation',
        'conv/_layer/few_edges.py',
        'self.spec.attention is not None and self.training and self.dropout > 0.0',
        'self.spec.attention is not None and self.dropout > 0.0',
        f'{GAT} -k dropout_of_nothing',
    ),
    Mutation(
        'loops that keep their weights',
        'conv/_layer/normalise.py',
        '.index_put((nodes,), edge_weight[places])',
        '',
        'tests/conv/test_gcn_conv.py -k weights_of_self_loops',
    ),
    Mutation(
        'loops that keep their weights, compiled',
        'conv/_layer/normalise.py',
        'torch.where(first == second, first, edges.loops)',
        'torch.where(first == second, edges.loops, edges.loops)',
        'tests/conv/all_convs/test_torch_modes.py -k weights_of_self_loops',
    ),
    Mutation(
        'degrees of zero',
        'conv/_layer/normalise.py',
        "return root.masked_fill(root == float('inf'), 0.0)",
        'return root',
        'tests/conv/test_gcn_conv.py -k degrees',
    ),
    Mutation(
        'what loops are filled with',
        'conv/_layer/self_loops.py',
        "reduce = 'mean' if fill == 'mean' else 'sum'",
        "reduce = 'sum'",
        'tests/conv/test_gatv2_conv.py -k fill_values',
    ),
    Mutation(
        'a bias that is summed',
        'conv/_layer/map_first.py',
        "if usual == MAP_FIRST and linear._parameters.get('bias', linear) is not None:",
        'if False:',
        f'{ORDER} -k bias_of_a_map',
    ),
    Mutation(
        'features of nodes without edges',
        'conv/_layer/map_first.py',
        'return None if torch.compiler.is_compiling() else counts_of(edges, x)[1]',
        'return None',
        f'{ORDER} -k not_finite',
    ),
    Mutation(
        'features of nodes without edges in the map of targets',
        'conv/_layer/map_first.py',
        'Map(root.weight, bias_of_both(linear, root))',
        'Map(root.weight, bias_of_both(linear, root), as_sources(edges, source))',
        f'{ORDER} -k not_finite',
    ),
    Mutation(
        'a map that is watched',
        'conv/_layer/map_first.py',
        "REDUCTIONS.get(aggr) not in SUMS or why_not_linear(linear, 'it') is not None",
        'REDUCTIONS.get(aggr) not in SUMS',
        f'{ORDER} -k watched_or_replaced',
    ),
    Mutation(
        'a network that is watched',
        'conv/gin_conv.py',
        "torch.nn.Sequential.forward and why_not_as_it_is(nn, 'nn') is None",
        'torch.nn.Sequential.forward',
        f'{ORDER} -k watched_or_replaced',
    ),
    Mutation(
        'targets mapped by themselves',
        'conv/_layer/map_first.py',
        'return added_to(out, of_root), weights',
        'return out, weights',
        f'{ORDER} -k numbers',
    ),
    Mutation(
        'the width of features',
        'conv/_layer/checks.py',
        'fits = width in (-1, features.shape[1])',
        'fits = True',
        f'{ALL} -k features_of_a_wrong_width',
    ),
    Mutation(
        'the number of edge features',
        'conv/_layer/checks.py',
        'tuple(edge_attr.shape) != (edges.num_user_edges, width)',
        'edge_attr.shape[1] != width',
        f'{ALL} -k edge_features_of_a_wrong_length',
    ),
    # calls like the one before
    Mutation(
        'what a layer holds',
        'conv/_layer/repeated.py',
        'return kind[1] == other[1] and len(ours) == len(theirs) and all(map(operator.is_, ours, theirs))',
        'return kind[1] == other[1]',
        'tests/conv/layer/test_repeated.py -k "changes or patched"',
    ),
    Mutation(
        'what a call is given',
        'conv/_layer/repeated.py',
        'return kind[1] == other[1] and',
        'return',
        'tests/conv/layer/test_repeated.py -k "another_kind or errors"',
    ),
    Mutation(
        'a layer that is observed',
        'conv/_layer/repeated.py',
        'return is_plain_place() and not is_observed(layer)',
        'return is_plain_place()',
        'tests/conv/layer/test_repeated.py -k hooked',
    ),
    Mutation(
        'what is said by a block',
        'conv/_layer/repeated.py',
        'return nothing_is_said() and not (is_tr',
        'return not (is_tr',
        'tests/conv/layer/test_repeated.py -k block',
    ),
    Mutation(
        'the signature that PyG reads',
        'conv/_layer/in_place_of_pyg.py',
        'inspect.signature(found[0].forward)',
        'inspect.signature(cls.forward)',
        'tests/conv/all_convs/test_the_class.py -k cheat',
    ),
    Mutation(
        'for which layers PyG writes propagate',
        'conv/_layer/in_place_of_pyg.py',
        "self.fuse = self.inspector.implements('message_and_aggregate')",
        'pass',
        'tests/conv/test_first_of_a_class.py -k product',
    ),
    Mutation(
        'methods of the class behind all others',
        '_lib/written_by_pyg.py',
        "return getattr(MessagePassing, f'_orig_{name}')",
        'raise StopIteration',
        'tests/conv/test_first_of_a_class.py -k behind',
    ),
    Mutation(
        'what a script leaves out',
        'conv/_layer/scripting.py',
        'if not fuse:',
        'if False:',
        'tests/conv/test_first_of_a_class.py -k torchscript',
    ),
    Mutation(
        'properties that a script asks for',
        'conv/_layer/scripting.py',
        'names |= {name: None for name in properties if not hasattr(plain, name)}',
        'pass',
        'tests/conv/test_first_of_a_class.py -k torchscript',
    ),
    Mutation(
        'what a script finds in the layer',
        'conv/rgcn_conv.py',
        "vars(self).setdefault('_use_segment_matmul_heuristic_output', False)",
        'pass',
        'tests/conv/test_rgcn_conv.py -k torchscript',
    ),
)
