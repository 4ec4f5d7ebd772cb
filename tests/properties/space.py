"""All dimensions."""

from __future__ import annotations

import torch

import pygfuse
from tests.properties.dimension import LAYER, Dimension, Space
from tests.properties.graphs import FORMATS, GRAPHS
from tests.properties.layers import KINDS
from tests.properties.states import CHANGED

Mapping = pygfuse.Mapping


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


MAPPINGS = {
    'chosen': None,
    'vertex': lambda: pygfuse.force_mapping(Mapping('vertex', part_work=8)),
    'edge': lambda: pygfuse.force_mapping(Mapping('edge', part_work=8)),
    'edge, part of one': lambda: pygfuse.force_mapping(Mapping('edge', part_work=1)),
    'two passes': lambda: pygfuse.force_mapping(Mapping('edge', part_work=16, two_pass=True)),
    'scatter': lambda: pygfuse.force_mapping('scatter'),
    'used once': pygfuse.used_once,
    'group sizes': lambda: pygfuse.group_sizes(lambda csr, row_bytes: 5),
}
DTYPES = {'float32': torch.float32, 'float64': torch.float64, 'bfloat16': torch.bfloat16}

# weights keep down what is slow, or has kernels of its own
SPACE = Space(
    [
        Dimension(LAYER, {name: name for name in KINDS}),
        *[
            Dimension(f'{name}.{option}', values, layer=name)
            for name, kind in KINDS.items()
            for option, values in kind.options.items()
        ],
        Dimension('flow', _same('source_to_target', 'target_to_source'), {'target_to_source': 0.5}),
        # the width of the features as the constructor is told
        Dimension('width', _same('number', 'pair', 'lazy'), {'pair': 0.3, 'lazy': 0.3}),
        Dimension('x', _same('tensor', 'pair', 'twice', 'sources'), {'tensor': 4.0}),
        Dimension('memory', _same('contiguous', 'transposed', 'sliced', 'expanded'), {'contiguous': 2.0}),
        Dimension('numbers', _same('random', 'ties', 'zeros', 'small'), {'random': 5.0}),
        Dimension('edge', _same('fitting', 'missing', 'unwanted', 'one dimension'), {'fitting': 5.0}),
        Dimension('size', _same('not given', 'given'), {'given': 0.3}),
        Dimension('weights', _same('not returned', 'returned'), {'returned': 0.4}),
        Dimension('graph', GRAPHS),
        Dimension('adjacency', FORMATS, {'edge_index': 3.0}),
        Dimension('dtype', DTYPES, {'float32': 2.0, 'float64': 1.0, 'bfloat16': 0.1}),
        Dimension('mapping', MAPPINGS, {'chosen': 3.0, 'two passes': 0.3, 'scatter': 0.3}),
        Dimension('threads', {'1': 1, '2': 2}, {'2': 0.3}),
        Dimension(
            'history',
            _same('first call', 'second call', 'written', 'other flow before', 'other layers before', 'HAG', 'path'),
        ),
        Dimension('rows', _same('all', 'few'), {'few': 0.5}),
        Dimension(
            'context',
            _same(
                'none', 'active', 'autocast', 'compiled', 'functional call', 'deterministic', 'paths', 'no paths',
                'no reorganisation', 'no fusion', 'no recomputation', 'thread',
            ),
            {'none': 3.0, 'compiled': 0.02, 'thread': 0.5, 'no recomputation': 0.1, 'no reorganisation': 0.2},
        ),
        Dimension(
            'backward',
            _same(
                'once', 'again', 'checkpointed', 'twice in a graph', 'of the gradient', 'of inputs', 'of parameters',
                'no grad', 'inference mode',
            ),
            {'once': 4.0, 'of inputs': 0.3, 'of parameters': 0.3},
        ),
        Dimension('training', {'yes': True, 'no': False}, {'no': 0.3}),
        Dimension('state', CHANGED, {'new': 12.0, 'swapped': 3.0, 'sharded': 0.2, 'orthogonal': 0.5}),
    ]
)  # fmt: skip
