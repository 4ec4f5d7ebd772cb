"""What a user can do about a reason for which a layer runs PyG's own path."""

from __future__ import annotations

import re

_EDGE_INDEX = 'pass a plain edge_index'
# expressions for reasons, the first that fits counts
_ADVICE = (
    (r'an explainer reads', 'nothing: it runs fused again once the explainer is done'),
    (r'a hook is registered', 'remove the hook'),
    (r'forward of .* is overridden', 'override it in a class of your own, not in the object'),
    (r'^(message|aggregate|update|edge_update|propagate|message_and_aggregate|edge_updater) is overridden',
     'override it in a class of your own, not in the object: pygfuse.compile takes the class'),
    (r'autocast is on', 'call the layer under torch.autocast(..., enabled=False)'),
    (r'^torch\.\w+ has no fused kernels', 'hand over float32 or float64'),
    (r'the tensors are of several types', 'hand over tensors of the type of the parameters'),
    (r'aggr=.* has no fused form here', 'pygfuse.fuse(model) compiles it'),
    (r'gives the gradient of a tie to one edge', f'{_EDGE_INDEX}, sorted or not'),
    (r'self-loops need an edge_index|sparse adjacency|SparseTensor|sparse COO', _EDGE_INDEX),
    (r'it caches the first adjacency', 'cached=False: what follows from an edge_index is kept with it anyway'),
    (r'has no parameters before its first call', 'call the layer once'),
    (r'decomposed_layers', 'decomposed_layers=1: there is no message in memory that had to be cut'),
    (r'what its message reads changed', 'hand what changes to propagate, as a tensor'),
    (r'is switched off', 'leave the block of pygfuse.ablation'),
    (r'a sum over all edges|depends on values', 'compute it before propagate, and hand it over'),
)  # fmt: skip


def advice_for(reason: str) -> str | None:
    """What would help, if it is known.

    Example:
        >>> advice_for('autocast is on')
        'call the layer under torch.autocast(..., enabled=False)'
        >>> advice_for('call pygfuse.fuse(model)') is None
        True
    """
    return next((advice for pattern, advice in _ADVICE if re.search(pattern, reason)), None)
