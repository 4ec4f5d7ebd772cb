"""What a module makes of the edges of a call, as ``torch.compile`` traces it: lines of Python that hold no module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from pygfuse.compiler.ir.structure import is_structure
from pygfuse.compiler.ir.values import Node
from pygfuse.compiler.made_edges.remade import GIVEN_EDGES, Made, Remade, Run
from pygfuse.compiler.plan.written import from_layer
from pygfuse.compiler.refusal import Refused
from pygfuse.compiler.symbols.numbers_of_rows import NUM_SOURCES

Lines = Callable[[Tensor, Mapping[str, Tensor], tuple[int, int], Any], tuple[Tensor, dict[str, Tensor]] | None]


def traced_edges(remade: Remade, places: Mapping[int, Sequence[str]]) -> Lines:
    """The function ``run(edge_index, given, sizes, layer)`` that gives the edges of any call of a kind, and the values
    of edges by name; None if they are not as many.

    Args:
        remade: What makes them in calls that run.
        places: The names by which modules are found from the layer, by the identity of the module.

    Raises:
        Refused: If it reads several sets of edges, or a module that is no part of the layer.
    """
    lines = _Lines(places)
    (rows_of_set, *others) = remade.sets
    if others:
        raise Refused('torch compiles no several sets of edges')
    ends = [lines.name_of(end) for end in rows_of_set or ()]
    values = {name: lines.name_of(made) for name, made in remade.values.items()}
    rows = f'{ends[0] if ends else "edge_index[0]"}.shape[0]'
    checks = [f'{end}.shape[0] != {rows}' for end in ends[1:]]
    checks += [f'{values[name]}.shape[0] != {rows}' for name, made in remade.values.items() if not made.is_shared]
    edges = f'stack(({", ".join(ends)}))' if ends else 'edge_index'
    given = ', '.join(f'{name!r}: {value}' for name, value in values.items())
    return lines.function(checks, f'{edges}, {{{given}}}')


def check_traced_shapes(remade: Remade, run: Run) -> None:
    """Checks that the sizes of everything that is made follow from those of a call, and not from what it holds.

    Args:
        remade: What is made.
        run: A call.

    Raises:
        Refused: If they do not, or what is made is not as many.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        remade.of_call(run.with_tensors(mode.from_tensor))


class _Lines:
    """Lines that give everything that is made a name; arguments as of `traced_edges`."""

    def __init__(self, places: Mapping[int, Sequence[str]]) -> None:
        self._places = places
        self._lines: list[str] = []
        self._names: dict[Made, str] = {}
        self._scope: dict[str, Any] = {'stack': torch.stack}

    def name_of(self, made: Made) -> str:
        """The name of something, whose lines are added where they are not there."""
        if made not in self._names:
            expression = self._brought(*made.args) if made.function is None else self._result(made)
            # another one may have come first
            name = self._names[made] = f'made_{len(self._names)}'
            self._lines.append(f'{name} = {expression}{".detach()" if made.is_detached else ""}')
        return self._names[made]

    def function(self, checks: Sequence[str], result: str) -> Lines:
        """The function of the lines."""
        checked = [f'if {" or ".join(checks)}:', '    return None'] if checks else []
        body = ''.join(f'    {line}\n' for line in [*self._lines, *checked, f'return {result}'])
        exec(f'def run(edge_index, given, sizes, layer):\n{body}', self._scope)
        return self._scope['run']

    def _brought(self, what: Any) -> str:
        if what is GIVEN_EDGES:
            return 'edge_index'
        if not isinstance(what, Node):
            return f'sizes[{int(what != NUM_SOURCES)}]'
        source = what.attributes['source']
        if isinstance(source, str):
            return f'given[{source!r}]'
        owner, name = source
        if id(owner) not in self._places:
            raise Refused(f'it reads a {type(owner).__name__} that is no part of the layer')
        return from_layer((*self._places[id(owner)], name))

    def _result(self, made: Made) -> str:
        args = [self._argument(argument) for argument in made.args]
        named = [f'{key}={self._argument(argument)}' for key, argument in made.keywords]
        name = getattr(made.function, '__name__', '')
        if name in ('__getitem__', 'getitem'):
            return f'{args[0]}[{args[1]}]'
        is_method = made.function is getattr(Tensor, name, None)
        function = f'{args.pop(0)}.{name}' if is_method else self._kept(made.function)
        return f'{function}({", ".join([*args, *named])})'

    def _argument(self, item: Any) -> str:
        if isinstance(item, Made):
            return self.name_of(item)
        if not is_structure(item):
            return self._kept(item)
        if isinstance(item, slice):
            return f'slice({", ".join(map(self._argument, (item.start, item.stop, item.step)))})'
        if isinstance(item, dict):
            return f'{{{", ".join(f"{key!r}: {self._argument(one)}" for key, one in item.items())}}}'
        parts = ''.join(f'{self._argument(one)}, ' for one in item)
        return f'({parts})' if isinstance(item, tuple) else f'[{parts}]'

    def _kept(self, value: Any) -> str:
        """The name of something that is the same in each call."""
        if value is Ellipsis:
            return '...'
        name = f'kept_{len(self._scope)}'
        self._scope[name] = value
        return name
