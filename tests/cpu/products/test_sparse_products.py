"""Products of a sparse matrix with a dense one: the numbers of torch, whatever the widths, rows and threads."""

from __future__ import annotations

import pytest
import torch

from pygfuse.cpu.edges.sort import transpose
from pygfuse.cpu.products.sparse_products import product
from pygfuse.graph.csr import Csr

ROWS, COLUMNS = 300, 41


def matrix(share=0.1, dtype=torch.float32):
    """A matrix with rows of no value, a row and a column of many, as its values by row, and as it is."""
    generator = torch.Generator().manual_seed(1)
    dense = torch.randn(ROWS, COLUMNS, dtype=dtype, generator=generator)
    is_kept = torch.rand(ROWS, COLUMNS, generator=generator) < share
    is_kept[7], is_kept[:, 3], is_kept[20:30] = True, True, False
    dense = dense.masked_fill(~is_kept, 0.0)
    row, column = dense.nonzero(as_tuple=True)
    pointer = torch.nn.functional.pad(torch.bincount(row, minlength=ROWS).cumsum(0), (1, 0))
    return Csr(pointer.int(), column.int(), None), dense[row, column], dense


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('width', [1, 7, 16, 17, 64, 65, 130])
def test_numbers(width, dtype):
    csr, values, dense = matrix(dtype=dtype)
    other = torch.randn(COLUMNS, width, dtype=dtype)
    torch.testing.assert_close(product(csr, values, other), dense @ other)


@pytest.mark.parametrize('width', [1, 64, 70])
def test_of_the_transpose(width):
    csr, values, dense = matrix()
    other = torch.randn(ROWS, width)
    pointer, row, position = transpose(csr.indptr, csr.index, COLUMNS)
    found = product(Csr(pointer, row, None, position), values, other)
    torch.testing.assert_close(found, dense.t() @ other)


@pytest.mark.parametrize('shape', [(0, 5, 3), (4, 5, 0), (4, 0, 3)])
def test_nothing(shape):
    rows, columns, width = shape
    csr = Csr(torch.zeros(rows + 1, dtype=torch.int32), torch.empty(0, dtype=torch.int32), None)
    assert torch.equal(product(csr, torch.empty(0), torch.ones(columns, width)), torch.zeros(rows, width))


def test_bits_do_not_depend_on_threads():
    csr, values, _ = matrix(share=0.9)
    other, threads, found = torch.randn(COLUMNS, 130), torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(product(csr, values, other))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_what_is_not_finite_stays_where_it_is():
    csr, values, dense = matrix()
    other = torch.ones(COLUMNS, 20)
    other[3, 5] = float('nan')
    found = product(csr, values, other)
    # torch's dense product has NaN in each row; of a sparse one only rows with that column have
    assert found[:, 5].isnan().tolist() == (dense[:, 3] != 0).tolist()
    assert not found[:, :5].isnan().any()
