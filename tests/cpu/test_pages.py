from __future__ import annotations

import torch

from pygfuse.cpu.pages import on_huge_pages


def test_it_is_the_same_tensor():
    for shape in ((3, 4), (2_000, 1_500), (0, 4)):
        tensor = torch.empty(shape)
        assert on_huge_pages(tensor) is tensor
        assert bool((tensor.fill_(2.0) == 2.0).all())
