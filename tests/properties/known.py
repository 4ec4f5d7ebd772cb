"""Errors that only one of PyG and pygfuse raises, by kind, each with its reason."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping

from tests.properties.case import ONLY_OURS, ONLY_PYG, Outcome
from tests.properties.dimension import Case


@dataclasses.dataclass(frozen=True)
class Known:
    """A kind of errors.

    Attributes:
        side: Which one raises.
        kind: An expression for the kind of the error.
        reason: Why that is no fault.
        where: By dimension, the values of the cases in which it is known; in others it is a fault.
    """

    side: str
    kind: str
    reason: str
    where: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)

    def holds(self, case: Case, outcome: Outcome) -> bool:
        """Whether a case's error is of this kind."""
        is_here = all(case.values.get(name) in values for name, values in self.where.items())
        return is_here and self.side == outcome.kind and re.search(self.kind, outcome.text) is not None


_COO = {'adjacency': ('sparse COO, repeats',)}
_CSC = {'adjacency': ('CSC',)}
_EDGE_INDEX = {'adjacency': ('EdgeIndex', 'EdgeIndex by row', 'EdgeIndex by column')}
_MATRICES = ('COO', 'CSR', 'CSR, weights', 'sparse COO, repeats')
_ACTIVE = {'context': ('active',)}

KNOWN: tuple[Known, ...] = (
    Known(ONLY_PYG, r'uncoalesced tensor', 'a COO matrix that is not coalesced is taken: docs/differences.md', _COO),
    Known(
        ONLY_PYG, r"layout .*'torch.sparse_csc'|CSC matrices", 'a CSC matrix is taken: docs/differences.md', _CSC,
    ),
    Known(
        ONLY_PYG, r'MFConv: NotImplementedError|ARMAConv: RuntimeError: (addmm: )?mat. must be a matrix',
        'a matrix of ones is taken as the list of its edges: docs/differences.md', {'adjacency': (*_MATRICES, 'CSC')},
    ),
    Known(
        ONLY_PYG, r'Cannot set version_counter', 'EdgeIndex cannot sort itself in inference mode',
        {**_EDGE_INDEX, 'backward': ('inference mode',)},
    ),
    Known(
        ONLY_PYG, r"sparse.*not implemented for 'BFloat#'|CPUBFloat#Type.*sparse_mm_reduce",
        'a narrow product of matrices is a walk here: docs/differences.md',
    ),
    Known(
        ONLY_PYG, r'FAConv: RuntimeError: The size of tensor a', 'weights of shape [E, 1] are weights',
        {'edge': ('one dimension',)},
    ),
    Known(
        ONLY_PYG, r'GraphConv: IndexError: index out of range in self',
        "PyG's product with an EdgeIndex without edges", _EDGE_INDEX,
    ),
    Known(
        ONLY_PYG, r'GraphConv: RuntimeError: optional_value',
        "PyG's product with an EdgeIndex takes weights of shape [E], which one edge of shape [E, 1] becomes by chance",
        {'edge': ('one dimension',), 'adjacency': ('EdgeIndex by column',)},
    ),
    Known(ONLY_PYG, r'_sparse_mm_reduce_impl_backward', 'a mean over a matrix has a second derivative'),
    Known(
        ONLY_PYG, r'GMMConv: RuntimeError: cannot reshape tensor of # elements', 'PyG cannot view messages of no edges',
        {'graph': ('no edges', 'one node', 'no nodes')},
    ),
    Known(
        ONLY_PYG, r'RuntimeError: expected (scalar type Double but found Float|m# and m# to have the same dtype)',
        'what a weight was computed to before stays narrow in float64, with which a case of float32 is compared',
        {'state': ('the old weight_norm', 'the old spectral_norm', 'pruning')},
    ),
    Known(
        ONLY_PYG, r'ClusterGCNConv: RuntimeError: .*(Double but found Float|type Float; but got torch.DoubleTensor)',
        'PyG normalises a matrix by numbers of float32', {'adjacency': _MATRICES},
    ),
    Known(
        ONLY_PYG, r"FastRGCNConv: TypeError: propagate\(\) got an unexpected keyword argument 'edge_type'",
        "PyG takes the propagate that it wrote for RGCNConv for this one's own",
        {'state': ('explained', 'explained before', 'explained before, copied')},
    ),
    Known(
        ONLY_PYG, r'HEATConv: RuntimeError: cannot reshape tensor of # elements', 'PyG cannot view heads of no edges',
        {'graph': ('no edges', 'one node', 'no nodes')},
    ),
    Known(
        ONLY_PYG, r"'message_and_aggregate' not implemented",
        'PyG writes the propagate of a class once, for whether its first layer in the process can run as a product',
    ),
    Known(ONLY_PYG, r'GMMConv: ValueError: not enough values', 'features of shape [E] are of one dimension'),
    Known(
        ONLY_PYG, r'GATv?2?Conv: RuntimeError: index # is out of bounds',
        'PyG finds the values of loops at the nodes that both sets have: docs/differences.md',
        {'graph': ('more targets',)},
    ),
    Known(
        ONLY_PYG, r'GATv?2?Conv: AssertionError', 'features of edges that the layer does not read are not looked at',
        {'edge': ('unwanted',), 'adjacency': (*_MATRICES, 'CSC')},
    ),
    Known(
        ONLY_PYG, r'GraphConv: RuntimeError: mat# and mat# shapes cannot be multiplied',
        "PyG's product with an EdgeIndex is differentiated with a transpose of the wrong size after another flow",
        {'adjacency': ('EdgeIndex by column',), 'history': ('other flow before',)},
    ),
    Known(
        ONLY_PYG, r'GraphConv: RuntimeError: mat# and mat# shapes cannot be multiplied',
        "PyG's product with an EdgeIndex between two sets of nodes is differentiated with that transpose: "
        'docs/differences.md',
        {'adjacency': ('EdgeIndex by column',), 'graph': ('more sources', 'more targets')},
    ),
    Known(
        ONLY_PYG, r'GraphConv: RuntimeError: Expected tensor for .* scalar type Float; but got torch.DoubleTensor',
        "the weights that PyG's EdgeIndex makes of its own are of float32",
        {'adjacency': ('EdgeIndex by column',), 'edge': ('missing',)},
    ),
    Known(
        ONLY_PYG, r'ARMAConv: RuntimeError: (addmm: )?mat# must be a matrix', 'torch multiplies no stacks by a matrix',
        {'adjacency': (*_MATRICES, 'CSC')},
    ),
    Known(
        ONLY_PYG, r'modified by an inplace operation: \[torch.LongTensor',
        'torch counts each look at the indices of a COO matrix as a write to them',
        {'adjacency': ('COO', 'sparse COO, repeats')},
    ),
    Known(
        ONLY_OURS, r'CheckpointError.*(different metadata|different number of tensors)',
        'torch computes again without classes of tensors, so that a layer runs fused that did not',
        {'state': ('one map: a class of tensors',), 'backward': ('checkpointed',)},
    ),
    Known(
        ONLY_PYG, r'SGConv: CheckpointError', "PyG's first run fills a cache, so that the second saves less",
        {'SGConv.cached': ('True',), 'backward': ('checkpointed',)},
    ),
    Known(
        ONLY_OURS, r'Multiple dispatch failed',
        'torch.compile takes a class of tensors that says nothing of dispatch only where no operator is registered',
        {'state': ('one map: a class of tensors',), 'context': ('compiled',)},
    ),
    Known(
        ONLY_OURS, r'IndexError: tuple index out of range',
        'torch.compile takes no view of a matrix where it compiles for other sizes',
        {'context': ('compiled',), 'adjacency': ('CSR', 'CSR, weights')},
    ),
    Known(
        ONLY_OURS, r'BackendCompilerFailed',
        'torch.compile takes no EdgeIndex that lacks one of the tensors it may hold, where PyG breaks the graph before',
        {'context': ('compiled',), 'adjacency': _EDGE_INDEX['adjacency']},
    ),
    Known(
        ONLY_OURS, r"LGConv: InternalTorchDynamoError: TypeError: 'NoneType' object is not subscriptable",
        'torch.compile makes no guard for the closure of a function that PyG overloads', {'context': ('compiled',)},
    ),
    Known(
        ONLY_OURS, r"'tuple' object has no attribute 'chunk'", 'what is loaded from a file keeps its decomposed_layers',
    ),
    Known(
        ONLY_OURS, r'took a result of layers within', 'a function that would lose a gradient says so, and what to do',
        _ACTIVE,
    ),
    Known(
        ONLY_OURS, r'CheckpointError.*(different metadata|different number of tensors)',
        'what is computed again is outside of the block: docs/differences.md',
        {**_ACTIVE, 'backward': ('checkpointed',)},
    ),
)  # fmt: skip


def reason_for(case: Case, outcome: Outcome) -> str | None:
    """Why an error of one side only is no fault; None if it is one."""
    return next((known.reason for known in KNOWN if known.holds(case, outcome)), None)
