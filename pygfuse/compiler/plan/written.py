"""A plan's steps, written out as lines of Python: they run in each call, and of few edges reading them takes longer."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor
from torch.nn import Module

from pygfuse._lib.note import Note
from pygfuse.compiler.capture.layers import Captured
from pygfuse.compiler.forms.along_edges import AlongEdges
from pygfuse.compiler.forms.chunked import Chunked
from pygfuse.compiler.forms.form import Form
from pygfuse.compiler.forms.lowering import Walk
from pygfuse.compiler.forms.weighed import Weighed
from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.untouched import Guarded
from pygfuse.compiler.ir.values import PARTS_OF_LAYERS, SOURCE, TARGET, Node, set_of_edges
from pygfuse.compiler.networks.network import Network
from pygfuse.compiler.plan import by_type
from pygfuse.compiler.plan.called import CALLED, summed
from pygfuse.compiler.plan.copies import copies_among
from pygfuse.compiler.programs.emission import Factors
from pygfuse.compiler.symbols.counters import Counter
from pygfuse.ops import Edges

Run: TypeAlias = Callable[[Edges, Mapping[str, Tensor], Note | None], Any]


def written(
    steps: Sequence[Node],
    forms: Mapping[int, Form],
    output: Node,
    guarded: Collection[str],
    captured: Captured,
    places: Mapping[int, Sequence[str]] | None = None,
) -> Run:
    """``run(edges, given, note)``, as of `pygfuse.compiler.plan.plan.Plan.run`.

    Args:
        steps: All values that have to be computed, in order.
        forms: The forms of those of edges, and of their reductions, by the identity of the value.
        output: The result.
        guarded: Residencies whose nodes without edges must not be computed.
        captured: The layer, which says what of the result is stored in it.
        places: The names by which modules are found from the layer, by the identity of the module; the function takes
            the layer then, as a fourth argument, and holds no module itself.
    """
    lines = _Lines(forms, Guarded(frozenset(guarded), captured.gathers_apart), _parts_of(steps), places)
    for node in steps:
        lines.add(node)
    return lines.function(output, captured)


class _Lines:
    """Lines that give each value a name; arguments as of `written`."""

    def __init__(
        self,
        forms: Mapping[int, Form],
        guarded: Guarded,
        split: Mapping[int, list[Node]],
        places: Mapping[int, Sequence[str]] | None,
    ) -> None:
        self._forms, self._guarded, self._split, self._places = forms, guarded, split, places
        self._lines: list[str] = []
        self._names: dict[int, str] = {}
        # operands that several walks multiply
        self._shared = _shared_products(forms.values())
        self._products: dict[tuple[int, int], str] = {}
        # forms, and values with parts, that several values come from
        self._passes: dict[int, str] = {}
        # types of edges, and what walks take for the edges
        self._types: dict[tuple[int, int], str] = {}
        self._edges = 'edges', 'note'
        # names of other edges than those of a call
        self._sets: set[str] = set()
        self._scope: dict[str, Any] = dict(CALLED)

    def add(self, node: Node) -> None:
        """Adds the lines of a value; those that it is computed of are there."""
        form = self._forms.get(id(node))
        expression = self._expression(node) if form is None else self._result_of(form, node)
        if self._guarded.has(node):
            expression = f'with_edges_only({expression}, {self._edges_of_set(node)}, {node.residency!r})'
        name = self._names[id(node)] = f'value_{len(self._names)}'
        self._lines.append(f'{name} = {expression}')

    def function(self, output: Node, captured: Captured) -> Run:
        """The function of the lines, whose result is this value, without what is stored."""
        name = result = self._names[id(output)]
        for owner, attribute, constant in captured.constants:
            place = f'{self._module(owner)}, {attribute!r}'
            is_counter = isinstance(constant, Counter)
            stored = f'getattr({place}) + {constant.moved}' if is_counter else self._kept(constant)
            self._lines.append(f'setattr({place}, {stored})')
        if output.op == 'results':
            copies = copies_among(output.args, captured.output.args)
            if copies:
                self._lines.append(f'{name} = copied({name}, {copies})')
            count = len(output.args) - len(captured.stored) - captured.unread
            for k, (owner, attribute) in enumerate(captured.stored, count):
                self._lines.append(f'setattr({self._module(owner)}, {attribute!r}, {name}[{k}])')
            result = f'tuple({name}[:{count}])' if captured.returns_several else f'{name}[0]'
        body = ''.join(f'    {line}\n' for line in [*self._lines, f'return {result}'])
        exec(f'def run(edges, given, note, layer=None):\n{body}', self._scope)
        return self._scope['run']

    def _expression(self, node: Node) -> str:
        if node.op == 'input':
            source = node.attributes['source']
            is_given = isinstance(source, str)
            return f'given[{source!r}]' if is_given else f'getattr({self._module(source[0])}, {source[1]!r})'
        if node.op == 'kept':
            return self._names[id(node.attributes['of'])]
        if node.op == 'degree':
            side = node.attributes.get('side', TARGET)
            return f'degree_of({self._edges_of_set(node)}, {self._device()}, {self._kept(node.dtype)}, {side!r})'
        if node.op in ('numbers_of_edges', 'edge_marks'):
            edges = self._edges_of(node)[0] + ('.num_edges' if node.op == 'edge_marks' else '')
            return f'{node.op}({edges}, {self._device()}, {self._kept(node.dtype)}, {self._kept(node.shape)})'
        if node.op == 'dropout_draws':
            said = ', '.join(map(self._kept, (node.shape[1:], node.attributes['p'], node.dtype)))
            return f'dropout_draws({said}, {self._device()})'
        if node.op == 'number_of_rows':
            return f'number_of_rows(edges, {self._device()}, {node.attributes["counted"]!r}, {self._kept(node.dtype)})'
        if node.op == 'filled':
            said = ', '.join(map(self._kept, (node.shape, node.attributes['number'], node.dtype)))
            return f'filled(edges, {self._device()}, {said}, {node.residency!r})'
        if node.op == 'layer':
            layer, template = node.attributes['module'], self._kept(node.attributes['template'])
            return f'layer_of({self._module(layer)}, {template}, given, {self._argument(node.args)})'
        if node.op in PARTS_OF_LAYERS:
            return f'{self._argument(node.args[0])}[{node.attributes["place"]}]'
        if node.op == 'resized':
            return f'resized({", ".join(map(self._argument, node.args))})'
        if node.op == 'softmax_of_sources':
            return f'softmax_of_sources({self._argument(node.args[0])}, {self._edges_of_set(node)})'
        if by_type.types_in([node]):
            return self._typed(node)
        if node.op == 'columns' and id(node.args[0]) in self._split:
            return self._part(node)
        arguments = ', '.join(map(self._argument, node.args))
        attributes = f', **{self._kept(dict(node.attributes))}' if node.attributes else ''
        return f'{self._kept(OPERATIONS[node.op].run)}({arguments}{attributes})'

    def _device(self) -> str:
        """Where values that no tensor gives are made."""
        line = 'device = device_of(given, edges)'
        if line not in self._lines:
            self._lines.append(line)
        return 'device'

    def _part(self, node: Node) -> str:
        """One of several parts of the rows of a value, which are taken at once."""
        (whole,) = node.args
        all_parts = self._split[id(whole)]
        if id(whole) not in self._passes:
            name = self._passes[id(whole)] = f'parts_{len(self._passes)}'
            takes = self._kept([one.attributes['take'] for one in all_parts])
            self._lines.append(f'{name} = parts({self._names[id(whole)]}, {takes})')
        return f'{self._passes[id(whole)]}[{[id(one) for one in all_parts].index(id(node))}]'

    def _typed(self, node: Node) -> str:
        """What belongs to pairs of a type and a node; from then on edges lead from pairs of sources."""
        ((types, count),) = by_type.types_in([node])
        key = id(types), count
        if key not in self._types:
            relations = self._types[key] = f'relations_{len(self._types)}'
            edges, numbers = self._edges_of_set(types), self._names[id(types)]
            self._lines.append(f'{relations} = by_type.relations_of({edges}, {numbers}, {count})')
        relations, of_nodes = self._types[key], ', '.join(map(self._argument, node.args[:-1]))
        if node.op == 'typed_map':
            return f'by_type.product_on_edges({relations}, {of_nodes}, {node.args[0].residency!r})'
        if self._edges[0] == 'edges':
            self._lines.append(f'edges_of_pairs = by_type.edges_of_pairs({relations})')
            # the note is that of the edges of the call
            self._edges = 'edges_of_pairs', 'None'
        if node.op == 'of_pairs':
            return f'by_type.of_pairs({relations}, {of_nodes})'
        return f'by_type.product_of_pairs({relations}, {of_nodes}, {node.attributes["is_of_pairs"]})'

    def _argument(self, argument: Any) -> str:
        if isinstance(argument, Node):
            return self._names[id(argument)]
        if isinstance(argument, (tuple, list)):
            return f'({"".join(f"{self._argument(item)}, " for item in argument)})'
        return self._kept(argument)

    def _result_of(self, form: Form, node: Node) -> str:
        if isinstance(form, Walk):
            return self._result_of_walk(form, node.shape, self._edges_of(node))
        if self._places is not None and isinstance(form, AlongEdges):
            operands = ', '.join(f'{name!r}: {self._operand(value)}' for name, value in form.of_program.items())
            return f'along({self._kept(form.traced)}, edges, {{{operands}}}, {self._kept(form.message.shape)})'
        if self._places is not None and isinstance(form, Chunked):
            return self._row_of_each_edge(form)
        found = self._passes.get(id(form))
        if found is None:
            # one pass gives a reduction and values of edges
            found = self._passes[id(form)] = f'pass_{len(self._passes)}'
            self._lines.append(f'{found} = {self._pass_of(form, self._edges_of(node)[0])}')
        return f'{found}[{int(node is not form.reduction)}]'

    def _edges_of(self, reduction: Node) -> tuple[str, str]:
        """What a walk takes for the edges, and the note that is known of them."""
        edges = self._edges_of_set(reduction)
        if 'leads_back' not in reduction.attributes:
            return self._edges if edges == 'edges' else (edges, 'None')
        back = f'{edges}_that_lead_back'
        if back not in self._sets:
            self._sets.add(back)
            self._lines.append(f'{back} = {edges}.reversed()')
        return back, 'None'

    def _edges_of_set(self, node: Node) -> str:
        """What gives the edges along which a value is computed."""
        number = set_of_edges(node)
        edges = f'edges_{number}' if number else 'edges'
        if number and edges not in self._sets:
            self._sets.add(edges)
            self._lines.append(f'{edges} = edges.of_set({number})')
        return edges

    def _result_of_walk(self, form: Walk, of_row: tuple[int, ...], along: tuple[str, str]) -> str:
        edges, note = along
        if form.directions:
            parts = [self._result_of_walk(part, (part.heads * part.channels,), along) for part in form.directions]
            return f'of_directions([{", ".join(parts)}], {self._kept(of_row)})'
        operands = ', '.join(f'{name!r}: {self._operand(value)}' for name, value in form.operands.items())
        shape = self._kept(of_row if len(of_row) != 1 else None)
        names = summed(form)
        if names is not None:
            x, weights = (None if name is None else self._operand(form.operands[name]) for name in names)
            return f'summed({self._kept(form.arguments)}, {edges}, {note}, {x}, {weights}, {{{operands}}}, {shape})'
        return f'walked({self._kept(form.arguments)}, {edges}, {note}, {{{operands}}}, {shape})'

    def _pass_of(self, form: Network | Chunked | AlongEdges | Weighed, edges: str) -> str:
        """What runs a form that reads all rows of its operands."""
        groups = [form.of_program, form.others.operands] if isinstance(form, AlongEdges) else [form.operands]
        operands = [
            ', '.join(f'{name!r}: all_rows({self._operand(value)})' for name, value in group.items())
            for group in groups
        ]
        run = self._kept(form if isinstance(form, Chunked) else form.call)
        return f'{run}.run({edges}, {", ".join(f"{{{given}}}" for given in operands)})'

    def _row_of_each_edge(self, form: Chunked) -> str:
        """The lines of values that torch computes of all edges at once: for a trace, of which it makes few loops."""
        known = self._names
        # within these lines values of nodes have a row for each edge, too
        self._names = {**known}
        of_nodes = [operand for operand in form.operands.values() if operand.residency in (SOURCE, TARGET)]
        for operand in of_nodes:
            self._add_row(operand, f'gathered({known[id(operand)]}, edges, {operand.residency!r})')
        for node in form.order:
            self._add_row(node, self._expression(node))
        found, self._names = self._names[id(form.message)], known
        return found

    def _add_row(self, node: Node, expression: str) -> None:
        name = self._names[id(node)] = f'row_{len(self._lines)}'
        self._lines.append(f'{name} = {expression}')

    def _operand(self, operand: Node | Factors) -> str:
        if not isinstance(operand, Factors):
            return self._names[id(operand)]
        key = _ids_of(operand)
        features, weight = (self._names[part] for part in key)
        if key not in self._shared:
            return f'Product({features}, {weight})'
        if key not in self._products:
            self._products[key] = f'product_{len(self._products)}'
            self._lines.append(f'{self._products[key]} = multiplied({features}, {weight})')
        return self._products[key]

    def _module(self, module: Module) -> str:
        """What gives a module that values are read of."""
        if self._places is None:
            return self._kept(module)
        return from_layer(self._places[id(module)])

    def _kept(self, value: Any) -> str:
        """The name of something that is the same in each call."""
        name = f'kept_{len(self._scope)}'
        self._scope[name] = value
        return name


def from_layer(place: Sequence[str]) -> str:
    """The text that finds something from a layer by names.

    Example:
        >>> from_layer(['lin', 'weight'])
        "getattr(getattr(layer, 'lin'), 'weight')"
    """
    return functools.reduce(lambda text, name: f'getattr({text}, {name!r})', place, 'layer')


def _parts_of(steps: Sequence[Node]) -> dict[int, list[Node]]:
    """The selections of numbers of a value, by its identity, where there are several."""
    found: dict[int, list[Node]] = {}
    for node in steps:
        if node.op == 'columns':
            found.setdefault(id(node.args[0]), []).append(node)
    return {key: nodes for key, nodes in found.items() if len(nodes) > 1}


def _ids_of(factors: Factors) -> tuple[int, int]:
    return id(factors.features), id(factors.weight)


def _shared_products(forms: Collection[Form]) -> set[tuple[int, int]]:
    """The products that several walks have among their operands."""
    walks = {id(walk): walk for form in forms if isinstance(form, Walk) for walk in form.walks}.values()
    counts = collections.Counter(
        key for walk in walks for key in {_ids_of(o) for o in walk.operands.values() if isinstance(o, Factors)}
    )
    return {key for key, count in counts.items() if count > 1}
