"""LLVM's text around the instructions of a translated kernel: a coroutine that ends where its thread does, and the
search for the tensor that an address lies in.

Who launches the kernel writes to its ``tensors`` (an array of addresses and bytes) and ``tensor_count``, and empties
its ``slots``: each load and store has one, in which the tensor stands that it found last. ``fault`` becomes the number
of an instruction, from 1, whose address is in no tensor or not aligned.
"""

from __future__ import annotations

from llvmlite.binding import llvm_version_info

# whether this LLVM takes the text below
IS_UNDERSTOOD = llvm_version_info >= (18,)
# what the end of a coroutine gives: of LLVM 22 nothing
_RESULT = 'void' if llvm_version_info >= (22,) else 'i1'
# bytes of a slot
SLOT = 16
# the place of a thread that has ended; others are at the number of a shuffle or a barrier
FINISHED = -1
# the lanes that one at a barrier shuffles with
NOBODY = 0

_BEGIN = """
@tensors = global ptr null
@tensor_count = global i64 0
@fault = global i64 0
@slots = global [{slots} x [2 x i64]] zeroinitializer

declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare ptr @llvm.coro.free(token, ptr)
declare {result} @llvm.coro.end(ptr, i1, token)
declare ptr @malloc(i64)
declare void @free(ptr)
declare float @nextafterf(float, float)

define float @rounded_down(double %exact) alwaysinline {{
  %near = fptrunc double %exact to float
  %wide = fpext float %near to double
  %beyond = fcmp ogt double %wide, %exact
  %next = call float @nextafterf(float %near, float 0xFFF0000000000000)
  %result = select i1 %beyond, float %next, float %near
  ret float %result
}}

define float @rounded_to_zero(double %exact) alwaysinline {{
  %near = fptrunc double %exact to float
  %wide = fpext float %near to double
  %size = call double @llvm.fabs.f64(double %wide)
  %wanted = call double @llvm.fabs.f64(double %exact)
  %beyond = fcmp ogt double %size, %wanted
  %next = call float @nextafterf(float %near, float 0.0)
  %result = select i1 %beyond, float %next, float %near
  ret float %result
}}

; whether so many bytes from an address are aligned, and in the tensor that stands in the slot
define i1 @is_there(i64 %address, i64 %bytes, ptr %slot) alwaysinline {{
  %begin = load i64, ptr %slot
  %length_at = getelementptr i64, ptr %slot, i64 1
  %length = load i64, ptr %length_at
  %offset = sub i64 %address, %begin
  %last = sub i64 %length, %bytes
  %within = icmp ule i64 %offset, %last
  %fits = icmp ule i64 %bytes, %length
  %low = sub i64 %bytes, 1
  %rest = and i64 %address, %low
  %aligned = icmp eq i64 %rest, 0
  %inside = and i1 %within, %fits
  %result = and i1 %inside, %aligned
  ret i1 %result
}}

; writes to the slot the tensor that the address lies in
define i1 @search(i64 %address, i64 %bytes, ptr %slot, i64 %instruction) noinline cold {{
entry:
  %count = load i64, ptr @tensor_count
  %all = load ptr, ptr @tensors
  br label %next
next:
  %i = phi i64 [0, %entry], [%after, %try]
  %end = icmp eq i64 %i, %count
  br i1 %end, label %nowhere, label %try
try:
  %tensor = getelementptr [2 x i64], ptr %all, i64 %i
  %value = load [2 x i64], ptr %tensor
  store [2 x i64] %value, ptr %slot
  %found = call i1 @is_there(i64 %address, i64 %bytes, ptr %slot)
  %after = add i64 %i, 1
  br i1 %found, label %here, label %next
here:
  ret i1 true
nowhere:
  store i64 %instruction, ptr @fault
  ret i1 false
}}

define i1 @found(i64 %address, i64 %bytes, ptr %slot, i64 %instruction) alwaysinline {{
  %there = call i1 @is_there(i64 %address, i64 %bytes, ptr %slot)
  br i1 %there, label %yes, label %look
yes:
  ret i1 true
look:
  %result = call i1 @search(i64 %address, i64 %bytes, ptr %slot, i64 %instruction)
  ret i1 %result
}}

define ptr @kernel(ptr %parameters, i32 %thread, i32 %threads, i32 %block_x, i32 %block_y, i32 %blocks_x, i32 %lane,
                   ptr %exchange, ptr %shared) presplitcoroutine {{
entry:
  %coroutine = call token @llvm.coro.id(i32 0, ptr null, ptr null, ptr null)
  %frame_bytes = call i64 @llvm.coro.size.i64()
  %frame = call ptr @malloc(i64 %frame_bytes)
  %handle = call ptr @llvm.coro.begin(token %coroutine, ptr %frame)
  %mask_at = getelementptr i32, ptr %exchange, i64 1
  %distance_at = getelementptr i32, ptr %exchange, i64 2
  %place_at = getelementptr i32, ptr %exchange, i64 3
"""

_END = """
finish:
  store i32 {finished}, ptr %place_at
  %last = call i8 @llvm.coro.suspend(token none, i1 true)
  switch i8 %last, label %suspended [i8 0, label %never
                                     i8 1, label %destroyed]
never:
  unreachable
destroyed:
  %memory = call ptr @llvm.coro.free(token %coroutine, ptr %handle)
  call void @free(ptr %memory)
  br label %suspended
suspended:
  call {result} @llvm.coro.end(ptr %handle, i1 false, token none)
  ret ptr %handle
}}
"""


def around(slots: int, registers: str, body: str) -> str:
    """The text of a module.

    Args:
        slots: How many there are.
        registers: Instructions that make memory for registers.
        body: Blocks, of which the first is ``at0``; they leave to ``finish``.
    """
    begin = _BEGIN.format(slots=max(1, slots), result=_RESULT)
    return f'{begin}{registers}  br label %at0\n{body}{_END.format(finished=FINISHED, result=_RESULT)}'
