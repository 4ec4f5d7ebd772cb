"""What is broken in layers of typed edges."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

RGCN = 'tests/conv/test_rgcn_conv.py'

OF_TYPES = (
    # products with a matrix for each type
    Mutation(
        'rows of the adjoint of a typed product',
        'ops/typed/typed_product.py',
        'TypedRows(self.bounds, self.written, self.read, count, self.padded)',
        'TypedRows(self.bounds, self.read, self.written, count, self.padded)',
        f'{RGCN} -k options',
    ),
    Mutation(
        'rows that several types add to',
        'ops/typed/typed_product.py',
        'out.index_add_(0, rows.written[places], _times(',
        'out.index_copy_(0, rows.written[places], _times(',
        f'{RGCN} -k options',
    ),
    Mutation(
        'blocks of a gradient of a typed matrix',
        'ops/typed/typed_product.py',
        'out[kind].addmm_(block.t(), of_block)',
        'torch.mm(block.t(), of_block, out=out[kind])',
        f'{RGCN} -k "at_once"',
    ),
    Mutation(
        'blocks of a gradient of a typed bias',
        'ops/typed/typed_product.py',
        'out[kind] += of_block.sum(dim=0)',
        'out[kind] = of_block.sum(dim=0)',
        'tests/ops/typed/test_typed_product_by_rows.py',
    ),
    Mutation(
        'the bias of a typed block',
        'ops/typed/typed_product.py',
        'found if bias is None else found + bias.view(found.shape[1:])',
        'found',
        'tests/ops/typed/test_typed_product_by_rows.py',
    ),
    Mutation(
        'zeros around blocks',
        'ops/typed/typed_product.py',
        'diag_embed(weight.permute(0, 2, 3, 1), dim1=1, dim2=3)',
        'diag_embed(weight.permute(0, 2, 3, 1), dim1=1, dim2=2)',
        f'{RGCN} -k options',
    ),
    Mutation(
        'a typed product that is differentiated twice',
        'ops/typed/typed_product.py',
        'if is_differentiated(grad):',
        'if False:',
        f'{RGCN} -k gradients',
    ),
    Mutation(
        'gradients of what is computed from another',
        'ops/within_torch/differentiable.py',
        'None if tensor is None else tensor.view_as(tensor)',
        'tensor',
        'tests/ops/typed/test_typed_product_by_rows.py',
    ),
    # pairs of relations and nodes
    Mutation(
        'relations below 0',
        'graph/relations.py',
        'if least < 0 or most >= num_relations:',
        'if most >= num_relations:',
        'tests/graph/test_relations.py',
    ),
    Mutation(
        'relations that are not there',
        'graph/relations.py',
        'if least < 0 or most >= num_relations:',
        'if least < 0:',
        'tests/graph/test_relations.py',
    ),
    Mutation(
        'the number of relations that are kept',
        'graph/relations.py',
        "('relations', num_relations)",
        "('relations', 0)",
        'tests/graph/test_relations.py',
    ),
    Mutation(
        'pairs of two sets of nodes',
        'graph/relations.py',
        'max(graph.num_sources, graph.num_targets)',
        'graph.num_targets',
        f'{RGCN} -k graphs',
    ),
    Mutation(
        'shares of a mean',
        'graph/relations.py',
        'counts.to(dtype).reciprocal()[pairs.of_edges]',
        'counts.to(dtype)[pairs.of_edges]',
        f'{RGCN} -k options',
    ),
    Mutation(
        'the type of shares that are kept',
        'graph/relations.py',
        "('shares', dtype)",
        "('shares',)",
        'tests/graph/test_relations.py',
    ),
    Mutation(
        'relations made in inference mode',
        'graph/relations.py',
        'with torch.inference_mode(False):\n                types',
        'if True:\n                types',
        'tests/graph/test_relations.py',
    ),
    Mutation(
        'a copy of the types',
        'graph/relations.py',
        'copy=True',
        'copy=False',
        'tests/graph/test_relations.py',
    ),
    Mutation(
        'the end at which relations meet nodes',
        'graph/relations.py',
        'lambda: self._pairs(1 - self._graph.target_row)',
        'lambda: self._pairs(0)',
        f'{RGCN} -k flow',
    ),
)
