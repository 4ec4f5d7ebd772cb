"""Which combinations of values have a meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.properties.dimension import LAYER, Case, Space
from tests.properties.graphs import BIPARTITE, INDICES, PLAIN, SPARSE
from tests.properties.layers import KINDS, NETWORKS
from tests.properties.space import SPACE
from tests.support.adjacencies import FLOWS

Meaning = Mapping[str, Any]
Rule = Callable[[Case, Meaning], bool]

_ONE_EDGE = ('one edge', 'one node', 'one node, loops')
_SOFTMAX = (
    'GATConv', 'GATv2Conv', 'TransformerConv', 'AGNNConv', 'RGATConv', 'HEATConv', 'HGTConv', 'HANConv', 'GENConv',
    'GeneralConv', 'NaiveAttention', 'HeadedAttention',
)  # fmt: skip
_ONE_WIDTH = ('GCNConv', 'FAConv', 'AGNNConv', 'RGATConv', 'HEATConv', 'HGTConv', 'HANConv')


def takes_edges(meaning: Meaning) -> bool:
    """Whether a layer with these options takes something of each edge."""
    kind = KINDS[meaning[LAYER]]
    if meaning[LAYER] == 'FAConv':
        return not meaning['normalize']
    if meaning[LAYER] == 'GINEConv':
        return True
    return kind.edge is not None and (kind.edge_width is None or bool(meaning[kind.edge_width]))


def has_extreme(meaning: Meaning) -> bool:
    return meaning.get('aggr') in ('max', 'min')


# why a case has no meaning -> when that is so; a case is given by its values' names and by what they stand for
RULES: dict[str, Rule] = {
    'the layer does not say its width': lambda case, meaning: (
        case['width'] != 'number' and KINDS[case[LAYER]].width is None
    ),
    'the layer has one width': lambda case, meaning: case['width'] == 'pair' and case[LAYER] in _ONE_WIDTH,
    'the layer is never lazy': lambda case, meaning: case['width'] == 'lazy' and not KINDS[case[LAYER]].lazy,
    'PyG has no lazy edges here': lambda case, meaning: (
        case['width'] == 'lazy' and case[LAYER] == 'ResGatedGraphConv' and takes_edges(meaning)
    ),
    'two widths are of two tensors': lambda case, meaning: (
        case['width'] == 'pair' and case['x'] not in ('twice', 'sources')
    ),
    'types of nodes have features of their own': lambda case, meaning: (
        case['x'] != 'twice' and KINDS[case[LAYER]].by_type
    ),
    'a history is that of one adjacency': lambda case, meaning: (
        case['history'] not in ('first call', 'second call') and KINDS[case[LAYER]].by_type
    ),
    'of several outputs all are read': lambda case, meaning: case['context'] == 'active' and KINDS[case[LAYER]].by_type,
    'PyG explains edges of one type': lambda case, meaning: (
        case['state'].startswith('explained') and KINDS[case[LAYER]].by_type
    ),
    'PyG joins plain adjacencies only: docs/differences.md': lambda case, meaning: (
        case[LAYER] == 'HGTConv' and case['adjacency'] not in PLAIN
    ),
    'a network has one width': lambda case, meaning: (
        case['width'] == 'pair' and case[LAYER] == 'FiLMConv' and meaning['nn'] is not None
    ),
    'the layer takes one set of nodes': lambda case, meaning: (
        (case['graph'] in BIPARTITE or case['x'] != 'tensor') and not KINDS[case[LAYER]].bipartite
    ),
    'two sets of nodes have two tensors': lambda case, meaning: (
        case['graph'] in BIPARTITE and case['x'] not in ('twice', 'sources')
    ),
    'PyG confuses two sets of nodes where the flow is reversed': lambda case, meaning: (
        case['flow'] != FLOWS[0] and case['graph'] in BIPARTITE
    ),
    'the layer takes nothing of edges': lambda case, meaning: (
        (case['edge'] != 'fitting' and KINDS[case[LAYER]].edge is None)
        or (case['edge'] in ('missing', 'one dimension') and not takes_edges(meaning))
        or (case['edge'] == 'unwanted' and takes_edges(meaning))
    ),
    'edges have several features': lambda case, meaning: (
        case['edge'] == 'one dimension' and case[LAYER] != 'GMMConv' and KINDS[case[LAYER]].edge == 'edge_attr'
    ),
    'the layer takes no size': lambda case, meaning: case['size'] == 'given' and not KINDS[case[LAYER]].takes_size,
    'the layer gives no weights of edges': lambda case, meaning: (
        case['weights'] == 'returned' and not KINDS[case[LAYER]].attention
    ),
    'random masks are not those of PyG': lambda case, meaning: (
        (meaning.get('dropout') == 0.5 and meaning['training'])
        or (meaning.get('dropout', 0.0) > 0.0 and case['state'] == 'random parameters')
    ),
    'second derivatives of segments are wrong in torch_scatter': lambda case, meaning: (
        case['backward'] == 'of the gradient' and case['adjacency'] in SPARSE
    ),
    "PyG's product with an EdgeIndex has wrong second derivatives: docs/differences.md": lambda case, meaning: (
        case['backward'] == 'of the gradient'
        and case[LAYER] == 'GraphConv'
        and case['adjacency'] == 'EdgeIndex by column'
    ),
    'the same of segments: of a softmax, and of deterministic layers': lambda case, meaning: (
        case['backward'] == 'of the gradient'
        and case['adjacency'] == ('EdgeIndex by column' if case['flow'] == FLOWS[0] else 'EdgeIndex by row')
        and (case[LAYER] in _SOFTMAX or meaning.get('aggr') == 'softmax' or case['context'] == 'deterministic')
    ),
    "torch_sparse ends the process where PyG's product with an EdgeIndex has no nodes": lambda case, meaning: (
        case['graph'] == 'no nodes' and case[LAYER] == 'GraphConv' and case['adjacency'] == 'EdgeIndex by column'
    ),
    'ties are known to differ': lambda case, meaning: (
        KINDS[case[LAYER]].ties_differ and has_extreme(meaning) and case['numbers'] in ('ties', 'zeros')
    ),
    'whether cosines of different rows that are equal numbers tie is decided by rounding': lambda case, meaning: (
        case[LAYER] == 'AGNNConv' and has_extreme(meaning) and case['numbers'] == 'ties'
    ),
    'a normalisation of equal rows makes one rounding of a narrow type large: float64 shows what is wrong': (
        lambda case, meaning: (
            case['dtype'] != 'float64'
            and meaning.get('nn') in (NETWORKS['normalised'], NETWORKS['MLP'])
            and (case['memory'] == 'expanded' or case['numbers'] == 'zeros' or case['graph'] in _ONE_EDGE)
        )
    ),
    'so does one of equal rows that were aggregated': lambda case, meaning: (
        case[LAYER] == 'CGConv'
        and meaning['batch_norm']
        and case['dtype'] != 'float64'
        and (case['memory'] == 'expanded' or case['numbers'] == 'zeros' or case['graph'] in _ONE_EDGE)
    ),
    'a deviation of equal values is rounding and nothing else': lambda case, meaning: (
        (case[LAYER] == 'Centred' or bool(set(meaning.get('aggregators', ())) & {'std', 'var'}))
        and (case['memory'] == 'expanded' or case['numbers'] in ('zeros', 'ties') or case['graph'] in _ONE_EDGE)
    ),
    'a narrow sum of rows, as `active` gives them to PyG, loses digits that one of segments keeps': (
        lambda case, meaning: (
            case['dtype'] == 'bfloat16' and case['context'] == 'active' and case['adjacency'] not in PLAIN
        )
    ),
    "torch's second derivative of a PReLU at 0 is on the other side than its first": lambda case, meaning: (
        case['numbers'] == 'zeros' and case['backward'] == 'of the gradient' and case[LAYER] == 'FiLMConv'
    ),
    'of zeros, the second derivative of a softmax is rounding and nothing else': lambda case, meaning: (
        case['numbers'] == 'zeros' and case['backward'] == 'of the gradient' and case[LAYER] in _SOFTMAX
    ),
    'PyG ignores the flow: docs/differences.md': lambda case, meaning: (
        case[LAYER] == 'GraphConv' and case['flow'] != FLOWS[0] and case['adjacency'].startswith('EdgeIndex')
    ),
    'the first call of a lazy layer fills its cache in float32': lambda case, meaning: (
        case['width'] == 'lazy' and meaning.get('cached', False)
    ),
    'one writes to a plain edge_index': lambda case, meaning: (
        case['history'] == 'written' and case['adjacency'] not in PLAIN
    ),
    'a call that is refused iterates as far as it comes': lambda case, meaning: (
        case['history'] == 'other flow before'
        and (case['adjacency'] in SPARSE or case['graph'] in BIPARTITE)
        and 'spectral_norm' in case['state']
    ),
    'torch has no narrow product with a matrix, but of one without edges': lambda case, meaning: (
        case['context'] == 'autocast'
        and case['adjacency'] in SPARSE
        and case['graph'] in ('no edges', 'one node', 'no nodes')
        and (meaning.get('normalize') is False or (case[LAYER] == 'GCNConv' and not meaning['add_self_loops']))
    ),
    'what is computed again outside of the block of active has iterated once more': lambda case, meaning: (
        case['context'] == 'active' and case['backward'] == 'checkpointed' and 'spectral_norm' in case['state']
    ),
    "torch_scatter ends the process where PyG broadcasts one weight to a matrix's": lambda case, meaning: (
        case['context'] == 'deterministic'
        and case['state'] == 'not to be fused'
        and case['adjacency'].startswith('SparseTensor')
        and case['graph'] in _ONE_EDGE
        and KINDS[case[LAYER]].edge == 'edge_weight'
    ),
    'PyG adds targets to an EdgeIndex': lambda case, meaning: (
        case['x'] == 'sources'
        and case['graph'] in BIPARTITE
        and case['adjacency'].startswith('EdgeIndex')
        and meaning.get('add_self_loops', False)
    ),
    "PyG's path is given a copy of int32 edges, and caches it": lambda case, meaning: (
        case['history'] == 'written' and case['adjacency'] == 'int32' and meaning.get('cached', False)
    ),
    'HAGs and paths belong to a plain edge_index': lambda case, meaning: (
        case['history'] in ('HAG', 'path') and case['adjacency'] not in PLAIN
    ),
    'who allows unused gradients is not told that hooks lose them': lambda case, meaning: (
        case['context'] == 'active'
        and case['backward'] == 'of the gradient'
        and case['state'] == 'hooks of the backward pass'
    ),
    'rows that are left out are not read': lambda case, meaning: (
        case['context'] == 'active' and (case['rows'] == 'all' or case['weights'] == 'returned')
    ),
    'rows that are left out have no second derivative of a norm of zeros': lambda case, meaning: (
        case['context'] == 'active'
        and case['backward'] == 'of the gradient'
        and case['numbers'] == 'zeros'
        and case[LAYER] == 'SAGEConv'
        and meaning['normalize']
    ),
    'torch compiles no second derivative': lambda case, meaning: (
        case['context'] == 'compiled' and case['backward'] == 'of the gradient'
    ),
    'masks are of an edge_index': lambda case, meaning: (
        case['state'].startswith('explained') and case['adjacency'] not in INDICES
    ),
    'torch shards no scalars, and is called plainly': lambda case, meaning: (
        case['state'] == 'sharded'
        and (
            case['context'] in ('functional call', 'compiled')
            or case['backward'] not in ('once', 'of inputs')
            or case['dtype'] == 'bfloat16'
        )
    ),
    'what PyG loads from a file forgets its decomposed_layers, which give a matrix with repeats another mean': (
        lambda case, meaning: (
            meaning.get('decomposed_layers', 1) > 1
            and case['adjacency'] == 'sparse COO, repeats'
            and case['state'].endswith('from a file')
        )
    ),
    'a functional call has the parameters of a module': lambda case, meaning: (
        case['context'] == 'functional call' and case['backward'] == 'of parameters' and case['state'] == 'frozen'
    ),
}


_NEED_TARGETS = (
    'GATv2Conv', 'TransformerConv', 'EdgeConv', 'ResGatedGraphConv', 'CGConv', 'RGCNConv', 'FastRGCNConv', 'RGATConv',
    'FiLMConv', 'LEConv', 'FeaStConv', 'NaiveAttention', 'HeadedAttention', 'Gate', 'Network', 'InPlace', 'Centred',
)  # fmt: skip
_MASK_EDGES = ('RGCNConv', 'FiLMConv')
_REQUIRE_EDGES = (
    'GINEConv', 'GMMConv', 'TransformerConv', 'ResGatedGraphConv', 'FAConv', 'HEATConv', 'NNConv', 'PDNConv',
    'HeadedAttention', 'Gate',
)  # fmt: skip

# the same for cases that PyG refuses: drawn rarely, to see that they are refused here
REFUSED: dict[str, Rule] = {
    'matrices have no direction': lambda case, meaning: case['flow'] != FLOWS[0] and case['adjacency'] in SPARSE,
    'it does not run in PyG': lambda case, meaning: case[LAYER] == 'GMMConv' and not meaning['root_weight'],
    'no features of targets': lambda case, meaning: (
        case['x'] == 'sources' and (case[LAYER] in _NEED_TARGETS or case['width'] == 'lazy')
    ),
    'options that PyG does not combine': lambda case, meaning: (
        case[LAYER] == 'RGATConv'
        and (
            (meaning['dim'] > 1 and meaning['attention_mode'].startswith('additive'))
            or (meaning['dropout'] > 0.0 and meaning['mod'] is not None)
        )
    ),
    'edges of one relation of a matrix': lambda case, meaning: (
        case[LAYER] in _MASK_EDGES and case['adjacency'] in SPARSE and not case['adjacency'].startswith('SparseTensor')
    ),
    'types of edges of a reversed flow': lambda case, meaning: (
        case[LAYER] == 'HGTConv' and case['flow'] != FLOWS[0]
    ),
    'no lazy projection': lambda case, meaning: case['width'] == 'lazy' and meaning.get('project', False),
    'no features of edges': lambda case, meaning: case['edge'] == 'missing' and case[LAYER] in _REQUIRE_EDGES,
    'features of edges that are not announced': lambda case, meaning: case['edge'] == 'unwanted',
    'loops without normalisation': lambda case, meaning: (
        case[LAYER] == 'GCNConv' and not meaning['normalize'] and meaning['add_self_loops']
    ),
    'features of loops in a matrix': lambda case, meaning: (
        meaning.get('edge_dim') is not None
        and meaning.get('add_self_loops', False)
        and case['adjacency'] in SPARSE
    ),
    'parts of two sets of nodes': lambda case, meaning: (
        meaning.get('decomposed_layers', 1) > 1 and case['x'] != 'tensor'
    ),
    'no nodes for an LSTM': lambda case, meaning: (
        meaning.get('aggr') == 'lstm' and case['graph'] in ('no nodes', 'no edges', 'one node')
    ),
    'inference mode and EdgeIndex': lambda case, meaning: (
        case['backward'] == 'inference mode' and case['adjacency'].startswith('EdgeIndex')
    ),
    'a layout that the layer does not know': lambda case, meaning: case['adjacency'] in ('CSC', 'sparse COO, repeats'),
    'edge weights of rows': lambda case, meaning: case['edge'] == 'one dimension' and case[LAYER] != 'GMMConv',
}  # fmt: skip


class _Watched(Mapping):
    """Values by name, and which of them are read."""

    def __init__(self, values: Mapping[str, Any], dimensions: Mapping[str, str], read: set[str]) -> None:
        self.values, self.dimensions, self.read = values, dimensions, read

    def __getitem__(self, name: str) -> Any:
        found = self.values[name]  # a rule may ask for an option that other layers have
        self.read.add(self.dimensions.get(name, name))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


def conflict(case: Case, rules: Mapping[str, Rule], space: Space = SPACE) -> set[str] | None:
    """The dimensions of whose values a rule says that they have no meaning together; None if all rules are kept."""
    meaning = space.meaning(case)
    for applies in rules.values():
        if applies(case, meaning):
            read: set[str] = set()
            dimensions = dict(zip(meaning, case.values, strict=True))
            applies(_Watched(case.values, {}, read), _Watched(meaning, dimensions, read))
            return read
    return None


def is_possible(case: Case) -> bool:
    """Whether a case has a meaning."""
    return conflict(case, RULES) is None


def is_refused(case: Case) -> bool:
    """Whether PyG is expected to raise an error."""
    return conflict(case, REFUSED) is not None
