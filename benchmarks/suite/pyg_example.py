"""Runs one of PyG's example scripts, unchanged, for some seconds, with its models fused or as they are.

    python benchmarks/suite/pyg_example.py EXAMPLE --side pygfuse --seconds 4 --planetoid ROOT

Models are fused where their optimiser is made. Prints, as JSON, the seconds between steps of the optimiser, as which an
epoch of a script counts that has one step in each, and the lines that the script has printed. Data sets are those of
`stand_ins.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import itertools
import json
import random
import runpy
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stand_ins import put_in_place
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

import pygfuse

# steps before times count: what is compiled, and what caches hold later
WARM_UP = 3
_FEWEST = 3


class _Enough(BaseException):
    """Ends a script."""


class Clock:
    """Notes when an optimiser steps, and ends the script after so many seconds of steps that count."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.times = seconds, []

    def __call__(self, *_: Any) -> None:
        self.times.append(time.perf_counter())
        counted = self.times[WARM_UP:]
        if len(counted) > _FEWEST and counted[-1] - counted[0] > self.seconds:
            raise _Enough

    @property
    def between(self) -> list[float]:
        """Seconds between the steps that count."""
        counted = self.times[WARM_UP:]
        return [later - earlier for earlier, later in itertools.pairwise(counted)]


def models_of(parameters: Iterable[torch.Tensor]) -> list[Module]:
    """The outermost modules that hold some of these parameters."""
    wanted = {id(parameter) for parameter in parameters}
    found = [one for one in gc.get_objects() if isinstance(one, Module) and wanted & {*map(id, one.parameters())}]
    within = {id(part) for module in found for part in module.modules() if part is not module}
    return [module for module in found if id(module) not in within]


def fuse_with_optimisers() -> None:
    """Has each optimiser that is made fuse the models whose parameters it is given."""
    made = Optimizer.__init__

    def init(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        for model in models_of(parameter for group in self.param_groups for parameter in group['params']):
            pygfuse.fuse(model)

    Optimizer.__init__ = init


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('example', type=Path, help='a file of examples/ in a checkout of PyG')
    parser.add_argument('--side', choices=('PyG', 'pygfuse'), default='pygfuse')
    parser.add_argument('--seconds', type=float, default=4.0)
    parser.add_argument('--planetoid', help="where PyG's Planetoid data lie, or are downloaded to")
    parser.add_argument('--threads', type=int)
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    warnings.simplefilter('ignore')
    put_in_place(options.planetoid)
    if options.side == 'pygfuse':
        fuse_with_optimisers()
    clock, printed = Clock(options.seconds), io.StringIO()
    register_optimizer_step_post_hook(clock)
    sys.argv = [str(options.example)]
    sys.path.insert(0, str(options.example.parent))
    with contextlib.redirect_stdout(printed), contextlib.suppress(_Enough):
        runpy.run_path(str(options.example), run_name='__main__')
    print(json.dumps({'seconds': clock.between, 'lines': printed.getvalue().split('\n')[:-1]}))


if __name__ == '__main__':
    main()
