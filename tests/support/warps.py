"""Runs the warps of a kernel that `tests.support.translation` has translated: lanes one after another, each up to its
next shuffle, where all lanes that it shuffles with have to arrive; warps one after another, up to a barrier, where all
of their block have to.

So lanes of a team are out of step between shuffles, as far as a GPU may have them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import types

from tests.support.coroutine import FINISHED, NOBODY

WARP = 32
# what a launch is told
RIGHT, APART, NO_PART, STRAY = range(4)
# where in a lane's exchange its value, the lanes that take part, the distance and the shuffle stand
_VALUE, _MEMBERS, _DISTANCE, _PLACE = range(4)

_CALLS = """
declare void @llvm.coro.resume(ptr)
declare void @llvm.coro.destroy(ptr)

define i64 @pygfuse_tests_begin(i64 %kernel, i64 %parameters, i64 %thread, i64 %threads, i64 %block_x, i64 %block_y,
                                i64 %blocks_x, i64 %lane, i64 %exchange, i64 %memory) {
  %function = inttoptr i64 %kernel to ptr
  %words = inttoptr i64 %parameters to ptr
  %a = trunc i64 %thread to i32
  %b = trunc i64 %threads to i32
  %c = trunc i64 %block_x to i32
  %d = trunc i64 %block_y to i32
  %e = trunc i64 %blocks_x to i32
  %f = trunc i64 %lane to i32
  %place = inttoptr i64 %exchange to ptr
  %shared = inttoptr i64 %memory to ptr
  %handle = call ptr %function(ptr %words, i32 %a, i32 %b, i32 %c, i32 %d, i32 %e, i32 %f, ptr %place, ptr %shared)
  %number = ptrtoint ptr %handle to i64
  ret i64 %number
}

define void @pygfuse_tests_resume(i64 %number) {
  %handle = inttoptr i64 %number to ptr
  call void @llvm.coro.resume(ptr %handle)
  ret void
}

define void @pygfuse_tests_destroy(i64 %number) {
  %handle = inttoptr i64 %number to ptr
  call void @llvm.coro.destroy(ptr %handle)
  ret void
}
"""


def compiled(text: str, level: int = 1) -> llvm.ExecutionEngine:
    """A module of LLVM's text as machine code of this processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True
    )
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=level))
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


# machine code that is called as long as the process runs
_kept: list[llvm.ExecutionEngine] = []


@functools.cache
def runner() -> Callable[..., Any]:
    """``run(kernel, parameters, fault, blocks_x, blocks, threads, shared_bytes, first, step, turn)``: a whole launch.

    Block after block they are those numbered ``first``, ``first + step`` and so on (modulo their number), and of each
    the threads are taken in the order of their numbers with the bits of `turn` changed. What it returns is `RIGHT` or
    what went wrong; it ends as soon as ``fault``, a word in memory, is not zero.
    """
    engine = compiled(_CALLS)
    _kept.append(engine)
    number = types.intp
    functions = {}
    for name, arguments, result in (('begin', 10, number), ('resume', 1, types.void), ('destroy', 1, types.void)):
        full_name = f'pygfuse_tests_{name}'
        llvm.add_symbol(full_name, engine.get_function_address(full_name))
        functions[name] = types.ExternalFunction(full_name, result(*[number] * arguments))
    begin, resume, destroy = functions['begin'], functions['resume'], functions['destroy']

    @numba.njit(number(types.int32[:, ::1]))
    def exchanged(lanes):
        """Gives each lane that shuffles its partner's value."""
        present = 0
        for lane in range(WARP):
            if lanes[lane, _PLACE] != FINISHED:
                present |= 1 << lane
        values = lanes[:, _VALUE].copy()
        for lane in range(WARP):
            if not present >> lane & 1:
                continue
            members = numba.int64(numba.uint32(lanes[lane, _MEMBERS]))
            if members == NOBODY:
                return APART
            partner = lane ^ lanes[lane, _DISTANCE]
            if not (members >> lane & 1 and partner < WARP and members >> partner & 1):
                return NO_PART
            first = 0
            while not members >> first & 1:
                first += 1
            for other in (first, partner):
                same = lanes[other, _PLACE] == lanes[lane, _PLACE] and lanes[other, _MEMBERS] == lanes[lane, _MEMBERS]
                if not same or present & members != members:
                    return APART
            lanes[lane, _VALUE] = values[partner]
        return RIGHT

    @numba.njit(types.boolean(types.int32[:, ::1]))
    def waits(lanes):
        """Whether lanes wait at a barrier: one that has ended, or waits elsewhere, does not."""
        same = lanes[:, _PLACE] == lanes[0, _PLACE]
        return lanes[0, _PLACE] != FINISHED and same.all() and (lanes[:, _MEMBERS] == NOBODY).all()

    @numba.njit(number(types.int32[:, ::1], types.int64[::1], types.int64[::1], number))
    def walked(lanes, handles, fault, turn):
        """Runs the lanes of a warp until all wait at a barrier, or have ended."""
        while not (lanes[:, _PLACE] == FINISHED).all() and not waits(lanes):
            problem = STRAY if fault[0] else exchanged(lanes)
            if problem != RIGHT:
                return problem
            for i in range(WARP):
                if lanes[i ^ turn, _PLACE] != FINISHED:
                    resume(handles[i ^ turn])
        return RIGHT

    @numba.njit(number(*[number] * 2, types.int64[::1], *[number] * 7))
    def run(kernel, parameters, fault, blocks_x, blocks, threads, shared_bytes, first, step, turn):
        lanes, handles = np.zeros((threads, 4), dtype=np.int32), np.zeros(threads, dtype=np.int64)
        shared, problem = np.zeros(shared_bytes // 8 + 1, dtype=np.int64), RIGHT
        for which in range(blocks):
            block = (first + which * step) % blocks
            for i in range(threads):
                thread = i ^ turn
                handles[thread] = begin(
                    kernel, parameters, thread, threads, block % blocks_x, block // blocks_x, blocks_x, thread % WARP,
                    lanes.ctypes.data + thread * 16, shared.ctypes.data,
                )  # fmt: skip
            while problem == RIGHT and not (lanes[:, _PLACE] == FINISHED).all():
                for i in range(0, threads, WARP):
                    warp = (i ^ turn) // WARP * WARP
                    if problem == RIGHT:
                        problem = walked(lanes[warp : warp + WARP], handles[warp : warp + WARP], fault, turn % WARP)
                if problem == RIGHT and waits(lanes):
                    for i in range(threads):
                        resume(handles[i ^ turn])
                elif problem == RIGHT and not (lanes[:, _PLACE] == FINISHED).all():
                    problem = APART
            for thread in range(threads):
                destroy(handles[thread])
            if fault[0]:
                problem = STRAY
            if problem != RIGHT:
                break
        return problem

    return run


def word_at(address: int) -> np.ndarray:
    """A 64-bit word in memory."""
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_int64)), (1,))
