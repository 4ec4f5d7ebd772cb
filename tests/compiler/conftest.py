from __future__ import annotations

import pytest

from tests.compiler.cases import NEED_TORCH_SPARSE, Case


@pytest.fixture(autouse=True)
def libraries_of_the_case(request) -> None:
    """Asks for torch_sparse where PyG's own layer needs it."""
    case = getattr(request.node, 'callspec', None) and request.node.callspec.params.get('case')
    if isinstance(case, Case) and case.name in NEED_TORCH_SPARSE:
        request.getfixturevalue('needs_torch_sparse')
