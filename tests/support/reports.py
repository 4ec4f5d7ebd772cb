"""Reports of models as tests read them."""

from __future__ import annotations

import io

import torch_geometric.nn as pyg

import pygfuse


class OwnConv(pyg.GATConv):
    """A user's subclass."""


def report_of(model) -> tuple[str, list]:
    text = io.StringIO()
    rows = list(pygfuse.report(model, file=text))
    return text.getvalue(), rows
