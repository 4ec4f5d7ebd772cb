"""What PyTorch is told of the operators."""

import pytest
import torch

import pygfuse.conv  # noqa: F401  registers the operators

# of numbers alone: a CUDA graph may record it
SAFE = ('pygfuse::dropout_factors',)
NAMES = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith('pygfuse::')]


@pytest.mark.parametrize('name', NAMES)
def test_operators_that_look_up_edges_stay_out_of_cuda_graphs(name):
    operator = getattr(torch.ops.pygfuse, name.removeprefix('pygfuse::')).default
    assert (torch.Tag.cudagraph_unsafe in operator.tags) is (name not in SAFE)


def test_all_operators_are_seen():
    assert len(NAMES) > 10
