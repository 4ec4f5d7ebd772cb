"""Memory of the device in kernels: typed addresses, the widest loads and stores that their alignment allows.

Arithmetic is in float32 or float64; values of 16 bits are converted where they are loaded and stored.
"""

from __future__ import annotations

from llvmlite import ir

from pygfuse.cuda.layout import ITEM_BYTES, LOAD_BYTES
from pygfuse.cuda.numba_cuda import PrimitiveModel, intrinsic, register_model, types

INT16, INT32, INT64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_GLOBAL = 1  # LLVM's number of the address space of global memory
_PLAIN = {'float32': ir.FloatType(), 'float64': ir.DoubleType(), 'int32': INT32, 'int64': INT64}


class Memory(types.Type):
    """Flat memory of the device: ``'float32'``, ``'float64'``, ``'float16'``, ``'bfloat16'``, ``'int32'``, ``'int64'``.

    Args:
        kind: The type of its items.
        is_wide: Whether it may have more than 2^31 items. Of others offsets are numbers of 32 bits, which spares
            registers and instructions.
    """

    def __init__(self, kind: str, is_wide: bool = False) -> None:
        self.kind, self.is_wide = kind, is_wide
        super().__init__(name=f'Memory({kind}, {is_wide})')

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES.get(self.kind) or _PLAIN[self.kind].width // 8


@register_model(Memory)
class _MemoryModel(PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, INT64)


@intrinsic
def float_of(typingctx, bits):
    """The float64 whose bits are those of an int64."""
    return types.float64(bits), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], ir.DoubleType()
    )


def _pointer(builder, kind: Memory, base: ir.Value, offset: ir.Value, to: ir.Type) -> ir.Value:
    """The address of item `offset`."""
    if not kind.is_wide:
        # LLVM computes what leads to it in 32 bits, too
        offset = builder.sext(builder.trunc(offset, INT32), INT64)
    address = builder.add(base, builder.mul(offset, ir.Constant(INT64, kind.item_bytes)))
    return builder.inttoptr(address, ir.PointerType(to, _GLOBAL))


def _load_plain(builder, pointer: ir.Value, align: int, constant: bool) -> ir.Value:
    value = builder.load(pointer, align=align)
    if constant:
        value.set_metadata('invariant.load', builder.module.add_metadata([]))
    return value


def _halves_of_words(builder, words: ir.Value, kind: str) -> list[ir.Value]:
    """The float32 numbers of 16-bit numbers that lie in pairs in 32-bit words."""
    found = []
    for i in range(words.type.count):
        word = builder.extract_element(words, ir.Constant(INT32, i))
        if kind == 'bfloat16':
            pair = builder.shl(word, ir.Constant(INT32, 16)), builder.and_(word, ir.Constant(INT32, 0xFFFF0000))
            found += [builder.bitcast(bits, ir.FloatType()) for bits in pair]
        else:
            pair = word, builder.lshr(word, ir.Constant(INT32, 16))
            found += [_from_half(builder, builder.trunc(bits, INT16), kind) for bits in pair]
    return found


def _from_half(builder, bits: ir.Value, kind: str) -> ir.Value:
    if kind == 'bfloat16':
        return builder.bitcast(builder.shl(builder.zext(bits, INT32), ir.Constant(INT32, 16)), ir.FloatType())
    return builder.fpext(builder.bitcast(bits, ir.HalfType()), ir.FloatType())


def _to_half(builder, value: ir.Value, kind: str) -> ir.Value:
    """The 16 bits of the nearest number, ties to even."""
    if kind == 'float16':
        return builder.bitcast(builder.fptrunc(value, ir.HalfType()), INT16)
    bits = builder.bitcast(value, INT32)
    odd = builder.and_(builder.lshr(bits, ir.Constant(INT32, 16)), ir.Constant(INT32, 1))
    rounded = builder.lshr(builder.add(builder.add(bits, odd), ir.Constant(INT32, 0x7FFF)), ir.Constant(INT32, 16))
    is_nan = builder.fcmp_unordered('uno', value, value)
    return builder.trunc(builder.select(is_nan, ir.Constant(INT32, 0x7FC0), rounded), INT16)


def rounded(builder, vector: ir.Value, kind: str) -> ir.Value:
    """Float32 numbers as they are after a store and a load of memory of this kind."""
    if kind in _PLAIN:
        return vector
    numbers = [builder.extract_element(vector, ir.Constant(INT32, i)) for i in range(vector.type.count)]
    return _vector_of(builder, [_from_half(builder, _to_half(builder, number, kind), kind) for number in numbers])


def _vector_of(builder, values: list[ir.Value]) -> ir.Value:
    vector = ir.Constant(ir.VectorType(values[0].type, len(values)), ir.Undefined)
    for i, value in enumerate(values):
        vector = builder.insert_element(vector, value, ir.Constant(INT32, i))
    return vector


def load_vector(
    builder, kind: Memory, base: ir.Value, offset: ir.Value, count: int, element: ir.Type, constant: bool = True
) -> ir.Value:
    """`count` consecutive items as a vector of `element`; the first lies at a multiple of their size.

    Args:
        builder: Where instructions go.
        kind: The memory.
        base: Its address.
        offset: The first item.
        count: How many, a power of two.
        element: float32 or float64 of LLVM.
        constant: Whether nothing writes to this memory while the kernel runs.
    """
    each = min(count, LOAD_BYTES // kind.item_bytes)
    values: list[ir.Value] = []
    for start in range(0, count, each):
        at = builder.add(offset, ir.Constant(INT64, start)) if start else offset
        align = each * kind.item_bytes
        if kind.kind in _PLAIN:
            plain = ir.VectorType(_PLAIN[kind.kind], each)
            vector = _load_plain(builder, _pointer(builder, kind, base, at, plain), align, constant)
            values += [builder.extract_element(vector, ir.Constant(INT32, i)) for i in range(each)]
        elif each == 1:
            bits = _load_plain(builder, _pointer(builder, kind, base, at, INT16), align, constant)
            values.append(_from_half(builder, bits, kind.kind))
        else:
            words = ir.VectorType(INT32, each // 2)
            loaded = _load_plain(builder, _pointer(builder, kind, base, at, words), align, constant)
            values += _halves_of_words(builder, loaded, kind.kind)
    if values[0].type != element:
        wider = isinstance(element, ir.DoubleType)
        values = [builder.fpext(v, element) if wider else builder.fptrunc(v, element) for v in values]
    return _vector_of(builder, values)


def store_vector(builder, kind: Memory, base: ir.Value, offset: ir.Value, vector: ir.Value) -> None:
    """The reverse of `load_vector`."""
    count, element = vector.type.count, vector.type.element
    values = [builder.extract_element(vector, ir.Constant(INT32, i)) for i in range(count)]
    to = _PLAIN.get(kind.kind, ir.FloatType())
    if element != to:
        wider = isinstance(to, ir.DoubleType)
        values = [builder.fpext(v, to) if wider else builder.fptrunc(v, to) for v in values]
    if kind.kind not in _PLAIN:
        values = [_to_half(builder, value, kind.kind) for value in values]
    each = min(count, LOAD_BYTES // kind.item_bytes)
    for start in range(0, count, each):
        at = builder.add(offset, ir.Constant(INT64, start)) if start else offset
        part = values[start : start + each]
        if kind.kind not in _PLAIN and each > 1:
            part = [
                builder.or_(builder.zext(low, INT32), builder.shl(builder.zext(high, INT32), ir.Constant(INT32, 16)))
                for low, high in zip(part[::2], part[1::2], strict=True)
            ]
        made = _vector_of(builder, part)
        builder.store(made, _pointer(builder, kind, base, at, made.type), align=each * kind.item_bytes)


@intrinsic
def place_at(typingctx, index, position):
    """``place_at(index, position)``: the number at a position of an index, or the position itself for None."""

    def emit(context, builder, signature, arguments):
        kind = signature.args[0]
        if isinstance(kind, types.NoneType):
            return arguments[1]
        return _load_place(builder, kind, *arguments, constant=True)

    return types.int64(index, types.int64), emit


@intrinsic
def reload_place(typingctx, index, position):
    """`place_at` of an index that the kernel writes to."""

    def emit(context, builder, signature, arguments):
        return _load_place(builder, signature.args[0], *arguments, constant=False)

    return types.int64(index, types.int64), emit


@intrinsic
def store_place(typingctx, index, position, number):
    """``store_place(index, position, number)``: writes a number to a position of an index."""

    def emit(context, builder, signature, arguments):
        kind, (base, at, value) = signature.args[0], arguments
        to = _PLAIN[kind.kind]
        value = builder.trunc(value, to) if to.width < value.type.width else value
        builder.store(value, _pointer(builder, kind, base, at, to), align=kind.item_bytes)
        return context.get_dummy_value()

    return types.void(index, types.int64, types.int64), emit


def _load_place(builder, kind: Memory, base: ir.Value, position: ir.Value, constant: bool) -> ir.Value:
    pointer = _pointer(builder, kind, base, position, _PLAIN[kind.kind])
    found = _load_plain(builder, pointer, kind.item_bytes, constant)
    return builder.sext(found, INT64) if found.type.width < 64 else found
