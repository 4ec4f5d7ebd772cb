"""What is broken in layers over typed edges."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

FILM, HAN, HEAT = (f'tests/conv/test_{name}_conv.py' for name in ('film', 'han', 'heat'))
RGCN, RGAT, HGT = (f'tests/conv/test_{name}_conv.py' for name in ('rgcn', 'rgat', 'hgt'))
PRODUCT = 'tests/ops/typed/test_typed_product.py'

OF_TYPED_LAYERS = (
    Mutation(
        'relations of another node',
        'graph/relations.py',
        'numbers % max(size, 1), of_edges)',
        'numbers // max(size, 1), of_edges)',
        'tests/cpu/edges/test_pairs.py -k many_pairs',
    ),
    Mutation(
        'the numbers of pairs that a table holds',
        'cpu/edges/pairs.py',
        'table[entry] = count\n',
        'table[entry] = 1\n',
        'tests/cpu/edges/test_pairs.py',
    ),
    Mutation(
        'the last row of types that are padded',
        'graph/padded_types.py',
        'is_row = (offsets < counts).flatten()',
        'is_row = (offsets < counts.clamp(max=capacity - 1)).flatten()',
        PRODUCT,
    ),
    Mutation(
        'rows that pad in the gradient of a weight',
        'ops/typed/typed_product.py',
        'found.index_fill_(0, group.padding, 0.0)',
        'found.index_fill_(0, group.padding, 1.0)',
        PRODUCT,
    ),
    Mutation(
        'biases of types that are padded',
        'ops/typed/typed_product.py',
        'shift = bias.index_select(0, group.kinds).view(len(given), 1, -1)',
        'shift = bias[: len(group.kinds)].view(len(given), 1, -1)',
        PRODUCT,
    ),
    Mutation(
        'scales and shifts of the other one',
        'conv/film_conv.py',
        "return {'x': mapped, 'gamma': gamma, 'beta': beta}",
        "return {'x': mapped, 'gamma': beta, 'beta': gamma}",
        f'{FILM} -k test_options',
    ),
    Mutation(
        'targets of another relation',
        'conv/film_conv.py',
        'self.run(program, operands, inputs, walked(relations.between_pairs))',
        'self.run(program, operands, inputs, walked(relations.from_pairs))',
        f'{FILM} -k test_graphs',
    ),
    Mutation(
        'numbers of an activation that changed',
        'conv/film_conv.py',
        'return (), tuple([type(act) if isinstance(act, Slope) else act for act in prepared])',
        'return (), ()',
        f'{FILM} -k numbers_of_an_activation',
    ),
    Mutation(
        'types beside a sparse tensor',
        'conv/film_conv.py',
        'inputs = inputs._replace(edge_type=None)',
        'pass',
        f'{FILM} -k sparse_tensor',
    ),
    Mutation(
        'maps of relations that are watched',
        'conv/_layer/relations.py',
        """        if reason is not None:
            return reason
        weight = module.weight""",
        '        weight = module.weight',
        f'{FILM} -k "watched or test_options"',
    ),
    Mutation(
        'nodes without edges in the mean of a type',
        'conv/han_conv.py',
        'sums = sums + others * (bias.tanh() @ query).double()',
        'sums = sums + 0 * others * (bias.tanh() @ query).double()',
        f'{HAN} -k test_options',
    ),
    Mutation(
        'scores of all nodes at once',
        'conv/han_conv.py',
        'pairs.nodes * len(vectors) + pairs.types',
        'pairs.nodes * len(vectors)',
        f'{HAN} -k test_options',
    ),
    Mutation(
        'types of another target',
        'conv/han_conv.py',
        'if edge_type[-1] == kind]',
        'if edge_type[0] == kind]',
        f'{HAN} -k test_options',
    ),
    Mutation(
        'embeddings of edges without their activation',
        'program/library/heat.py',
        'return weight * leaky_relu(edge, negative_slope)',
        'return weight * edge',
        f'{HEAT} -k test_options',
    ),
    Mutation(
        'one mask for neighbours and another for edges',
        'conv/heat_conv.py',
        'embedded = aggregate(HEAT_EDGES, edges, operands, heads, of_features.shape[1], *given)',
        'given = *given[:2], given[2] if given[2] is None else given[2] + 1\n        '
        'embedded = aggregate(HEAT_EDGES, edges, operands, heads, of_features.shape[1], *given)',
        f'{HEAT} -k dropout',
    ),
    Mutation(
        'the activation between two products in backward',
        'ops/typed/activated_product.py',
        'ctx.act.adjoint(of_values, values, activated, of_values)',
        'pass',
        f'{HEAT} -k test_options',
    ),
    Mutation(
        'sums that are deferred',
        'conv/rgcn_conv.py',
        'sums = sums[:] if is_deferring() else sums',
        'pass',
        f'{RGCN} -k active',
    ),
    Mutation(
        'the mean of each relation',
        'conv/rgcn_conv.py',
        "if reduce == 'mean':",
        'if False:',
        f'{RGCN} -k test_options',
    ),
    Mutation(
        'the query of the relation',
        'conv/rgat_conv.py',
        'query = typed_product(x_dst, self._of_query(weight), gathered(relations.targets))',
        'query = typed_product(x_dst, self._of_query(weight.flip(0)), gathered(relations.targets))',
        f'{RGAT} -k test_graphs',
    ),
    Mutation(
        'the prior of a type of edges',
        'conv/hgt_conv.py',
        'return matrices * prior.to(matrices.dtype)[..., None, None]',
        'return matrices',
        f'{HGT} -k test_options',
    ),
    Mutation(
        'adjacencies that were written to',
        'graph/joined.py',
        'found.states == states',
        'True',
        f'{HGT} {HAN} -k writes',
    ),
)
