"""What is broken in calls of compiled layers that torch.compile traces."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

OF_TRACED_CALLS = (
    Mutation(
        'numbers that a forward sets before they are read',
        'compiler/plan/traced.py',
        'if type(found) is not type(value) or not is_same:',
        'if False:',
        'tests/compiler/test_torch_compile.py -k forward_sets',
    ),
    Mutation(
        'globals that a trace reads again',
        'compiler/plan/traced.py',
        'if getattr(file, name, None) != value:',
        'if False:',
        'tests/compiler/test_torch_compile.py -k "read_again and around"',
    ),
    Mutation(
        'the code of forwards with other globals',
        'conv/_compiled/prepared_edges.py',
        'function.__code__.replace(), namespace',
        'function.__code__, namespace',
        'tests/compiler/test_torch_compile.py -k graph_breaks',
    ),
    Mutation(
        'the globals of such forwards',
        'conv/_compiled/prepared_edges.py',
        "if name != '__name__'}",
        'if name}',
        'tests/compiler/test_torch_compile.py -k "outputs_and_gradients and ClusterGCN"',
    ),
    Mutation(
        'nodes without edges while torch compiles',
        'compiler/ir/untouched.py',
        'return x.index_select(0, _rows_with_edges(touched))',
        'return x',
        'tests/compiler/test_torch_compile.py -k without_edges',
    ),
    Mutation(
        'few edges while torch compiles',
        'conv/_compiled/traced_calls.py',
        'if fallback.are_few_compiled(adjacency, self.fewest_edges):',
        'if False:',
        'tests/compiler/test_torch_compile.py -k few_edges',
    ),
    Mutation(
        'which arguments of a call have as many rows',
        'conv/_compiled/traced_calls.py',
        'if guard_or_false(known == count):',
        'if False:',
        'tests/compiler/test_torch_compile.py -k "outputs_and_gradients and equivariant"',
    ),
    Mutation(
        'an export of compiled layers',
        'conv/_compiled/traced_calls.py',
        'if not is_plain or self.flow != FLOWS[0] or torch.compiler.is_exporting():',
        'if not is_plain or self.flow != FLOWS[0]:',
        'tests/compiler/test_torch_compile.py -k export',
    ),
    Mutation(
        'memory of edges that other edges are written into',
        'ops/within_torch/kept_memory.py',
        'getattr(V.graph, kept).add(token.get_name())',
        'pass',
        'tests/ops/within_torch/test_kept_memory.py -k "SAGEConv and False"',
    ),
    Mutation(
        'compiled graphs on disk of another state of the package',
        'ops/within_torch/compiled_graphs.py',
        "config.cache_key_tag = ' '.join(filter(None, (config.cache_key_tag, tag)))",
        'pass',
        'tests/ops/within_torch/test_compiled_graphs.py',
    ),
    Mutation(
        'a digest of the sources',
        'ops/within_torch/compiled_graphs.py',
        "{path.relative_to(package).as_posix()}\\0'.encode() + path.read_bytes()",
        "{path.relative_to(package).as_posix()}\\0'.encode()",
        'tests/ops/within_torch/test_compiled_graphs.py -k digest',
    ),
    Mutation(
        'a trace of all',
        'conv/_layer/untraced.py',
        'return not (is_one or torch.compiler.is_exporting())',
        'return True',
        'tests/conv/layer/test_untraced.py -k "trace_of_all and FiLM"',
    ),
    Mutation(
        'few edges that are traced',
        'conv/_compiled/traced_calls.py',
        'return SO_FEW_EDGES if fallback.are_few_compiled(adjacency, self.fewest_edges) else UNTRACED',
        'return UNTRACED',
        'tests/conv/layer/test_untraced.py -k "few_edges_are_traced and maxima"',
    ),
)
