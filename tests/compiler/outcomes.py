"""Whether what is compiled of random layers and modules gives what their own code gives."""

from __future__ import annotations

from collections.abc import Callable

import torch

import pygfuse
from pygfuse._lib.modes import changed
from tests.compiler import random_copies
from tests.compiler.messages import inputs, layer
from tests.compiler.random_modules import Holder, inputs_of, module


def outcome(
    seed: int,
    with_kernels: bool = False,
    is_traced: bool = False,
    of_modules: bool = False,
    of_copies: bool = False,
) -> str | None:
    """Why a random layer is refused, or None if it gave PyG's values and gradients.

    Args:
        seed: Of the layer and its inputs.
        with_kernels: Whether walks run, which takes seconds to compile, or torch computes their programs.
        is_traced: Whether ``torch.compile`` traces the layer, and kernels run.
        of_modules: Whether it is a module that gathers and reduces itself.
        of_copies: Whether it is one whose features have dimensions before that of nodes.

    Raises:
        AssertionError: If it gave others.
    """
    if of_copies:
        conv, source = random_copies.module(seed)
        given = random_copies.inputs_of(conv, seed)
    else:
        conv, source = module(seed) if of_modules else layer(seed)
        given = inputs_of(conv, seed) if of_modules else inputs(seed)
    if is_traced and 'torch_scatter.' in source:
        return 'torch knows no shapes of what torch_scatter gives'
    leaves = [tensor for tensor in given.values() if tensor.requires_grad] + list(conv.parameters())

    def run(call: Callable = conv) -> tuple[torch.Tensor, list[torch.Tensor], list[tuple]]:
        arguments = Holder(seed).holding(given) if of_modules else given
        norms = getattr(conv, 'norms', ())
        for norm in norms:
            norm.reset_running_stats()
        out = call(**arguments)
        # all that is returned, and what was stored
        parts = [*(out if isinstance(out, tuple) else (out,)), *([conv.stored] if hasattr(conv, 'stored') else [])]
        held = arguments.get('data', {})
        parts += [held[name] for name in sorted(held.keys()) if name not in given and name != 'others']
        parts += [norm.running_mean for norm in norms]
        layouts = [(part.dtype, part.shape, part.is_contiguous()) for part in parts]
        out = torch.cat([part.flatten() for part in parts])
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=out.dtype)
        found = torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True)
        found = [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]
        return out.detach(), found, layouts

    try:
        expected = run()
    except (RuntimeError, IndexError):
        return 'PyG does not run it either'
    if not all(bool(one.isfinite().all()) for one in (expected[0], *expected[1])):
        return 'its own numbers are none'
    pygfuse.compile(conv)
    if is_traced:
        torch._dynamo.reset()
        # of modules torch need not be able to trace their own code
        found = run(torch.compile(conv, backend='aot_eager', fullgraph=not (of_modules or of_copies)))
    else:
        with changed(fusion=with_kernels):
            found = run()
    if conv.note.reason is not None:
        return conv.note.reason
    assert conv.was_captured, 'nothing was compiled'
    for (*got, is_contiguous), (*wanted, was_contiguous) in zip(found[2], expected[2], strict=True):
        assert got == wanted, f'seed {seed}: {got}, expected {wanted}\n{source}'
        # callers may take views
        assert is_contiguous or not was_contiguous, f'seed {seed}: a result is not contiguous\n{source}'
    for name, got, wanted in zip(['output', *map(str, range(len(leaves)))], [found[0], *found[1]],
                                 [expected[0], *expected[1]], strict=True):  # fmt: skip
        scale = 1e-8 * max(1.0, float(wanted.abs().max()), *(float(g.abs().max()) for g in expected[1] if g.numel()))
        error = float((got - wanted).abs().max()) if got.numel() else 0.0
        assert error <= scale, f'seed {seed}, {name}: error {error:.3g}\n{source}'
    return None
