"""What a library is to be compared: whether it is there, and how it computes a layer that PyG has."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from pygfuse.bench.layers import Layer, Training


@dataclasses.dataclass(frozen=True)
class Problem:
    """What all sides compute: a layer with its parameters, on one graph.

    Attributes:
        name: The name of the layer.
        layer: How it is made.
        plain: PyG's, whose parameters the others take over where they can.
        training: The graph and the inputs.
        heads: How many heads its output has, 1 if it knows none.
        channels: How wide one is.
    """

    name: str
    layer: Layer
    plain: torch.nn.Module
    training: Training
    heads: int
    channels: int


@dataclasses.dataclass(frozen=True)
class Side:
    """One library's layer.

    Attributes:
        module: Has the parameters.
        forward: Computes the output.
    """

    module: torch.nn.Module
    forward: Callable[[], Tensor]


@dataclasses.dataclass(frozen=True)
class Provider:
    """A library.

    Attributes:
        name: As it is called in tables.
        side: Its layer for a problem, or None if it has none.
        needs: By module, what has to be installed for it.
        device: The kind of device that it runs on alone, if there is one.
        pause: Seconds until its threads are asleep, in which all sides wait.
    """

    name: str
    side: Callable[[Problem], Side | None]
    needs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    device: str | None = None
    pause: float = 0.0

    def why_not(self, device: torch.device) -> str | None:
        """Why it cannot run on a device, and what to install; None if it can."""
        if self.device not in (None, device.type):
            return f'runs on {self.device} alone'
        missing = [f'{module} ({install})' for module, install in self.needs.items() if not is_there(module)]
        return f'needs {", ".join(missing)}' if missing else None


def is_there(module: str) -> bool:
    """Whether a module can be imported, as far as that is known without doing so."""
    try:
        found = importlib.util.find_spec(module)
        return found is not None and found.origin is not None  # a mere folder of that name has no origin
    except (ImportError, OSError, ValueError):  # no package around it, or one that cannot be loaded
        return False
