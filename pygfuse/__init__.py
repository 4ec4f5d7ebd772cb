"""pygfuse: PyTorch Geometric's convolutions, fused.

``pygfuse.fuse(model)`` gives an existing model the same numbers without a tensor of size edges x features;
``pygfuse.conv`` has the drop-in classes, ``pygfuse.report(model)`` says what was fused and why not.
"""

from pygfuse.fuse import fuse, report, unfuse
from pygfuse.mapping import force_mapping

__all__ = ['force_mapping', 'fuse', 'report', 'unfuse']
__version__ = '0.1.0'
