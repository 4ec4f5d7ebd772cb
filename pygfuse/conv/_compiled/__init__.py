"""Layers of any class whose messages the compiler fuses."""

from pygfuse.conv._compiled.compiled_conv import CompiledConv, compiled_class

__all__ = ['CompiledConv', 'compiled_class']
