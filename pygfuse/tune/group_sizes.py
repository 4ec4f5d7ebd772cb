"""Group sizes by measurement: the size under which summing rows over the edges takes the least time."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping as Named
from collections.abc import Sequence

import torch

from pygfuse._lib.backends import backend_of
from pygfuse.call.call import Call
from pygfuse.graph.csr import Csr
from pygfuse.graph.graph import Graph
from pygfuse.mapping.cost_model import modelled
from pygfuse.mapping.group_sizes.chooser import TABLE
from pygfuse.mapping.mapping import PARTS_LIMIT, Mapping, force_mapping
from pygfuse.mapping.records import Shape, key_of
from pygfuse.program.library.neighbours import NEIGHBOURS

# rounds of a search; sizes that take at most so many times the least time count as equally fast
ROUNDS, TOLERANCE = 7, 1.02


def candidates(shape: Shape) -> list[int]:
    """Powers of two, from the least size that a CPU's limit of parts allows to the first that holds the whole graph.

    Example:
        >>> candidates(Shape(num_rows=1_000, num_edges=5_000, max_degree=40))
        [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
    """
    work = max(1, shape.num_rows + shape.num_edges)
    smallest = -(-work // PARTS_LIMIT)
    return [2**k for k in range((smallest - 1).bit_length(), (work - 1).bit_length() + 1)]


def walk_times(csr: Csr, row_bytes: int, sizes: Sequence[int], rounds: int) -> dict[int, list[float]]:
    """Seconds of a sum of float32 rows over the edges under each group size; the sizes take turns.

    Args:
        csr: The edges by row.
        row_bytes: Bytes of a row of channels.
        sizes: Group sizes.
        rounds: How often each is measured.
    """
    width = max(1, row_bytes // 4)
    x = torch.ones(1 + int(csr.index.max()) if csr.num_edges else 1, width)
    # a graph of its own: an execution path's rows are not numbered as the graph's
    edge_index = torch.stack([csr.index.to(torch.int64), csr.rows()])
    graph = Graph.of(edge_index, num_sources=len(x), num_targets=csr.num_rows)
    call = Call(NEIGHBOURS.bind(('x',)), graph, {'x': x}, {}, 1, width)
    balance = modelled(Shape.of(csr), row_bytes).balance
    backend, times = backend_of(x.device), {size: [] for size in sizes}
    for i in range(rounds + 1):
        for size, found in times.items():
            with force_mapping(Mapping(balance, size)):
                start = time.perf_counter()
                backend.forward(call)
                seconds = time.perf_counter() - start
            if i > 0:  # the first compiles and cuts
                found.append(seconds)
    return times


def best_size(seconds: Named[int, float]) -> int:
    """Of the sizes that are about as fast as the fastest, the one in the middle.

    Args:
        seconds: Time under each size.

    Example:
        >>> best_size({64: 2.0, 128: 1.01, 256: 1.0, 512: 1.015, 1024: 3.0, 2048: 1.01})
        512
    """
    least = TOLERANCE * min(seconds.values())
    fast = {size: math.log2(size) for size, time in seconds.items() if time <= least}
    middle = statistics.mean(fast.values())
    return min(fast, key=lambda size: (abs(fast[size] - middle), seconds[size]))


def searched(csr: Csr, row_bytes: int) -> int:
    """The size that a search finds now, whatever is remembered."""
    times = walk_times(csr, row_bytes, candidates(Shape.of(csr)), ROUNDS)
    return best_size({size: statistics.median(found) for size, found in times.items()})


def group_size(csr: Csr, row_bytes: int) -> int | None:
    """The size found by search, remembered for graphs of about this shape: a `Chooser`."""
    if csr.indptr.device.type != 'cpu':
        return None
    shape = Shape.of(csr)
    key = f'{key_of(shape)}, {row_bytes} bytes'
    found = TABLE.get(key)
    if isinstance(found, int) and found > 0:
        return found
    size = searched(csr, row_bytes)
    TABLE.remember({key: size})
    return size
