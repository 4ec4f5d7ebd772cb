"""What is broken in caches, graphs and cuts."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MAPPING = 'tests/mapping/test_mapping.py'
GRAPH = 'tests/graph/test_graph.py'
BUCKETS = 'tests/cpu/edges/test_bucket_sort.py'

OF_GRAPHS = (
    # caches
    Mutation(
        'an address that is used again',
        '_lib/identity_cache.py',
        'if entry is None or entry.reference() is not owner:\n            return None\n        found',
        'if entry is None:\n            return None\n        found',
        'tests/_lib/test_identity_cache.py',
    ),
    Mutation(
        'a state that has changed',
        '_lib/identity_cache.py',
        'if found is None or entry.state != self._state_of(owner):',
        'if found is None:',
        'tests/_lib/test_identity_cache.py',
    ),
    Mutation(
        'a late value of an earlier state',
        '_lib/identity_cache.py',
        'if self._state_of(owner) != state:',
        'if False:',
        'tests/_lib/test_identity_cache.py',
    ),
    Mutation(
        'values made in inference mode',
        '_lib/memo.py',
        'torch.inference_mode(False)',
        'torch.inference_mode()',
        'tests/_lib/test_memo.py',
    ),
    Mutation(
        'a copy with the values of its original',
        '_lib/memo.py',
        'return Memo, ()',
        'return _with, (self._values,)\n\n\ndef _with(values):\n    memo = Memo()\n    memo._values = values\n'
        '    return memo',
        'tests/_lib/test_memo.py',
    ),
    Mutation(
        'the version of an edge_index',
        'graph/adjacency.py',
        'return tensor._version, tensor.data_ptr(), tensor.shape',
        'return tensor.data_ptr(), tensor.shape',
        f'{GRAPH} -k write',
    ),
    Mutation(
        'the strides of an edge_index',
        'graph/adjacency.py',
        'tensor.shape, tensor.stride(), tensor.dtype',
        'tensor.shape, tensor.dtype',
        f'{GRAPH} -k other_data',
    ),
    Mutation(
        'the flow in the key of a graph',
        'graph/graph.py',
        "key = ('graph', None if size is None else tuple(size), flow, num_sources, num_targets)",
        "key = ('graph', None if size is None else tuple(size), None, num_sources, num_targets)",
        f'{GRAPH} -k "second_call or every_adjacency"',
    ),
    Mutation(
        'the number of loops in the key of a graph',
        'graph/graph.py',
        "('with self-loops', loops),",
        "('with self-loops',),",
        f'{GRAPH} -k self_loops_are_cached',
    ),
    Mutation(
        'the type in the key of norms',
        'conv/_layer/normalise.py',
        "('norm', like.dtype)",
        "('norm',)",
        'tests/conv/test_gcn_conv.py -k norms_of_a_graph',
    ),
    Mutation(
        'the size of parts in the key of a cut',
        'mapping/mapping.py',
        "('cut', mapping.balance, mapping.part_work, parts_limit)",
        "('cut', mapping.balance, parts_limit)",
        MAPPING,
    ),
    Mutation(
        'the balance in the key of a cut',
        'mapping/mapping.py',
        "('cut', mapping.balance, mapping.part_work, parts_limit)",
        "('cut', mapping.part_work, parts_limit)",
        MAPPING,
    ),
    Mutation(
        'the checksum of a kernel',
        '_lib/machine_code.py',
        ' or view[len(_MAGIC) : start] != hashlib.sha256(checked).digest()',
        '',
        'tests/_lib/test_machine_code.py',
    ),
    Mutation(
        'the key of a kernel',
        '_lib/machine_code.py',
        "if fields['key'] != key:",
        'if False:',
        'tests/_lib/test_machine_code.py',
    ),
    Mutation(
        'a folder that others may write to',
        '_lib/private_files.py',
        'mode & (stat.S_IWGRP | stat.S_IWOTH)',
        'mode & stat.S_IWOTH',
        'tests/_lib/test_private_files.py',
    ),
    Mutation(
        'what an interrupted write leaves',
        '_lib/private_files.py',
        '            os.unlink(temporary)',
        '            pass',
        'tests/_lib/test_private_files.py',
    ),
    Mutation(
        'kernels in use leave first',
        '_lib/disk.py',
        'key=lambda item: item[1].st_mtime',
        'key=lambda item: -item[1].st_mtime',
        'tests/_lib/test_disk.py',
    ),
    # graphs and cuts
    Mutation(
        'sources beyond the last one',
        'graph/build.py',
        'least < 0 or most >= graph.num_sources',
        'least < 0 or most > graph.num_sources',
        'tests/graph/test_build.py tests/conv/gat_conv -k "out_of or bad"',
    ),
    Mutation(
        'negative nodes',
        'graph/build.py',
        'wrong = ((nodes < 0) | (nodes >= count)).nonzero()',
        'wrong = (nodes >= count).nonzero()',
        'tests/graph',
    ),
    Mutation(
        'repeated edges beside loops',
        'graph/build.py',
        'first[1:] = ordered.diff() > 0',
        'first[1:] = ordered.diff() > 1',
        f'{GRAPH} -k self_loops_are_those',
    ),
    Mutation(
        'the ids of edges that were numbered anew',
        'graph/build.py',
        'return ids[edge_id]',
        'return edge_id',
        f'{GRAPH} -k self_loops_are_those',
    ),
    # cuts by one kernel
    Mutation(
        'a share that ends with a row',
        'cpu/edges/cuts.py',
        'is_cut = int(inside < degree)',
        'is_cut = int(inside <= degree)',
        f'{MAPPING} -k kernel_cuts',
    ),
    Mutation(
        'rows that are cut once only',
        'cpu/edges/cuts.py',
        'if num_split == 0 or split_rows[num_split - 1] != row:',
        'if True:',
        f'{MAPPING} -k kernel_cuts',
    ),
    Mutation(
        'rows that are light enough to stay whole',
        'cpu/edges/cuts.py',
        'elif inside > 0 and degree > cut_above:',
        'elif inside > 0:',
        f'{MAPPING} -k kernel_cuts',
    ),
    # sorts by way of buckets
    Mutation(
        'buckets that begin where those of the chunk before do',
        'cpu/edges/bucket_sort.py',
        'if chunk == part:',
        'if chunk == 0:',
        BUCKETS,
    ),
    Mutation(
        'room for self-loops before a bucket',
        'cpu/edges/bucket_sort.py',
        'place = begin + max(0, min(first, loops))',
        'place = begin',
        BUCKETS,
    ),
    Mutation(
        'self-loops that are counted in their bucket',
        'cpu/edges/bucket_sort.py',
        'found[target >> shift] += loops < 0 or target != sources[edge]',
        'found[target >> shift] += 1',
        BUCKETS,
    ),
    Mutation(
        'nodes beyond the last',
        'cpu/walks/ends.py',
        'outside |= target | (last_target - target) | source | (last_source - source)',
        'outside |= target | source',
        BUCKETS,
    ),
    Mutation(
        'the blocks of edges that are checked',
        'cpu/edges/bucket_sort.py',
        'is_any_outside(pointer_at(targets, start), pointer_at(sources, start), stop - start',
        'is_any_outside(pointer_at(targets, 0), pointer_at(sources, 0), stop - start',
        BUCKETS,
    ),
    Mutation(
        'the row of a chunk that begins within one',
        'cpu/walks/ends.py',
        'if indptr[middle] <= place:',
        'if indptr[middle] <= place + 1:',
        BUCKETS,
    ),
    Mutation(
        'the inverse of a permutation',
        'cpu/edges/sort.py',
        'places[position[place]] = place',
        'places[place] = place',
        'tests/ops/test_aggregate.py tests/partial/paths/test_path.py -m "not slow"',
    ),
    Mutation(
        'the slot of a piece',
        'mapping/mapping.py',
        'slots[indptr[:-1]] = 2 * (parts[starts] - 1) + 1',
        'slots[indptr[:-1]] = 2 * (parts[starts] - 1)',
        MAPPING,
    ),
    Mutation(
        'rows that end with a part',
        'mapping/mapping.py',
        'cuts = (degree > cut_above) & (inside > 0) & (inside < degree)',
        'cuts = (degree > cut_above) & (inside > 0) & (inside <= degree)',
        MAPPING,
    ),
    Mutation(
        'edges in no order of a graph with loops',
        'graph/orders.py',
        'if not isinstance(origin, Adjacency) or self.num_loops is not None:',
        'if not isinstance(origin, Adjacency):',
        f'{GRAPH} -k in_no_order',
    ),
)
