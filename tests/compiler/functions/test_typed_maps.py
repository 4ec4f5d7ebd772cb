"""Products by a matrix of each edge's type, R-GCN as it is first written: outputs, gradients and memory."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import Embedding, Linear, Parameter
from torch_geometric.utils import degree, softmax

import pygfuse
from pygfuse.compiler.ir.values import in_order
from pygfuse.memory import peak_bytes, saved_bytes
from tests.compiler.as_pyg import assert_as_pyg
from tests.compiler.own_convs import Own
from tests.support.parity import GRAPHS, random_edges

IN, OUT, TYPES, NODES, EDGES = 6, 4, 5, 12, 60


class Typed(Own):
    """``x_j`` times ``weight[edge_type]``."""

    def __init__(self, *shape, **options):
        super().__init__(**{'node_dim': 0, **options})
        self.weight = Parameter(0.5 * torch.randn(shape or (TYPES, IN, OUT)))

    def message(self, x_j, edge_type):
        return torch.bmm(x_j.unsqueeze(1), self.weight[edge_type]).squeeze(1)


class Columns(Typed):
    def message(self, x_j, edge_type):
        return (self.weight.index_select(0, edge_type).transpose(1, 2) @ x_j.unsqueeze(-1)).squeeze(-1)


class Equation(Typed):
    """Other sources beside those that are mapped, which need a row for each pair, too."""

    def message(self, x_j, z_j, edge_type):
        return torch.einsum('ei,eio->eo', x_j, self.weight[edge_type]).tanh() + z_j * x_j[:, :OUT]


class MatrixFirst(Typed):
    def message(self, x_j, edge_type):
        return torch.einsum('eoi,ei->eo', self.weight.mT[edge_type], x_j)


class Bases(Own):
    """The matrices are sums of bases, and a number of the edge scales what is mapped."""

    def __init__(self):
        super().__init__()
        self.bases, self.shares = Parameter(torch.randn(2, IN, OUT)), Parameter(torch.randn(TYPES, 2))

    def message(self, x_j, edge_type, edge_weight):
        weight = torch.einsum('rb,bio->rio', self.shares, self.bases)
        return edge_weight.view(-1, 1) * torch.bmm(x_j.unsqueeze(1), weight[edge_type]).squeeze(1)


class Rows(Own):
    """The numbers of a matrix as a row of a module's table."""

    def __init__(self, types=TYPES):
        super().__init__()
        self.table = Embedding(types, IN * OUT)

    def message(self, x_j, edge_type):
        return (x_j.unsqueeze(1) @ self.table(edge_type).view(-1, IN, OUT)).squeeze(1)


class Attention(Typed):
    """Sources and targets are mapped, and a softmax weighs the former."""

    def message(self, x_i, x_j, edge_type, index, size_i):
        query, key = (torch.einsum('ei,eio->eo', x, self.weight[edge_type]) for x in (x_i, x_j))
        return softmax((query * key).sum(dim=-1, keepdim=True), index, num_nodes=size_i) * key


class Scored(Typed):
    """A network of a target and of what is mapped."""

    def __init__(self):
        super().__init__()
        self.score = Linear(IN + OUT, 1)

    def message(self, x_i, x_j, edge_type, index, size_i):
        mapped = torch.bmm(x_j.unsqueeze(1), self.weight[edge_type]).squeeze(1)
        score = torch.tanh(self.score(torch.cat([x_i, mapped], dim=-1)))
        return softmax(score, index, num_nodes=size_i) * mapped


class OfEdges(Typed):
    def message(self, x_j, edge_attr, edge_type):
        return x_j[:, :OUT] * torch.bmm(edge_attr.unsqueeze(1), self.weight[edge_type]).squeeze(1)


class Computed(Typed):
    """Values of edges are mapped, and then once more."""

    def __init__(self):
        super().__init__(TYPES, IN, IN)

    def message(self, x_i, x_j, edge_type):
        once = torch.bmm((x_i * x_j).unsqueeze(1), self.weight[edge_type])
        return torch.bmm((once.squeeze(1) - x_i).tanh().unsqueeze(1), self.weight[edge_type]).squeeze(1)


class Twice(Typed):
    def __init__(self):
        super().__init__(TYPES, IN, IN)

    def message(self, x_j, edge_type):
        return torch.bmm(torch.bmm(x_j.unsqueeze(1), self.weight[edge_type]).relu(), self.weight[edge_type]).squeeze(1)


class Heads(Typed):
    """A matrix for each type and head."""

    def __init__(self, equation=True):
        super().__init__(TYPES, 2, IN // 2, OUT)
        self.equation = equation

    def message(self, x_j, edge_type):
        x_j, weight = x_j.view(-1, 2, IN // 2), self.weight[edge_type]
        mapped = (
            torch.einsum('ehi,ehio->eho', x_j, weight) if self.equation else (x_j.unsqueeze(-2) @ weight).squeeze(2)
        )
        return mapped.flatten(1)


LAYERS = {
    'bmm': Typed,
    'mean': lambda: Typed(aggr='mean'),
    'max': lambda: Typed(aggr='max'),
    'target to source': lambda: Typed(flow='target_to_source'),
    'columns': Columns,
    'equation': Equation,
    'matrix first': MatrixFirst,
    'bases': Bases,
    'rows': Rows,
    'rows of many types': lambda: Rows(300),
    'attention': Attention,
    'scored': Scored,
    'of edges': OfEdges,
    'computed': Computed,
    'twice': Twice,
    'heads': Heads,
    'heads, matmul': lambda: Heads(equation=False),
}


def given_of(graph):
    generator = torch.Generator().manual_seed(1)
    sizes = graph.num_sources, graph.num_targets
    edges = graph.edge_index.shape[1]
    of_edges = {
        'edge_type': torch.randint(TYPES, (edges,), generator=generator),
        'edge_weight': torch.rand(edges, generator=generator),
        'edge_attr': torch.randn(edges, IN, generator=generator),
    }
    x, z = (tuple(torch.randn(size, w, generator=generator) for size in sizes) for w in (IN, OUT))
    return {'edge_index': graph.edge_index, 'x': x, 'z': z, 'size': sizes, **of_edges}


@pytest.mark.parametrize('name', LAYERS)
def test_layers_are_pyg_s(name):
    torch.manual_seed(0)
    given = given_of(GRAPHS['random']())
    assert_as_pyg(LAYERS[name](), given)


@pytest.mark.parametrize('graph', GRAPHS)
@pytest.mark.parametrize('name', ['equation', 'attention', 'computed'])
def test_graphs_of_all_kinds(name, graph):
    torch.manual_seed(0)
    # along no edges PyG's operators run
    assert_as_pyg(LAYERS[name](), given_of(GRAPHS[graph]()), reason='there are no edges')


def example(edges=EDGES, nodes=NODES):
    torch.manual_seed(0)
    x = torch.randn(nodes, IN, requires_grad=True)
    return {'edge_index': random_edges(nodes, nodes, edges), 'x': x, 'edge_type': torch.arange(edges) % TYPES}


def test_types_that_change_in_place_and_new_ones():
    given, conv = example(), Typed()
    fused = pygfuse.compile(copy.deepcopy(conv))
    for _ in range(3):
        torch.testing.assert_close(fused(**given), conv(**given))
        given['edge_type'].add_(1).remainder_(TYPES)
        torch.testing.assert_close(fused(**given), conv(**given))
        given['edge_type'] = given['edge_type'].flip(0).int()


def test_negative_types_count_from_the_end_as_in_pyg():
    given, conv = example(), Typed()
    fused = pygfuse.compile(copy.deepcopy(conv))
    given['edge_type'] = given['edge_type'] - 2
    for _ in range(3):
        torch.testing.assert_close(fused(**given), conv(**given))
    assert 'types of edges that are no rows of their table' in fused.note.reason


@pytest.mark.parametrize('kind', [Typed, OfEdges])
def test_types_that_do_not_exist_raise_as_in_pyg(kind):
    given, conv = {**example(), 'edge_attr': torch.randn(EDGES, IN)}, pygfuse.compile(kind())
    given['edge_type'] = given['edge_type'] + 1
    for _ in range(3):
        with pytest.raises((IndexError, RuntimeError)):
            conv(**given)


def test_gradients_of_gradients():
    given, conv = example(), Typed().double()
    x = given['x'].detach().double().requires_grad_()
    fused = pygfuse.compile(conv)
    torch.autograd.gradgradcheck(lambda x: fused(**{**given, 'x': x}), (x,))


def test_what_is_kept_does_not_grow_with_edges():
    """Pairs of a type and a source are no more, whatever the number of edges is."""
    conv = pygfuse.compile(Typed())
    kept = []
    for edges in (600, 1200):
        given = example(edges)
        conv(**given)
        conv(**given)
        kept.append(saved_bytes(lambda given=given: conv(**given), exclude=[*given.values(), *conv.parameters()]))
    assert kept[0] == kept[1]


def test_no_matrix_of_an_edge_is_made():
    edges = 2000
    given, conv = {**example(edges), 'edge_attr': torch.randn(edges, IN)}, pygfuse.compile(OfEdges())
    conv(**given).sum().backward()
    assert peak_bytes(lambda: conv(**given).sum().backward()) < edges * IN * OUT * 4


@pytest.mark.parametrize(
    ('name', 'expected'),
    [('attention', {'typed_product'}), ('equation', {'typed_product', 'of_pairs'}), ('computed', set())],
)
def test_sources_are_mapped_once_a_pair(name, expected):
    torch.manual_seed(0)
    conv = pygfuse.compile(LAYERS[name]())
    conv(**given_of(GRAPHS['random']()))
    (plan,) = conv.plans()
    assert {node.op for node in in_order(plan.output)} & {'typed_product', 'of_pairs'} == expected


def test_computed_values_of_a_type_are_multiplied_together():
    """They are in memory, not in chunks of edges of all types."""
    torch.manual_seed(0)
    conv = pygfuse.compile(Computed())
    conv(**given_of(GRAPHS['random']()))
    (plan,) = conv.plans()
    assert plan.chunked_reductions == 0


@pytest.mark.parametrize('by', ['brackets', 'index_select'])
def test_negative_types_of_values_of_edges(by):
    class Negative(OfEdges):
        def message(self, x_j, edge_attr, edge_type):
            weight = self.weight[edge_type] if by == 'brackets' else self.weight.index_select(0, edge_type)
            return x_j[:, :OUT] * torch.bmm(edge_attr.unsqueeze(1), weight).squeeze(1)

    given, conv = {**example(), 'edge_attr': torch.randn(EDGES, IN)}, Negative()
    fused = pygfuse.compile(copy.deepcopy(conv))
    given['edge_type'] = given['edge_type'] - 2
    if by == 'brackets':
        torch.testing.assert_close(fused(**given), conv(**given))
    else:
        for layer in (conv, fused):
            with pytest.raises((RuntimeError, IndexError)):
                layer(**given)


class Dropped(Typed):
    """What is dropped is read twice: by the product, and as it is."""

    def __init__(self):
        super().__init__(TYPES, IN, IN)

    def message(self, x_i, x_j, edge_type):
        dropped = torch.nn.functional.dropout(x_i * x_j + 10.0, 0.5)
        return torch.bmm((2 * dropped).unsqueeze(1), self.weight[edge_type]).squeeze(1) - dropped


def test_what_is_dropped_is_drawn_once():
    given, conv = example(), Dropped()
    conv.weight.data = torch.eye(IN).expand(TYPES, -1, -1) / 2
    fused = pygfuse.compile(conv)
    assert fused(**given).abs().max() < 1e-4


class Stored(Typed):
    """What a type maps is stored for each edge."""

    def message(self, x_j, edge_type):
        self.mapped = torch.bmm(x_j.unsqueeze(1), self.weight[edge_type]).squeeze(1)
        return self.mapped.relu()


def test_what_is_mapped_and_stored_has_a_row_for_each_edge():
    given, conv = example(), Stored()
    fused = pygfuse.compile(copy.deepcopy(conv))
    torch.testing.assert_close(fused(**given), conv(**given))
    torch.testing.assert_close(fused.mapped, conv.mapped)
    assert fused.note.reason is None


class ByTwoTypes(Typed):
    def message(self, x_j, edge_type, other_type):
        first, second = self.weight[edge_type], self.weight[other_type]
        return torch.bmm(x_j.unsqueeze(1), first).squeeze(1) + torch.bmm(x_j.unsqueeze(1), second).squeeze(1)


class WithDegrees(Typed):
    def message(self, x_j, edge_type, edge_index, dim_size):
        norm = degree(edge_index[0], dim_size, dtype=x_j.dtype).clamp(min=1)[edge_index[0]]
        return torch.bmm(x_j.unsqueeze(1), self.weight[edge_type]).squeeze(1) / norm.view(-1, 1)


@pytest.mark.parametrize('kind', [ByTwoTypes, WithDegrees])
def test_what_is_mapped_has_a_row_for_each_edge_where_no_pairs_serve(kind):
    conv, given = kind(), example()
    given |= {'other_type': torch.arange(EDGES) % 3} if kind is ByTwoTypes else {}
    assert_as_pyg(conv, given)
    assert not any(node.op == 'of_pairs' for node in conv.plans()[0].steps)


def test_torch_compile_runs_pyg_s_operators():
    given, conv = example(), Typed()
    fused = torch.compile(pygfuse.compile(copy.deepcopy(conv)), backend='eager', fullgraph=True)
    torch.testing.assert_close(fused(**given), conv(**given))
