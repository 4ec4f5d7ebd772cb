"""The ways in which users copy a module: deep copies, pickles, and files."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import torch
from torch.nn import Module


def copies(module: Module, folder: Path) -> tuple[Module, Module, Module]:
    """A deep copy of `module`, one by `pickle`, and one by `torch.save` into `folder`."""
    torch.save(module, folder / 'module.pt')
    return (
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(folder / 'module.pt', weights_only=False),
    )
