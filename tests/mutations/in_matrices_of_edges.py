"""What is broken in products by a matrix of each edge's own."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_PASS = 'tests/compiler/passes/test_own_matrices.py'
_KERNEL = 'tests/cpu/networks/test_summed_products.py'

OF_MATRICES_OF_EDGES = (
    Mutation(
        'sums of products of rows of many edges',
        'cpu/networks/summed_products.py',
        'is_more = min(row_end, begin + SETTLED_AFTER), begin > row_begin',
        'is_more = min(row_end, begin + SETTLED_AFTER), begin < row_begin',
        _KERNEL,
    ),
    Mutation(
        'values beyond four at a time',
        'cpu/networks/summed_products.py',
        'for k in range(count // 4 * 4, products):',
        'for k in range(count, products):',
        _KERNEL,
    ),
    Mutation(
        'the gradient of sources that a bias adds',
        'cpu/networks/summed_products.py',
        'if products > count:',
        'if products < count:',
        _KERNEL,
    ),
    Mutation(
        'rows that begin in an earlier chunk',
        'cpu/networks/summed_products.py',
        'row_begin, row_end = max(place_at(indptr, v), first), min(',
        'row_begin, row_end = place_at(indptr, v), min(',
        _KERNEL,
    ),
    Mutation(
        'products by matrices that are read twice',
        'compiler/passes/own_matrices.py',
        'if read.count(product) == 1}',
        'if read.count(product) >= 1}',
        f'{_PASS} -k read_twice',
    ),
    Mutation(
        'rows that are not of sources',
        'compiler/passes/own_matrices.py',
        "is_product = node.op == 'own_matrix' and [part.residency for part in node.args[:2]] == [SOURCE, EDGE]",
        "is_product = node.op == 'own_matrix'",
        f'{_PASS} -k written_out',
    ),
    Mutation(
        'matrices that multiply columns',
        'compiler/functions/own_matrices.py',
        'return weight.unflatten(0, shape).transpose(0, 1).flatten(0, 1)',
        'return weight',
        f'{_PASS} -k "ways and columns"',
    ),
    Mutation(
        'equations of matrices that are no linear map',
        'compiler/functions/equations.py',
        'with contextlib.suppress(Refused):\n            found = product',
        'with contextlib.nullcontext():\n            found = product',
        f'{_PASS} -k equation',
    ),
    Mutation(
        'the edges of a chunk whose products are wide',
        'mapping/edge_chunks.py',
        'return min(size, max(LEAST_EDGES, MOST_PRODUCT_BYTES // product_bytes))',
        'return size',
        'tests/mapping/test_edge_chunks.py -k products',
    ),
    Mutation(
        'a learned number of times features are added',
        'conv/gin_conv.py',
        'mapped_by = None if is_learned or weight_and_bias(first)',
        'mapped_by = None if weight_and_bias(first)',
        'tests/conv/layer/test_few_edges.py -k "features_of_edges and learned"',
    ),
    Mutation(
        'locks of a system without flock',
        '_lib/compile_once.py',
        'if not CAN_BE_REMOVED:',
        'if CAN_BE_REMOVED:',
        'tests/_lib/test_compile_once.py',
    ),
)
