from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import pygfuse
from pygfuse.conv import GATConv
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
