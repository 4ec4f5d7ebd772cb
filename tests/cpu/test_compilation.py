"""Kernels that LLVM once failed to compile, which ends the process: each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GAUSSIAN = """
import torch
from pygfuse.mapping.mapping import force_mapping
from tests.ops.test_aggregate import PROGRAMS, check_in_type, random_edges, random_operands, used

chosen, edges = PROGRAMS['gaussian'], random_edges(num_edges=300, seed=4)
operands = random_operands(used(chosen), edges, 1, {channels})
with force_mapping('scatter'):
    check_in_type(chosen, edges, operands, 1, {channels}, 'sum', torch.{dtype})
assert not edges.graph().is_sorted
"""


@pytest.mark.slow
@pytest.mark.parametrize(('dtype', 'channels'), [('float64', 8), ('float32', 300)])
def test_the_adjoint_of_gaussians_of_one_head_along_edges_in_no_order(dtype, channels, tmp_path):
    text = GAUSSIAN.format(dtype=dtype, channels=channels)
    environment = {**os.environ, 'PYGFUSE_CACHE_DIR': str(tmp_path)}
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, '-c', text], env=environment, cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
