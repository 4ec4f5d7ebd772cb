"""What is broken where a layer's maps and its walk along few edges are one node of autograd."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

NODE = 'tests/ops/mapped_walk/test_node.py'
LAYERS_ALONG = 'tests/conv/test_few_edges.py'
LISTED = 'tests/ops/test_listed.py'

OF_MAPPED_WALKS = (
    Mutation(
        'a second share of the gradient of mapped rows',
        'ops/mapped_walk/written.py',
        "self._put(rows, f'.addmm_({grad}, {weight})', f'{grad}.mm({weight})')",
        "self._put(rows, f'.mm({weight})', f'{grad}.mm({weight})')",
        f'{NODE} -k one_node',
    ),
    Mutation(
        'the gradient of a part of a weight',
        'ops/mapped_walk/written.py',
        "self.lines.append(f'{place}.add_({value})')",
        "self.lines.append(f'{result}[:1, :1].add_(0.0)')",
        f'{NODE} -k one_node',
    ),
    Mutation(
        'a bias for the part of a map that has none',
        'ops/mapped_walk/written.py',
        'return part.linear is not None and part.biased and shape.biased[part.linear]',
        'return part.linear is not None and shape.biased[part.linear]',
        f'{NODE} -k one_node',
    ),
    Mutation(
        'rows of edges that are kept',
        'ops/mapped_walk/shaped.py',
        'remade = [place for place, parts in enumerate(form.made.values()) if is_remade(parts)]',
        'remade = []',
        f'{NODE} -k nothing_of_edges',
    ),
    Mutation(
        'products of the first chunk of edges for all, forward',
        'cpu/walks/listed_forward.py',
        'if sums_products and q >= chunk_last:',
        'if sums_products and q == 0:',
        f'{NODE} -k one_node',
    ),
    Mutation(
        'the same of scores',
        'cpu/walks/listed_forward.py',
        'if scores_products and min(q + step, count) > chunk_last:',
        'if scores_products and q == 0:',
        f'{NODE} -k one_node',
    ),
    Mutation(
        'products of the first chunk of edges for all, backward',
        'cpu/walks/listed_backward.py',
        'if with_products and end > chunk_last:',
        'if with_products and q == 0:',
        f'{NODE} -k one_node',
    ),
    Mutation(
        'what the last chunk of edges gives for weights',
        'cpu/walks/listed_backward.py',
        'chunk_first, count - chunk_first, width',
        'chunk_first, 0, width',
        f'{NODE} -k one_node',
    ),
    Mutation(
        'the gradient of an edge through its message, where its score has one',
        'cpu/walks/listed_backward.py',
        "before = 'load_row({}, {}) + ' if adds else ''",
        "before = ''",
        f'{NODE} -k one_node',
    ),
    Mutation(
        'gradients of edges that self-loops take the place of',
        'cpu/listed.py',
        'rows = like.new_empty if call.graph.num_loops is None else like.new_zeros',
        "rows = lambda shape: like.new_full(shape, float('nan'))",
        f'{LISTED} -k have_no_gradient',
    ),
    Mutation(
        'a bias that is added to rows of somebody else',
        'ops/mapped_walk/written.py',
        "f'{result} = {result} + b{part.linear}'",
        "f'{result} = {result}.add_(b{part.linear})'",
        f'{NODE} -k one_node',
    ),
    Mutation(
        'the second gradient of features of edges',
        'ops/mapped_walk/written.py',
        "self._put(EDGE, f'.add_({grad})', grad)",
        "self._put(EDGE, '.add_(0.0)', grad)",
        f'{NODE} -k one_node',
    ),
    Mutation(
        'the gradient of a sum of heads',
        'ops/mapped_walk/node.py',
        'of_walked = torch.cat([grad] * form.heads, dim=1) if form.sums_heads else grad',
        'of_walked = grad.repeat_interleave(form.heads, 1) if form.sums_heads else grad',
        f'{NODE} -k one_node',
    ),
    Mutation(
        'the factor of a Gaussian',
        'ops/gaussian_parameters.py',
        '(sigma / (sigma.square() + ctx.epsilon).square())',
        '(sigma / (sigma.square() + ctx.epsilon))',
        'tests/ops/test_gaussian_parameters.py',
    ),
    Mutation(
        'means that are a view of the parameter',
        'ops/gaussian_parameters.py',
        'mu.t().clone(memory_format=torch.contiguous_format)',
        'mu.t().contiguous()',
        'tests/ops/test_gaussian_parameters.py',
    ),
    Mutation(
        'vectors whose dots alone need a gradient',
        'ops/mapped_walk/shaped.py',
        '(of_made[form.place_of_dots] or any(rest[: len(form.dots)]))',
        'of_made[form.place_of_dots]',
        f'{NODE} -k are_needed',
    ),
    Mutation(
        'the features behind dots',
        'ops/mapped_walk/node.py',
        'found[name].add_(of_x.view(found[name].shape))',
        'found[name]',
        f'{NODE} -k one_node',
    ),
    Mutation(
        'what is said around the backward pass of maps and a walk',
        'ops/mapped_walk/node.py',
        'not is_batched(grad) and nothing_is_said()',
        'not is_batched(grad)',
        f'{NODE} -k around_backward',
    ),
    Mutation(
        'nodes without edges whose features are infinite, along few edges',
        'ops/mapped_walk/node.py',
        '    if form.of_edges and not all',
        '    if not form and not all',
        'tests/conv/test_not_finite.py -k CGConv',
    ),
    Mutation(
        'features of edges that are too few',
        'conv/_few_edges.py',
        'len(features) != num_edges',
        'len(features) > num_edges',
        f'{LAYERS_ALONG} -k features_of_edges',
    ),
    Mutation(
        'self-loops that have a weight',
        'conv/_normalise.py',
        'edge_weight.index_fill(0, places, 0.0)',
        'edge_weight',
        f'{LAYERS_ALONG} -k weights_of_edges',
    ),
    Mutation(
        'self-loops in degrees of few edges',
        'conv/_normalise.py',
        '(targets != sources).to(like.dtype) if loops else',
        'torch.ones_like(targets, dtype=like.dtype) if loops else',
        f'{LAYERS_ALONG} -k normalised_attention',
    ),
    Mutation(
        'weights that are dropped, along few edges',
        'conv/_few_edges.py',
        'source.dtype in TYPES and not self.drops()',
        'source.dtype in TYPES',
        'tests/conv/test_few_edges.py -k dropped',
    ),
)
