"""How much memory a piece of training code takes (what autograd keeps for backward, and the peak), and what becomes of
memory that is freed."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd.profiler import profile
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from pygfuse._lib import kept_pages
from pygfuse._lib.announcement import warn_once

__all__ = ['keep_pages', 'peak_bytes', 'release_pages', 'saved_bytes']


def saved_bytes(function: Callable[[], object], *, exclude: Iterable[Tensor] = ()) -> int:
    r"""Bytes that autograd saves for backward while ``function()`` runs.

    Every storage is counted once and whole, however many operations save it or a view of it. What an
    operation keeps by other means than autograd's (a plain attribute of an
    :class:`torch.autograd.Function`'s context, say) is not seen.

    Args:
        function: The forward computation, called once without arguments; it may run backward too.
        exclude: Tensors whose storages do not count, because they live anyway: parameters, input features,
            index arrays. Tensors of any shape and layout (strided, sparse, or a subclass that wraps others
            such as :class:`~torch_geometric.EdgeIndex`).

    Returns:
        The sum of the sizes of the saved storages, in bytes.

    Raises:
        TypeError: If ``exclude`` is a tensor rather than an iterable of tensors, or holds something else.

    Example:
        >>> x = torch.ones(1000, requires_grad=True)
        >>> saved_bytes(lambda: x.exp().sum())  # exp saves its result, the sum nothing
        4000
        >>> saved_bytes(lambda: (x * x).sum(), exclude=[x])
        0
    """
    excluded = {storage._cdata for tensor in _tensors(exclude) for storage in _storages(tensor)}
    saved: dict[int, torch.UntypedStorage] = {}  # holds the storages, so that no address is used twice

    def pack(tensor: Tensor) -> Tensor:
        saved.update((storage._cdata, storage) for storage in _storages(tensor))
        return tensor.detach()  # an output that holds itself would never be freed

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return sum(storage.nbytes() for key, storage in saved.items() if key not in excluded)


def peak_bytes(function: Callable[[], object], *, device: torch.device | str = 'cpu', warmup: int = 0) -> int:
    r"""Peak of the bytes that torch allocates on a device while ``function()`` runs, above where it started.

    On a CPU every allocation and release of torch's allocator is replayed, so the figure is exact and
    includes temporaries inside custom operations and in backward. It does not include what other libraries
    allocate for themselves (NumPy arrays, work space of BLAS), nor allocations on threads that ``function``
    starts. A release counts only if torch's profiler saw the allocation: where ``function`` frees tensors
    made before (the gradients of the previous step, say) the figure is an upper bound, and ``warmup=1`` makes
    it exact again if these tensors are what the call before left.

    On a GPU the figure comes from torch's caching allocator, whose peak statistics are reset.

    Args:
        function: The computation, called ``warmup + 1`` times without arguments.
        device: The device whose memory counts, a CPU or a CUDA device.
        warmup: How many calls come before the one that is measured.

    Returns:
        The peak in bytes, at least 0.

    Raises:
        ValueError: If ``device`` is neither a CPU nor a CUDA device, or ``warmup`` is negative.
        RuntimeError: If torch's profiler is running already (on a CPU).

    Example:
        >>> x = torch.ones(1000)
        >>> peak_bytes(lambda: x.exp().exp().exp())  # never more than an argument and its result
        8000
    """
    device = torch.device(device)
    if warmup < 0:
        raise ValueError(f"Expected 'warmup' to be at least 0 (got {warmup})")
    if device.type == 'cuda':
        return _peak_bytes_cuda(function, device, warmup)
    if device.type != 'cpu':
        raise ValueError(f"Expected 'device' to be a CPU or a CUDA device (got '{device}')")

    for _ in range(warmup):  # under the profiler too, or it would not recognise these blocks when they are freed
        _allocations(function)
    level = peak = 0
    for nbytes in _allocations(function):
        level += nbytes
        peak = max(peak, level)
    return peak


def keep_pages(limit_bytes: int | None = None) -> bool:
    r"""Has this process keep memory that is freed, for tensors to come.

    A tensor of many megabytes is new memory each time, and the system clears each of its pages when it is first
    written to. On a graph of many nodes and few edges that takes a good part of a training step. After this call the C
    library (glibc) takes tensors, whoever makes them, from memory that was freed before.

    It holds for **the whole process** until it ends, and for all threads and libraries in it: call it from a program,
    not from a library. What is kept counts as memory of the process, at most as much as it needed at once, and what is
    lost between blocks of different sizes. Tensors of more than 64 MB that other threads make are not kept.

    Args:
        limit_bytes: As soon as more than that is free at the end of the heap it is given back, at most 2 GiB - 1; None
            for no such bound, 0 for what glibc does by itself.

    Returns:
        Whether it is so. Where the C library is not glibc, or another allocator takes its place, nothing changes and a
        warning (logger ``pygfuse``) says why.

    Raises:
        ValueError: If `limit_bytes` is negative, or more than glibc can be told.

    Example:
        >>> is_kept = keep_pages(2**30)
        >>> was_free = release_pages()
        >>> is_kept = keep_pages(0)
    """
    if limit_bytes is not None and not 0 <= limit_bytes <= kept_pages.MOST_BYTES:
        raise ValueError(
            f"Expected 'limit_bytes' to be None or between 0 and {kept_pages.MOST_BYTES} (got {limit_bytes})"
        )
    reason = kept_pages.why_not()
    if reason is not None:
        warn_once('kept pages', 'Freed memory is not kept: %s', reason)
        return False
    return kept_pages.keep(kept_pages.NO_BOUND if limit_bytes is None else limit_bytes)


def release_pages() -> bool:
    """Gives memory that is free, and was kept, back to the system; see `keep_pages`, which stays in force.

    Returns:
        Whether there was any.

    Example:
        >>> was_free = release_pages()
        >>> isinstance(was_free, bool)
        True
    """
    return kept_pages.why_not() is None and kept_pages.release()


def _peak_bytes_cuda(function: Callable[[], object], device: torch.device, warmup: int) -> int:
    for _ in range(warmup):
        function()
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    start = torch.cuda.memory_allocated(device)
    function()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - start


def _allocations(function: Callable[[], object]) -> list[int]:
    """Sizes of the CPU blocks that ``function()`` allocates (positive) and releases (negative), in order."""
    if torch.autograd._profiler_enabled():
        raise RuntimeError("peak_bytes() needs torch's profiler for itself, but it is running already")
    gc.collect()  # garbage of the caller must not be collected half-way
    with _quiet_profiler(), profile(profile_memory=True) as profiler:
        function()
    memory = [
        event
        for event in profiler.kineto_results.events()
        if event.name() == '[memory]' and event.device_type() == torch.autograd.DeviceType.CPU
    ]
    return [event.nbytes() for event in sorted(memory, key=lambda event: event.start_ns())]


@contextmanager
def _quiet_profiler() -> Iterator[None]:
    """Keeps the profiler from announcing itself on stderr (its level is read at its first start)."""
    name = 'KINETO_LOG_LEVEL'
    if name in os.environ:
        yield
        return
    os.environ[name] = '6'
    try:
        yield
    finally:
        os.environ.pop(name, None)


def _tensors(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    if isinstance(tensors, Tensor):
        raise TypeError(f"Expected 'exclude' to be an iterable of tensors (got a tensor of shape {[*tensors.shape]})")
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"Expected 'exclude' to hold tensors only (got a {type(tensor).__name__})")
        yield tensor


def _storages(tensor: Tensor) -> Iterator[torch.UntypedStorage]:
    """The storages that hold a tensor: several if it is sparse or wraps other tensors, otherwise one."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        parts = [getattr(tensor, name) for name in names]
    elif tensor.layout == torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    else:
        yield tensor.untyped_storage()
        return
    for part in parts:
        yield from _storages(part)
