"""Along how many edges a plan takes less time than PyG's operators on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pygfuse.compiler.capture.layers import Captured
from pygfuse.compiler.forms.along_edges import AlongEdges
from pygfuse.compiler.forms.chunked import Chunked
from pygfuse.compiler.forms.cost import Cost, cost_as_written, cost_of, operations_of
from pygfuse.compiler.forms.form import Form, are_written_along
from pygfuse.compiler.forms.lowering import Walk
from pygfuse.compiler.ir.operations import OPERATIONS
from pygfuse.compiler.ir.values import EDGE, Node, computed_on_edges, in_order, results_of, set_of_edges
from pygfuse.compiler.networks.network import Network
from pygfuse.compiler.plan.called import summed
from pygfuse.mapping.few_edges import fewest_of, fewest_of_chunks, fewest_of_networks, fewest_of_sums
from pygfuse.mapping.work import OPERATORS_OF_A_SOFTMAX, Work, fewest_of_work
from pygfuse.ops.few_edges.sums import SUMS

# of so many operators on nodes, PyG's, on edges that are few, are as many and take less
_MANY_OPERATORS = 8
# each of several forms is a function in Python, forward and backward
_FEW_FORMS = 2
# times the numbers computed on an edge as the message is written: a walk multiplies features again for each place
_MUCH_MORE = 1.5
# times the same: so much on chunks, which compute it twice, is most of a step
_MUCH_ON_CHUNKS = 0.25
# numbers in a row: values of edges that are narrower take operators on chunks longer than PyG's
_NARROW_ON_CHUNKS = 32
# a message's own one to three, and its sum
_FEW_OPERATORS = 4
# what runs no operator, and what makes a view alone
_NO_OPERATORS = {
    'input', 'results', 'parameter_columns', 'of_sources', 'of_targets', 'kept', 'filled', 'as_sources', 'placement',
    'targets_of_layer',
}  # fmt: skip
_VIEWS = {'reshape', 'columns', 'index'}
# rows of a table are added up where they were read
_OF_A_LOOKUP = 2


def fewest_edges_of(
    captured: Captured, output: Node, steps: Sequence[Node], walks: Mapping[int, Form], has_ties: bool,
    num_normalised: int,
) -> int:  # fmt: skip
    """From how many edges on a plan takes less than PyG's operators on edges.

    Args:
        captured: The layer as it was captured.
        output, steps, walks: The plan's.
        has_ties: Whether the gradient of an extreme goes to one of the edges that tie.
        num_normalised: How many normalisations over edges follow one another.
    """
    if any(node.op in ('typed_map', 'typed_product') for node in steps):
        # PyG's copy a matrix for each edge
        return fewest_of(is_long=True)
    operators = sum(node.op != 'input' and id(node) not in walks for node in steps)
    # operators on a few numbers of each edge, as PyG's are on few edges
    every = {id(form): form for form in walks.values()}
    small = {key for key, form in every.items() if isinstance(form, Chunked) and form.is_small}
    forms = [form for key, form in every.items() if key not in small]
    sums = [form.num_summed for form in forms if isinstance(form, AlongEdges) and form.num_summed > 1]
    has_network = not all(isinstance(form, Walk) for form in forms)
    # rows of a table are computed for nodes and for the table, which PyG's compute once an edge
    looks_up = any(node.op == 'lookup' for node in steps)
    of_sources = any(node.op == 'softmax_of_sources' for node in steps)
    is_long = operators > _MANY_OPERATORS or has_network or looks_up
    networks = [form for form in walks.values() if isinstance(form, Network)]
    returned = [walks.get(id(node)) for node in results_of(output) if node.residency == EDGE]
    written, cost = cost_as_written(captured.output), cost_of(output, steps, walks)
    chunked_reductions = chunked_in(walks)
    # the three walks of an extreme of one edge take less than torch_scatter's and its gradient
    is_more = not has_ties and cost.operations[EDGE] > _MUCH_MORE * written.operations[EDGE]
    on_chunks = [node for form in forms if isinstance(form, Chunked) for node in form.order]
    is_normalised = any(node.op == 'batch_norm' for node in steps if id(node) not in walks)
    much = _MUCH_ON_CHUNKS * written.operations[EDGE]
    is_chunked = sum(map(operations_of, on_chunks)) > much
    # maps that are computed again take longer than memory does
    maps = sum(operations_of(node) for node in on_chunks if node.op == 'linear')
    is_again = is_more or (chunked_reductions > 0 and maps > much)
    is_again |= is_chunked and chunked_reductions == 0 and max(n.width for n in on_chunks) < _NARROW_ON_CHUNKS
    row_bytes = written.held * captured.output.dtype.itemsize
    return max(
        fewest_of(
            is_long=is_long,
            is_short=_is_short(captured.output, walks),
            is_weighed=_are_weighed_sums(walks),
            is_normalised=is_normalised or any(form.is_normalised for form in networks),
            is_several=is_normalised or of_sources or (has_network and (len(forms) > _FEW_FORMS or bool(returned))),
            is_returned=not all(map(are_written_along, returned)),
            is_computed_again=is_more,
            num_normalised=num_normalised,
        ),
        fewest_of_chunks(row_bytes, is_again) if chunked_reductions or is_chunked else 0,
        fewest_of_sums(min(sums)) if small and sums else 0,
        _fewest_of_networks(networks, steps, walks, is_normalised) if networks else 0,
        0 if has_ties else _fewest_of_walks(captured, steps, walks, written),
    )


def _fewest_of_walks(captured: Captured, steps: Sequence[Node], walks: Mapping[int, Form], written: Cost) -> int:
    """The same of walks alone, by what they and PyG's operators take; 0 of others."""
    forms = {id(form): form for form in walks.values()}.values()
    are_walks = all(isinstance(form, (Walk, AlongEdges)) for form in forms)
    if not are_walks or (are_sums(walks) and not captured.is_of_a_module):
        return 0
    if any(node.op == 'layer' for node in steps):
        # which have limits of their own
        return 0
    ours = [node.op for node in steps if id(node) not in walks and node.op not in _NO_OPERATORS]
    theirs = [node for node in in_order(captured.output) if node.op not in (*_NO_OPERATORS, *_VIEWS)]
    counted = [(node.residency, OPERATORS_OF_A_SOFTMAX if node.op == 'softmax' else 1) for node in theirs]
    views = sum(op in _VIEWS for op in ours)
    work = Work(
        captured=sum(count for _, count in counted),
        on_edges=sum(count for residency, count in counted if residency == EDGE),
        numbers=written.held,
        operations=written.operations[EDGE],
        operators=len(ours) - views + _OF_A_LOOKUP * ours.count('lookup'),
        views=views,
        walks=len(forms),
        operands=sum(len(form.operands) for form in forms),
        returned=sum(isinstance(form, AlongEdges) for form in forms),
        sets=len({set_of_edges(node) for node in steps if id(node) in walks}) + captured.makes_edges,
        is_of_a_module=captured.is_of_a_module,
    )
    return fewest_of_work(work)


def _fewest_of_networks(
    networks: Sequence[Network], steps: Sequence[Node], walks: Mapping[int, Form], is_normalised: bool
) -> int:
    if any(isinstance(form, Walk) and form.program.softmax for form in walks.values()):
        # of a softmax PyG's operators take longer than all else of them
        return 0
    widest = max(node.width for form in networks for node in computed_on_edges(form.message))
    read = [node.args[0].attributes['of'] for node in steps if node.op == 'reduce' and node.args[0].op == 'kept']
    is_shared = len(read) > len({id(node) for node in read})
    return fewest_of_networks(widest, is_normalised or is_shared or any(form.batch_norms for form in networks))


def are_sums(walks: Mapping[int, Form]) -> bool:
    """Whether all there is are sums, perhaps weighed by a number for each edge."""
    return all(isinstance(form, Walk) and summed(form) is not None for form in walks.values())


def _are_weighed_sums(walks: Mapping[int, Form]) -> bool:
    """Whether all there is are such sums, and one of them is weighed at least."""
    return are_sums(walks) and any(summed(form)[1] is not None for form in walks.values())


def _is_short(captured: Node, walks: Mapping[int, Form]) -> bool:
    """Whether what was captured are a few operators and a sum, and this is a program."""
    forms = walks.values()
    if not all(isinstance(form, Walk) and form.reduce in SUMS and summed(form) is None for form in forms):
        return False
    order = in_order(captured)
    return sum(node.op in OPERATIONS and not OPERATIONS[node.op].selects for node in order) <= _FEW_OPERATORS


def chunked_in(walks: Mapping[int, Form]) -> int:
    """How many reductions run by operators on chunks of edges, the slowest form."""
    return sum(isinstance(form, Chunked) and form.reduction is not None for form in walks.values())
