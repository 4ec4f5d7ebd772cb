"""What is asked for on huge pages, and tensors that are not torch's own."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch


class Own(torch.Tensor):
    """A class of tensors that sees every call."""


def watched(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[int]:
    """The addresses that a module asks for on huge pages from here on; none is."""
    found: list[int] = []

    def on_huge_pages(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor.data_ptr())
        return tensor

    monkeypatch.setattr(module, 'on_huge_pages', on_huge_pages)
    return found
