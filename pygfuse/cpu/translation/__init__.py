"""Bodies of kernels, plain functions of a small part of Python, translated to LLVM's instructions.

What there is: numbers, tuples, arrays and pointers to numbers, vectors (`pygfuse.cpu.vectors.simd`) and None;
assignments, ``if``, ``while``, ``for`` over a tuple or a ``range`` (whose steps are positive unless they are known),
``break``, ``continue``, ``return``; Python's operators, ``len``, ``min`` and ``max`` of integers, types of numbers as
conversions, the words of a program, ``np.empty`` of one dimension, intrinsics (`pygfuse.cpu.vectors.intrinsics`) and
other functions of this kind, whose code takes the place of each call.

What is known while it is translated (numbers of the enclosing scope, whether an argument is None, lengths of tuples)
decides branches then. A variable keeps the type of its first assignment. Places in arrays count from 0: those below
are not looked for at the end, and nothing checks them.

Types are found in the order of the text and nothing is searched for, so that translating takes milliseconds, where
Numba's inference and its many passes took seconds.
"""
