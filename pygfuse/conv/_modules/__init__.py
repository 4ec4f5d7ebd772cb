"""Modules of a user's own that gather and reduce along edges themselves, compiled."""

from pygfuse.conv._modules.module import CompiledModule, compiled_module

__all__ = ['CompiledModule', 'compiled_module']
