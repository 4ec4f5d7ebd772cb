"""What a convolution declares of itself: all that the layer class needs to know to run it."""

from __future__ import annotations

import dataclasses

import torch_geometric
from torch.torch_version import TorchVersion

from pygfuse.program.program import EdgeProgram

# PyG's names of simple aggregations -> those of `pygfuse.ops.aggregate`
REDUCTIONS = {'add': 'sum', 'sum': 'sum', 'mean': 'mean', 'max': 'max', 'min': 'min'}
SUMS = ('sum', 'mean')
EXTREMES = ('max', 'min')
ALL = (*SUMS, *EXTREMES)

BEFORE_DROPOUT, AFTER_DROPOUT = 'before dropout', 'after dropout'
# up to PyG 2.7 in all layers that return weights
_ANY_BOOL_IS_YES = TorchVersion(torch_geometric.__version__) < '2.8'


@dataclasses.dataclass(frozen=True)
class EdgeFeatures:
    """A row of features an edge, ``edge_attr``.

    Attributes:
        width: The layer's attribute that holds their number; where it is None or 0, the layer takes no features.
        map: The layer's attribute that holds a linear map of them, if there is one: its input is as wide as they are,
            and without it the layer takes none.
        required: Whether a call must bring them if the layer takes them.
        ignored: Whether features that the layer does not take are ignored, as in PyG; else such a call runs PyG's path.

    Example:
        >>> EdgeFeatures('edge_dim', map='lin_edge', required=True).width
        'edge_dim'
    """

    width: str
    map: str | None = None
    required: bool = False
    ignored: bool = False


@dataclasses.dataclass(frozen=True)
class EdgeWeight:
    """One number an edge: ``edge_weight``, or the values of a sparse adjacency.

    Attributes:
        program: What runs in place of the layer's program where there are weights; None: the same.
        of_sparse_tensor: Whether a ``SparseTensor`` brings its values as weights; some of PyG's layers drop them, and
            those of any matrix where they do not multiply with it (``fuse``).
        wide: Whether PyG's layer takes weights of several numbers an edge, too.

    Example:
        >>> EdgeWeight(wide=True).of_sparse_tensor
        True
    """

    program: EdgeProgram | None = None
    of_sparse_tensor: bool = True
    wide: bool = False


@dataclasses.dataclass(frozen=True)
class Spec:
    """A convolution.

    Attributes:
        program: What happens on its edges; None where the layer chooses one itself (`FusedConv.program`).
        reductions: Values of ``aggr`` that have a fused form, under the names of `pygfuse.ops.aggregate`.
        edge: What a call may bring for each edge.
        in_channels: The layer's attribute that says how many features the nodes have, if it has one.
        maps: The layer's linear maps that are taken apart; with any other module in their place, PyG's path runs.
        parameter: The layer's attribute, a parameter or a module, whose type and device the inputs must have.
        loops: Whether ``add_self_loops`` of the layer puts in self-loops.
        attention: Whether weights of edges can be returned, `BEFORE_DROPOUT` or `AFTER_DROPOUT`; None: they cannot.
        needs_targets: Whether the layer needs features of the targets.
        bipartite: Whether sources and targets may be different nodes.
        before: The layer's attribute that holds a map of the features before they are reduced, if there is one.
        static: Whether PyG's layer takes features of more than two dimensions, too.
        matrix: Whether PyG's layer may run as a product of matrices, which treats ties and repeated edges otherwise.
        hag: Whether it aggregates plain neighbours, which a HAG may do in its place.
        autocast: Whether the fused form has the types and the precision of PyG's layer under autocast.
        node_dims: Values of ``node_dim`` that mean the nodes.
        sparse: Whether sparse features are mapped as they are (`pygfuse.transforms.ToSparseFeatures`).
        reorganised: Whether the fused form exists only because a linear map on edges was taken apart.
        saves_rows: Whether rows of nodes are saved where PyG's layer saves none: callers may write into these.

    Example:
        >>> from pygfuse.program.library.neighbours import NEIGHBOURS
        >>> Spec(NEIGHBOURS, in_channels='in_channels', hag=True).reductions
        ('sum', 'mean', 'max', 'min')
    """

    program: EdgeProgram | None
    reductions: tuple[str, ...] = ALL
    _: dataclasses.KW_ONLY
    edge: EdgeFeatures | EdgeWeight | None = None
    in_channels: str | None = None
    maps: tuple[str, ...] = ()
    parameter: str | None = None
    loops: bool = False
    attention: str | None = None
    needs_targets: bool = False
    bipartite: bool = True
    before: str | None = None
    static: bool = False
    matrix: bool = False
    hag: bool = False
    autocast: bool = False
    node_dims: tuple[int, ...] = (0, -2)
    sparse: bool = False
    reorganised: bool = False
    saves_rows: bool = False

    @property
    def any_bool_is_yes(self) -> bool:
        """Whether PyG's layer returns weights of edges also where ``return_attention_weights`` is False."""
        return self.attention == BEFORE_DROPOUT or _ANY_BOOL_IS_YES
