from __future__ import annotations

import inspect
import re

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

import pygfuse
from pygfuse.conv import GATConv
from pygfuse.reporting import Report, Row
from pygfuse.transforms import ToSparseFeatures
from tests.support.parity import GRAPHS
from tests.support.reports import OwnConv, report_of

FEATURES = 6
GRAPH = GRAPHS['random']()


def test_report_is_a_table():
    model = nn.ModuleDict({'a': pyg.GATConv(16, 8), 'own': OwnConv(16, 8), 'lin': nn.Linear(2, 2)})
    text, rows = report_of(model)
    assert [(row.layer, row.module) for row in rows] == [
        ('a', 'GATConv(16, 8, heads=1)'),
        ('own', 'OwnConv(16, 8, heads=1)'),
    ]
    assert text.endswith('0 of 2 layers fused')
    assert 'no: call pygfuse.fuse(model)' in text
    text, _ = report_of(pygfuse.fuse(model, compile=False))
    lines = text.splitlines()
    assert lines[0].split() == ['layer', 'class', 'fused']
    assert lines[2] == 'a      GATConv(16, 8, heads=1)  yes'
    assert lines[3].startswith('own    OwnConv(16, 8, heads=1)  no: call pygfuse.compile(conv)')
    assert lines[-1] == '1 of 2 layers fused'


def test_report_of_nothing():
    assert report_of(nn.Linear(2, 2)) == ('no message passing layers', [])


def test_a_report_shows_itself(capsys):
    report = pygfuse.report(nn.ModuleDict({'<a>': pyg.GATConv(2, 2)}))
    assert capsys.readouterr().out == ''
    assert repr(report) == str(report)
    page = report._repr_html_()
    assert '<td>GATConv(2, 2, heads=1)</td>' in page
    assert '<td>&lt;a&gt;</td>' in page
    assert page.count('<tr>') == 2
    assert '0 of 1 layers fused' in page
    assert pygfuse.report(nn.Linear(2, 2))._repr_html_() == '<p>no message passing layers</p>'


def test_a_layer_of_several_lines_has_one():
    conv = pygfuse.fuse(pyg.GINConv(nn.Sequential(nn.Linear(2, 2), nn.ReLU())))
    _, (row,) = report_of(conv)
    assert row.module == 'GINConv(nn=Sequential(...))'


def test_a_layer_that_cannot_say_what_it_is():
    class Nameless(pyg.GCNConv):
        def __repr__(self):
            return f'Nameless({self.normalization})'

    _, (row,) = report_of(pygfuse.fuse(Nameless(2, 2)))
    assert row.module == 'Nameless(...)'


def test_a_report_of_no_module():
    with pytest.raises(TypeError, match=r"Expected 'model' to be a torch.nn.Module \(got list\)"):
        pygfuse.report([])


def test_a_report_says_what_would_help():
    conv = GATConv(FEATURES, 8)
    hook = conv.register_message_forward_hook(lambda module, inputs, out: out)
    text, (row,) = report_of(conv)
    assert row.advice == 'remove the hook'
    assert text.splitlines()[-1] == 'what would help (model): remove the hook'
    hook.remove()
    text, (row,) = report_of(conv)
    assert row.advice is None
    assert 'help' not in text


def test_a_report_counts_kernels():
    conv = GATConv(FEATURES, 8)
    conv(GRAPH.x(FEATURES), GRAPH.edge_index)
    counts = pygfuse.report(conv).kernels
    assert counts.compiled + counts.found > 0
    assert str(pygfuse.report(conv)).splitlines()[-1].startswith(f'kernels: {counts.compiled} compiled, ')


def test_an_explanation_before_the_first_call():
    assert str(pygfuse.explain(pygfuse.compile(pyg.SimpleConv()))) == 'no plan: call the layer first'


def test_report_after_an_explanation_tells_of_the_layer_as_it_is():
    conv = GATConv(FEATURES, 8)
    conv.explain, conv._edge_mask = True, torch.zeros(GRAPH.num_edges + 60)
    conv._loop_mask = torch.ones(GRAPH.num_edges, dtype=torch.bool)
    conv(GRAPH.x(FEATURES), GRAPH.edge_index)
    assert [row.why_not for row in report_of(conv)[1]] == ['an explainer reads its messages']
    conv.explain, conv._edge_mask = False, None
    assert [row.why_not for row in report_of(conv)[1]] == [None]


def test_a_compiled_layer_is_known_from_its_first_call_on():
    conv = pygfuse.fuse(pyg.TAGConv(FEATURES, 8))
    text, (row,) = report_of(conv)
    assert row.why_not == 'to be seen at its first call'
    assert 'no:' not in text
    assert text.endswith('0 of 1 layers fused')
    conv(GRAPH.x(FEATURES), GRAPH.edge_index)
    assert [row.why_not for row in report_of(conv)[1]] == [None]


WORDS = (torch.rand(600, 500, generator=torch.Generator().manual_seed(0)) < 0.01).float()
CYCLE = torch.stack([torch.arange(600), torch.arange(1, 601) % 600])
OF_WORDS = {
    'GCN': lambda: pyg.GCNConv(500, 4),
    'GAT': lambda: pyg.GATConv(500, 4),
    'GATv2': lambda: pyg.GATv2Conv(500, 4),
    'Transformer': lambda: pyg.TransformerConv(500, 4),
    'ResGated': lambda: pyg.ResGatedGraphConv(500, 4),
    'SAGE': lambda: pyg.SAGEConv(500, 4),
    'Graph': lambda: pyg.GraphConv(500, 4),
    'GIN': lambda: pyg.GINConv(nn.Linear(500, 4)),
}


@pytest.mark.parametrize('name', OF_WORDS)
def test_features_that_are_mostly_zero_are_told_of(name):
    conv = pygfuse.fuse(OF_WORDS[name]())
    for _ in range(2):
        conv(nn.functional.dropout(WORDS, 0.5), CYCLE)
    text, (row,) = report_of(conv)
    assert row.why_not is None
    assert 0.0 < row.density < 0.01
    assert re.search(r'what would help \(model\): 0\.\d % of its features are not zero: .*ToSparseFeatures', text)
    x = ToSparseFeatures()(Data(x=WORDS)).x
    conv(x, CYCLE)
    assert report_of(conv)[1][0].density is None


@pytest.mark.parametrize(
    'case', ['dense', 'few', 'a gradient is wanted', 'nothing is trained', 'not taken as they are']
)
def test_of_other_features_nothing_is_told(case):
    conv = pyg.FiLMConv(500, 4) if case == 'not taken as they are' else pyg.GCNConv(500, 4)
    conv = pygfuse.fuse(conv)
    x, edge_index = WORDS, CYCLE
    if case == 'dense':
        x = x + 1
    elif case == 'few':
        x, edge_index = x[:300], CYCLE[:, :299]
    elif case == 'a gradient is wanted':
        x = x.clone().requires_grad_()
    with torch.set_grad_enabled(case != 'nothing is trained'):
        conv(x, edge_index)
    text, (row,) = report_of(conv)
    assert row.why_not is None
    assert row.density is None
    assert 'what would help' not in text


class Sorted(pyg.MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return self.best(x_j)

    def best(self, x_j):
        return x_j.sort(-1)[0]


class ByValues(nn.Module):
    def forward(self, x, edge_index):
        degree = torch.zeros(x.size(0)).index_add(0, edge_index[1], torch.ones(edge_index.size(1)))
        degree[degree < 0.5] += 1.0
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]) / degree[:, None]


@pytest.mark.parametrize(('kind', 'text'), [(Sorted, 'x_j.sort(-1)[0]'), (ByValues, 'degree[degree < 0.5] += 1.0')])
def test_the_line_that_has_no_fused_form(kind, text):
    layer = pygfuse.compile(kind())
    layer(torch.randn(9, 4), torch.randint(9, (2, 30)))
    lines = inspect.getsource(inspect.getmodule(kind)).splitlines()
    place = f'test_reporting.py, line {next(k for k, line in enumerate(lines, 1) if line.strip().endswith(text))}'
    (row,) = pygfuse.report(nn.Sequential(layer))
    assert row.where == place
    assert f'no: {row.why_not} ({place})' in str(pygfuse.report(nn.Sequential(layer)))
    assert f'{row.why_not} ({place})' in str(pygfuse.explain(layer))


def test_reasons_of_no_line():
    row = Row('conv', 'GCNConv(1, 1)', 'a hook is registered on lin')
    assert row.where is None
    assert 'registered on lin\n' in str(Report((row,)))
