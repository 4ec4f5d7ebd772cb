"""What is broken in products of features of edges, in networks on edges, and in large results of nodes."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

PRODUCTS = 'tests/ops/test_aggregate.py -k "products and not slow"'
FACTORS = 'tests/cpu/networks/test_edge_factors.py'
NORMS = 'tests/compiler/test_edge_networks.py -k "batch"'
LARGE = 'tests/ops/nodes/test_large_products.py'

OF_EDGES = (
    Mutation(
        'columns of a tile in products of edges',
        'cpu/walks/edge_products.py',
        "'            values = load_row(weight, d * width + column)',",
        "'            values = load_row(weight, d * width)',",
        PRODUCTS,
    ),
    Mutation(
        'features of loops behind those of edges',
        'cpu/walks/edge_products.py',
        'pointer_at(source[1], place - length)',
        'pointer_at(source[1], 0)',
        PRODUCTS,
    ),
    Mutation(
        'edges of a chunk in the gradient of a weight',
        'cpu/walks/edge_products.py',
        "'            row = row_of(source, place_at(edge_id, first + k), size)',",
        "'            row = row_of(source, place_at(edge_id, first), size)',",
        PRODUCTS,
    ),
    Mutation(
        'numbers of edges given as a product',
        'ops/walked_products.py',
        'if program.operands[name].level != CHANNELS:',
        "if program.operands[name].level == 'heads':",
        'tests/ops/test_aggregate.py -k "may_be_products and gaussian"',
    ),
    Mutation(
        'the tangent of a factor of sources',
        'cpu/networks/edge_factors.py',
        'moved = moved + value * of_source(source_tangent, u, width, channel) * feature',
        'moved = moved + value * of_source(source_tangent, u, width, channel)',
        FACTORS,
    ),
    Mutation(
        'a rectifier without a derivative where its value is NaN',
        'cpu/networks/activation_tangents.py',
        "'relu': lambda z, first, second, slope: positive(z, z, equal(z, z, 0.0, z)),",
        "'relu': lambda z, first, second, slope: positive(z, z, z * 0.0),",
        'tests/cpu/networks/test_row_networks.py -k no_number',
    ),
    Mutation(
        'tangents of a map have no bias',
        'cpu/networks/row_networks.py',
        "rest.format('None')",
        "rest.format(f'biases[{j}]')",
        'tests/cpu/networks/test_row_networks.py -k "tangents"',
    ),
    Mutation(
        'a gradient of features that has begun',
        'ops/edge_mlp/edge_rows.py',
        'return self._grad if self._is_zero else None',
        'return self._grad',
        'tests/ops/edge_mlp/test_edge_mlp.py -k "behind and run"',
    ),
    Mutation(
        'features of edges are not written to',
        'ops/edge_mlp/steps.py',
        'is_read = isinstance(self.previous, Activation) or _is_features(self.previous)',
        'is_read = isinstance(self.previous, Activation)',
        'tests/ops/edge_mlp/test_edge_mlp.py -k "features_of_edges_stay"',
    ),
    Mutation(
        'the second derivative of scaled Gaussians',
        'ops/points/smearing.py',
        'of_distance = of_distance if scale is None else of_distance * scale',
        'of_distance = of_distance + 0.0',
        'tests/conv/test_smearing.py -k "third"',
    ),
    Mutation(
        'the unbiased variance that is kept',
        'ops/edge_mlp/batch_norm.py',
        'variance.detach() * (num_edges / (num_edges - 1))',
        'variance.detach()',
        NORMS,
    ),
    Mutation(
        'the shift of a batch normalisation',
        'ops/edge_mlp/batch_norm.py',
        'moved = shift if last.bias is None else torch.addcmul(shift, last.bias, scale)',
        'moved = shift',
        'tests/compiler/test_edge_networks.py',
    ),
    Mutation(
        'the bias of a large product',
        'ops/nodes/large_products.py',
        'else torch.addmm(bias, first, second, out=out)',
        'else torch.mm(first, second, out=out)',
        LARGE,
    ),
    Mutation(
        'locks that an interrupt leaves closed',
        '_lib/compile_once.py',
        '    while lock._is_owned():\n        lock.release()\n',
        '    pass\n',
        'tests/cpu/compilation/test_kernel.py -k lock_is_released',
    ),
    Mutation(
        'a lock that was left closed before',
        '_lib/compile_once.py',
        '    _release(ffi.lib._lock._lock)\n    give_up',
        '    give_up',
        'tests/cpu/compilation/test_kernel.py -k left_closed_before',
    ),
    Mutation(
        'locks that an interrupt leaves closed which Python only reports',
        '_lib/compile_once.py',
        '    finally:\n        _release(of_llvm)',
        '    except BaseException:\n        _release(of_llvm)',
        'tests/cpu/compilation/test_kernel.py -k only_reports',
    ),
    Mutation(
        'the last row that has a gradient',
        'cpu/edges/row_search.py',
        'number_at(address)[0] = row',
        'number_at(address)[0] = max(row - 1, 0)',
        'tests/cpu/few_edges/test_leading_rows.py -k numbers',
    ),
    Mutation(
        'ids of edges into the first rows',
        'cpu/few_edges/leading_rows.py',
        'ids = slice(num_edges) if csr.edge_id is None else csr.edge_id[:num_edges].long()',
        'ids = slice(num_edges)',
        'tests/cpu/few_edges/test_leading_rows.py -k numbers',
    ),
    Mutation(
        'dropout along edges into the first rows',
        'cpu/few_edges/leading_rows.py',
        'has_ids = call.dropout is not None or call.weights is not None',
        'has_ids = call.weights is not None',
        'tests/cpu/few_edges/test_leading_rows.py -k dropout',
    ),
)
