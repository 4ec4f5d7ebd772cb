"""What is broken in layers that PyG has with pyg-lib alone: splines, and neighbours in a space that is learned."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

SPLINE, GRAV_NET = 'tests/conv/test_spline_conv.py', 'tests/conv/test_grav_net_conv.py'

OF_SPLINES = (
    Mutation(
        'splines that do not begin again behind the end',
        'ops/typed/splines.py',
        '.remainder(size) * step',
        '.clamp(max=size - 1) * step',
        f'{SPLINE} -k test_options',
    ),
    Mutation(
        'an interval that is a spline too long',
        'ops/typed/splines.py',
        'place * (size - self.degree * is_open)',
        'place * (size - is_open)',
        f'{SPLINE} -k test_options',
    ),
    Mutation(
        'the middle of a quadratic spline',
        'ops/typed/splines.py',
        '0.5 + x - x * x, 0.5 * x * x',
        '0.5 + x - 0.5 * x * x, 0.5 * x * x',
        f'{SPLINE} -k test_options',
    ),
    Mutation(
        'coordinates that are no numbers',
        'ops/typed/splines.py',
        'if not bool((known > -1.0).all()):',
        'if bool((known <= -1.0).any()):',
        f'{SPLINE} -k named',
    ),
    Mutation(
        'splines of one layer that another takes for its own',
        'ops/typed/spline_rows.py',
        "key = 'splines', splines",
        "key = ('splines', splines.degree)",
        f'{SPLINE} -k follow_writes',
    ),
    Mutation(
        'the gradient of a weight without coefficients',
        'ops/typed/spline_product.py',
        'of_weight[k].addmm_((block * factors.index_select(0, places)).t(), of_block)',
        'of_weight[k].addmm_(block.t(), of_block)',
        f'{SPLINE} -k test_graphs',
    ),
    Mutation(
        'the gradient of coefficients in the order of weights',
        'ops/typed/spline_product.py',
        'found.index_copy_(0, places.long(), (block',
        'found.index_copy_(0, places.long().flip(0), (block',
        f'{SPLINE} -k test_graphs',
    ),
    Mutation(
        'the last block of a weight with many edges',
        'ops/typed/spline_rows.py',
        'self.order[start : min(start + ROWS_AT_ONCE, self.bounds[k + 1])]',
        'self.order[start : start + ROWS_AT_ONCE]',
        f'{SPLINE} -k test_graphs',
    ),
    Mutation(
        'edges that were written into before backward',
        'ops/typed/spline_product.py',
        'ctx.save_for_backward(x, weight, coefficients, given)',
        'ctx.save_for_backward(x, weight, coefficients, None)',
        f'{SPLINE} -k before_backward',
    ),
    Mutation(
        'messages whose arguments PyG has looked at in another class',
        'swap.py',
        'if not takes_same:',
        'if False:',
        f'{GRAV_NET} -k own_code',
    ),
    Mutation(
        'narrow rows of splines',
        'conv/spline_conv.py',
        'with autocast.off(x_j.device):',
        'if True:',
        f'{SPLINE} -k autocast',
    ),
    Mutation(
        'neighbours by their distance, not its square',
        'conv/grav_net_conv.py',
        '(s_j - s_i).pow(2).sum(-1)',
        '(s_j - s_i).abs().sum(-1)',
        f'{GRAV_NET} -k those_of_pyg',
    ),
    Mutation(
        'what PyG writes for its class with other arguments',
        'conv/grav_net_conv.py',
        'propagate = MessagePassing.propagate',
        'pass',
        f'{GRAV_NET} -k their_own_code',
    ),
    Mutation(
        'a graph of neighbours within a transform',
        'ops/points/knn.py',
        'if not is_intercepted() and',
        'if not torch.compiler.is_compiling() and',
        'tests/ops/points/test_knn.py -k torch_func',
    ),
    Mutation(
        'a copy of a compiled layer that has a name of its own',
        'conv/_compiled/planned.py',
        'kind.__qualname__, None) is kind:',
        'kind.__qualname__, None) is None:',
        f'{GRAV_NET} -k copies',
    ),
    Mutation(
        'a compiled layer of ours that becomes what it is compiled of',
        'swap.py',
        'return _PLAIN_CLASSES.get(kind) or (kind.plain if isinstance(module, Planned) else kind)',
        'return kind.plain if isinstance(module, Planned) else _PLAIN_CLASSES.get(kind, kind)',
        f'{GRAV_NET} -k swapped',
    ),
)
