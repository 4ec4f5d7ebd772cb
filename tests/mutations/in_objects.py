"""What is broken in modules whose arguments hold tensors by name, and in what they return and store of edges."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_OBJECTS = 'tests/conv/modules/test_objects.py'
_NUMBERS = 'tests/conv/modules/test_numbers.py'
_EQUATIONS = 'tests/compiler/test_equations.py'

OF_OBJECTS = (
    Mutation(
        'what is stored in an object and not written there',
        'compiler/modules.py',
        'for held, name, item in kept:',
        'for held, name, item in ():',
        f'{_OBJECTS} -k returns_the_object',
    ),
    Mutation(
        'names that an object lacks',
        'conv/_held_by_name.py',
        'if getattr(item, key, None) is not None:',
        'if True:',
        f'{_OBJECTS} -k "lacks or are_the_same"',
    ),
    Mutation(
        'attributes that are None where data holds nothing',
        'compiler/data_objects.py',
        'if _is_absent(found) and not hasattr(fields.kind, name):',
        'if _is_absent(found):',
        f'{_OBJECTS} -k none_where_it_holds_nothing',
    ),
    Mutation(
        'None that is stored in data',
        'compiler/data_objects.py',
        'return Absent if stored[key] is None and fields.kind is not dict else stored[key]',
        'return stored[key]',
        f'{_OBJECTS} -k lacks',
    ),
    Mutation(
        'all that an object holds',
        'conv/_held_by_name.py',
        'fields.read.union(fields.items if has_missed else ())',
        'fields.read.union(fields.items)',
        f'{_OBJECTS} -k "does_not_read or other_sizes"',
    ),
    Mutation(
        'names that are read later',
        'conv/_held_by_name.py',
        'return Names(known.names | fields.read, True)',
        'return known',
        f'{_OBJECTS} -k read_more',
    ),
    Mutation(
        'plans of what was read before',
        'conv/_modules.py',
        'self._read, self._plans = read, None',
        'self._read = read',
        f'{_OBJECTS} -k "does_not_read or other_sizes"',
    ),
    Mutation(
        'what a class computes of what it holds',
        'conv/_held_by_name.py',
        "        raise Refused(f'it reads {key} of {name}')\n    return Absent",
        '        return getattr(item, key)\n    return Absent',
        f'{_OBJECTS} -k runs_its_own_code_once',
    ),
    Mutation(
        'objects that copies remember',
        'conv/_modules.py',
        "'_few', '_read'",
        "'_few'",
        f'{_OBJECTS} -k copies',
    ),
    Mutation(
        'few edges within objects',
        'conv/_module_calls.py',
        'return held[part] if holds_by_name(held) and part in held else None',
        'return None',
        f'{_OBJECTS} -k few_edges',
    ),
    Mutation(
        'scores that are sums, computed for each reader',
        'compiler/returned.py',
        'output = _kept_before_softmax(_read_as_returned(output))',
        'output = _read_as_returned(output)',
        f'{_OBJECTS} -k other_sizes',
    ),
    Mutation(
        'a table whose dimensions are mixed up',
        'compiler/bilinear.py',
        'dims = tuple(of_table.index(letter) for letter in letters)',
        'dims = (0, 1, 2)',
        f'{_EQUATIONS} -k products_of_three',
    ),
    Mutation(
        'edges that are multiplied with all matrices',
        'compiler/bilinear.py',
        'key=lambda pair: pair[1].node.residency == EDGE',
        'key=lambda pair: pair[1].node.residency != EDGE',
        f'{_EQUATIONS} -k products_of_three',
    ),
    Mutation(
        'the shift of a product of three',
        'compiler/bilinear.py',
        "return out if out is None or bias is None else made('add', out, bias)",
        'return out',
        f'{_EQUATIONS} -k products_of_three',
    ),
    Mutation(
        'results without their dimensions of one',
        'compiler/equations.py',
        'for place in _places(result, ones):',
        'for place in ():',
        f'{_EQUATIONS} -k outputs_and_gradients',
    ),
    Mutation(
        'numbers of NumPy that become others',
        'compiler/surroundings.py',
        ', np.float64, np.float32, np.int64, np.bool_)',
        ')',
        'tests/compiler/test_writes_and_settings.py -k numpy',
    ),
    Mutation(
        'modules of PyG that gather themselves',
        'swap.py',
        'torch_geometric.nn.MetaLayer, *_GATHERING',
        'torch_geometric.nn.MetaLayer',
        'tests/test_swap.py -k gather_themselves',
    ),
    Mutation(
        'sources that are walked as targets',
        'compiler/to_sources.py',
        'found.setdefault(id(node), dataclasses.replace(node, residency=_OTHER[node.residency]))',
        'node',
        f'{_NUMBERS} -k "own_code and Both"',
    ),
    Mutation(
        'edges that lead back, and lead as they did',
        'compiler/written.py',
        'edges_that_lead_back = edges.reversed()',
        'edges_that_lead_back = edges',
        f'{_NUMBERS} -k "own_code and Both"',
    ),
    Mutation(
        'ids of edges that lead back',
        'graph/graph.py',
        'ids = places if self.csr.edge_id is None else self.csr.edge_id[places.long()]',
        'ids = places',
        'tests/graph/test_graph.py -k reversed',
    ),
    Mutation(
        'values in memory, for reductions to sources alone',
        'compiler/to_sources.py',
        'made = with_args(node, lambda parent: found[id(parent)])',
        'made = node',
        f'{_NUMBERS} -k "own_code and Tracks"',
    ),
    Mutation(
        'reductions to one end, taken for those to both',
        'conv/_modules.py',
        '_ROWS = Row(1, False), Row(0, False), Row(1, True), Row(0, True)',
        '_ROWS = Row(1, True), Row(0, True), Row(1, False), Row(0, False)',
        'tests/conv/modules/test_calls.py -k other_ends',
    ),
    Mutation(
        'degrees of targets where those of sources are asked for',
        'compiler/scattering.py',
        'return index.of_rows()',
        'return Place(True)',
        f'{_NUMBERS} -k "own_code and Both"',
    ),
    Mutation(
        'degrees of edges as they came, of the other end',
        'ops/degrees.py',
        'row, count = 1 - row, edges.num_sources',
        'row, count = row, edges.num_sources',
        'tests/ops/test_degrees.py',
    ),
    Mutation(
        'sums over channels for each reduction',
        'compiler/channel_sums.py',
        'sums = [node for node in found if counts[id(node)] > 1 and',
        'sums = [node for node in found if counts[id(node)] > 9 and',
        f'{_OBJECTS} -k made_once',
    ),
    Mutation(
        'rows of edges that are one argument within torch.compile',
        'conv/_traced_modules.py',
        'as_one(*[given[name] for name in edges])',
        'as_one(*[given[name] for name in edges[::-1]])',
        'tests/conv/modules/test_torch_modes.py -k "within_torch_compile and Interaction"',
    ),
)
