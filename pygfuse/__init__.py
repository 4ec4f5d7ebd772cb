"""pygfuse: PyTorch Geometric's convolutions, fused.

``pygfuse.fuse(model)`` gives an existing model the same numbers without a tensor of size edges x features;
``pygfuse.conv`` has the drop-in classes, ``pygfuse.report(model)`` says what was fused and why not.
"""

from pygfuse import conv, transforms
from pygfuse._lib import former_names
from pygfuse._lib.modes import ablation
from pygfuse.mapping.choice import used_once
from pygfuse.mapping.group_sizes import group_sizes
from pygfuse.mapping.mapping import Mapping, force_mapping
from pygfuse.ops.points.knn import knn, knn_graph
from pygfuse.ops.points.radius import radius, radius_graph
from pygfuse.partial.paths.policy import execution_paths
from pygfuse.partial.rows.active import active
from pygfuse.reporting import explain, report, supported
from pygfuse.swap import compile, fuse, unfuse
from pygfuse.tune.autotune import autotune
from pygfuse.tune.warm import warm

__all__ = [
    'Mapping',
    'ablation',
    'active',
    'autotune',
    'compile',
    'conv',
    'execution_paths',
    'explain',
    'force_mapping',
    'fuse',
    'group_sizes',
    'knn',
    'knn_graph',
    'radius',
    'radius_graph',
    'report',
    'supported',
    'transforms',
    'unfuse',
    'used_once',
    'warm',
]
__version__ = '0.1.0'

former_names.register()
