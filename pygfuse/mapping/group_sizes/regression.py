"""Group sizes by linear regression over a graph's numbers of vertices and edges and its mean degree."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from pygfuse.graph.csr import Csr
from pygfuse.mapping.group_sizes.chooser import TABLE
from pygfuse.mapping.records import Shape


@dataclasses.dataclass(frozen=True)
class Regression:
    """The regression of Xu et al., equation 3.

    size = constant + vertices * #vertices + edges * #edges + mean_degree * #edges / #vertices

    Attributes:
        constant, vertices, edges, mean_degree: The coefficients.

    Example:
        >>> PUBLISHED.size(Shape(num_rows=81_306, num_edges=1_342_296, max_degree=1))
        10
    """

    constant: float
    vertices: float
    edges: float
    mean_degree: float

    def size(self, shape: Shape) -> int:
        """The nearest positive integer to the value of the regression."""
        value = torch.dot(torch.tensor(dataclasses.astuple(self), dtype=torch.double), _regressors(shape))
        return max(1, round(float(value)))

    @staticmethod
    def fit(shapes: Sequence[Shape], sizes: Sequence[float]) -> Regression:
        """The least-squares fit, of relative errors so that small graphs count as much as large ones.

        Args:
            shapes: Graphs.
            sizes: The best group size of each.

        Raises:
            ValueError: If there are fewer graphs than coefficients.

        Example:
            >>> shapes = [Shape(10 * i * i, 100 * i, 0) for i in range(1, 7)]
            >>> fitted = Regression.fit(shapes, [8 + shape.num_edges / 4 for shape in shapes])
            >>> round(fitted.constant, 6), round(fitted.edges, 6)
            (8.0, 0.25)
        """
        if len(shapes) < 4:
            raise ValueError(f"Expected 'shapes' to hold at least 4 graphs (got {len(shapes)})")
        wanted = torch.tensor(sizes, dtype=torch.double)
        rows = torch.stack([_regressors(shape) for shape in shapes]) / wanted.unsqueeze(1)
        # columns of about equal length: edges are counted in millions, degrees in tens
        lengths = rows.norm(dim=0)
        found = torch.linalg.lstsq(rows / lengths, torch.ones(len(shapes), 1, dtype=torch.double)).solution
        return Regression(*(found.flatten() / lengths).tolist())


# fitted by its authors on an NVIDIA P100
PUBLISHED = Regression(constant=0.65538, vertices=1.67431e-5, edges=-2.24342e-6, mean_degree=0.63641)

_KEY = 'regression'


def _regressors(shape: Shape) -> torch.Tensor:
    degree = shape.num_edges / max(shape.num_rows, 1)
    return torch.tensor([1.0, shape.num_rows, shape.num_edges, degree], dtype=torch.double)


def remember(regression: Regression) -> None:
    """Keeps coefficients for this processor with as many threads."""
    TABLE.remember({_KEY: dataclasses.asdict(regression)})


def in_use() -> Regression:
    """The coefficients remembered for this processor, else the published ones."""
    found = TABLE.get(_KEY)
    try:
        return PUBLISHED if found is None else Regression(**found)
    except TypeError:  # written by another version
        return PUBLISHED


def group_size(csr: Csr, row_bytes: int) -> int:
    """The size of the regression; the width does not enter (see `pygfuse.mapping.group_sizes.chooser.Chooser`).

    On a GPU it is the published regression's.
    """
    regression = in_use() if csr.indptr.device.type == 'cpu' else PUBLISHED
    return regression.size(Shape(csr.num_rows, csr.num_edges, 0))
