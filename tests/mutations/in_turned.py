"""What is broken in values whose rows are not their first dimension, and of what else modules do with all edges."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_TURNED = 'tests/conv/modules/test_turned.py'
_KEPT = 'tests/conv/compiled/test_kept_apart.py'
_PILES = 'tests/compiler/functions/test_piles.py'

OF_TURNED = (
    Mutation(
        'a dimension before that of rows',
        'compiler/symbols/turned.py',
        'return 0 if dim == x.at else dim + (dim < x.at)',
        'return 0 if dim == x.at else dim + (dim > x.at)',
        _TURNED,
    ),
    Mutation(
        'rows behind dimensions that are lost',
        'compiler/symbols/turned.py',
        'at = x.at - _lost(name, x, each, args, kwargs)',
        'at = x.at',
        _TURNED,
    ),
    Mutation(
        'rows that are not at the same place',
        'compiler/symbols/turned.py',
        'return tuple([_broadcast(item, rank, at) for item in args]), kwargs, at',
        'return tuple([_broadcast(item, rank, at) for item in args]), kwargs, 1',
        _TURNED,
    ),
    Mutation(
        'a view with more dimensions before rows',
        'compiler/functions/turned_values.py',
        'x.one, (sizes[at], *before, *behind))), at)',
        'x.one, (sizes[at], *before, *behind))), x.at)',
        _TURNED,
    ),
    Mutation(
        'rows of a result of nodes',
        'compiler/functions/of_nodes.py',
        'return _moved(self.function(*given, **kwargs), self.at, 0)',
        'return self.function(*given, **kwargs)',
        _TURNED,
    ),
    Mutation(
        'rows of what a module returns',
        'compiler/modules/captured_module.py',
        'return found.movedim(0, self.at).contiguous()',
        'return found',
        _TURNED,
    ),
    Mutation(
        'what is stacked and written into',
        'compiler/functions/piles.py',
        'self._parts = parts if is_of_one else tuple(map(_copied, parts))',
        'self._parts = parts',
        _PILES,
    ),
    Mutation(
        'a stack that is written into',
        'compiler/functions/piles.py',
        'if keepdim or not self._is_first(dim) or self._tensor is not None:',
        'if keepdim or not self._is_first(dim):',
        _PILES,
    ),
    Mutation(
        'filled tensors of other widths',
        'compiler/passes/subexpressions.py',
        'node.dtype, node.residency, node.shape',
        'node.dtype, node.residency',
        'tests/conv/modules/test_of_all_nodes.py',
    ),
    Mutation(
        'a shared value along a dimension of its own',
        'compiler/functions/filled.py',
        'if rest.shape[at] != 1:',
        'if rest.shape[at] == 0:',
        'tests/conv/modules/test_of_all_nodes.py',
    ),
    Mutation(
        'nodes without edges in maxima of groups',
        'compiler/functions/to_groups.py',
        'torch.where(has_edges, largest, -math.inf)',
        'torch.where(has_edges, largest, 0.0)',
        'tests/conv/modules/test_groups_of_nodes.py',
    ),
    Mutation(
        'deviations of nothing',
        'compiler/functions/deviations.py',
        'is_zero = recorded(torch.eq, (variance, 0.0))',
        'is_zero = recorded(torch.lt, (variance, 0.0))',
        'tests/conv/modules/test_of_all_nodes.py',
    ),
    Mutation(
        'sums of columns of a sparse matrix',
        'compiler/modules/sparse_matrices.py',
        'ends = self._columns if dim % 2 == 0 else self._rows',
        'ends = self._rows',
        'tests/conv/modules/test_sparse_matrices.py',
    ),
    Mutation(
        'columns of a sparse matrix times numbers',
        'compiler/modules/sparse_matrices.py',
        'ends = self._columns if is_of_columns else self._rows',
        'ends = self._rows if is_of_columns else self._columns',
        'tests/conv/modules/test_sparse_matrices.py',
    ),
    Mutation(
        'messages that are brought as they are',
        'compiler/forms/chunked.py',
        '{id(message): message} if is_brought(message) else {}',
        '{}',
        'tests/conv/modules/test_of_all_nodes.py',
    ),
    Mutation(
        'what a layer writes into behind its messages',
        'conv/_compiled/kept_apart.py',
        'return item.clone() if is_read else item',
        'return item',
        _KEPT,
    ),
    Mutation(
        'copies that update is handed',
        'conv/_compiled/kept_apart.py',
        'return {name: kwargs[name] if are_copies[name] else value',
        'return {name: value',
        _KEPT,
    ),
    Mutation(
        'names that are written into',
        '_lib/names_written.py',
        'if one.opname in _OF_PARTS:',
        'if one.opname in ():',
        _KEPT,
    ),
    Mutation(
        'views by functions of turned nodes',
        'compiler/functions/of_nodes.py',
        'share(symbols_in(found), symbols, name)',
        'share([], symbols, name)',
        _TURNED,
    ),
    Mutation(
        'functions of turned nodes without gradients',
        'compiler/functions/of_nodes.py',
        'found = found if torch.is_grad_enabled() else replaced(',
        'found = found if name else replaced(',
        _TURNED,
    ),
    Mutation(
        'views with a new first dimension',
        'compiler/functions/views.py',
        'as_turned(recorded(Tensor.reshape, (x, (-1, *out.shape[:at], *out.shape[at + 1 :]))), at)',
        'as_turned(made(op, x, shape=(*out.shape[:at], *out.shape[at + 1 :])), at)',
        _TURNED,
    ),
)
