"""Group sizes by regression."""

import dataclasses

import pytest
import torch

from pygfuse.graph.csr import Csr
from pygfuse.mapping.group_sizes import regression
from pygfuse.mapping.group_sizes.regression import PUBLISHED, Regression
from pygfuse.mapping.records import Shape


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv('PYGFUSE_CACHE_DIR', str(tmp_path))
    yield
    regression.TABLE.reload()


def csr_of(degrees):
    indptr = torch.tensor([0, *degrees]).cumsum(0)
    return Csr(indptr, torch.zeros(int(indptr[-1]), dtype=torch.int64), None)


def test_the_published_equation():
    # 0.65538 + 1.67431e-5 V - 2.24342e-6 E + 0.63641 E / V on the paper's Blog and Youtube
    assert PUBLISHED.size(Shape(88_784, 2_093_195, 0)) == round(0.65538 + 1.48652 - 4.69592 + 15.00414)
    assert PUBLISHED.size(Shape(1_134_890, 2_987_624, 0)) == round(0.65538 + 19.00158 - 6.70249 + 1.67535)


def test_sizes_are_at_least_one():
    assert PUBLISHED.size(Shape(10**6, 10**8, 0)) == 1
    assert PUBLISHED.size(Shape(0, 0, 0)) == 1


def test_a_fit_finds_what_it_was_made_with():
    made = Regression(20.0, 0.002, 0.001, 1.5)
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(1_000, 1_000_000, (30, 2), generator=generator).tolist()
    shapes = [Shape(rows, edges, 0) for rows, edges in numbers]
    exact = [float(torch.dot(torch.tensor(dataclasses.astuple(made)).double(), _terms(s))) for s in shapes]
    fitted = Regression.fit(shapes, exact)
    assert dataclasses.astuple(fitted) == pytest.approx(dataclasses.astuple(made), rel=1e-6)


def _terms(shape):
    degree = shape.num_edges / shape.num_rows
    return torch.tensor([1.0, shape.num_rows, shape.num_edges, degree], dtype=torch.double)


def test_a_fit_weighs_small_graphs_as_large_ones():
    shapes = [Shape(100 * 3**k, 1_000 * 2**k, 0) for k in range(8)]
    sizes = [shape.num_edges ** (2 / 3) for shape in shapes]
    fitted = Regression.fit(shapes, sizes)
    assert all(0.5 < fitted.size(shape) / size < 2 for shape, size in zip(shapes, sizes, strict=True))


def test_too_few_graphs():
    with pytest.raises(ValueError, match=r"'shapes'.*4.*3"):
        Regression.fit([Shape(1, 2, 3)] * 3, [1.0] * 3)


def test_remembered_coefficients_take_the_place_of_the_published_ones():
    csr = csr_of([3] * 100)
    assert regression.group_size(csr, 64) == PUBLISHED.size(Shape.of(csr)) == 3
    regression.remember(Regression(100.0, 1.0, 0.0, 0.0))
    assert regression.group_size(csr, 64) == 200
    regression.TABLE.forget()
    assert regression.group_size(csr, 64) == 3


def test_what_another_version_wrote_is_ignored():
    regression.TABLE.remember({'regression': {'slope': 2}})
    assert regression.in_use() == PUBLISHED
