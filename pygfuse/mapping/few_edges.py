"""Whether edges are so few that they are added up as they come, and not sorted for a walk."""

from __future__ import annotations

from pygfuse.mapping import records

# of rows that are read and written: up to so many, adding edges as they come takes less than what has to be done first
# for a walk of sorted ones
MOST_BYTES = 2**23
# edges: up to so many, PyG's operators on them take less than a network's, or than many operators on nodes
MOST_OF_OPERATORS = 2**8
# the same, where PyG's are few, and others a program
MOST_OF_ONE_OPERATOR = 2**10
# the same of a network that normalises, or of several forms, networks among them
MOST_OF_NORMALISED = 2**11
# the same of several forms, networks that normalise among them
MOST_OF_SEVERAL_NORMALISED = 2**12
# the same of normalised values of which several walks compute again what PyG's operators compute once
MOST_OF_NORMALISED_AGAIN = 2**14
# the same where values of edges are returned, which both write
MOST_OF_RETURNED = 2**12
# the same where a walk computes again what PyG's operators compute once
MOST_OF_COMPUTED_AGAIN = 2**12
# the same of a module that gathers itself, whose arguments are looked at in each call
MOST_OF_A_MODULE = 2**10
# the same of several copies of the nodes, whose features are put one after the other
MOST_OF_COPIES = 2**11
# numbers in rows of edges: up to so many, PyG's operators on them take less than a walk that writes sums over channels,
# and operators on these
MOST_OF_SUMS = 2**16
# numbers in rows of edges: up to so many, PyG's operators on them take less than a network
MOST_OF_NETWORKS = 2**16
# the same, where what is normalised over edges, or what several reductions read, is in memory
MOST_OF_NETWORKS_KEPT = 2**18
# numbers in rows of edges: up to so many, PyG's operators take less than a layer's network that drops some of them
MOST_OF_DROPPING = 2**14
# numbers in all matrices of edges: up to so many, PyG's product with these takes less than products added up first
MOST_OF_MATRICES = 2**18
# the same of narrow matrices, and edges of however few numbers their matrices are
MOST_OF_NARROW_MATRICES = 3 * 2**15
MOST_OF_NARROWEST_MATRICES = 3 * 2**9
# the same of a sum that is weighed by a number for each edge; several at once share it
MOST_OF_A_WEIGHED_SUM = 2**9
# the same, by what both sides take (`pygfuse.mapping.work`)
MOST_OF_WORK = 3 * 2**11
# of all values of edges: up to so many, PyG's operators take less than operators on chunks, which compute them twice
MOST_OF_CHUNKED_BYTES = 2**27
# how many times as many where operators on chunks compute much of it more often still
_CHUNKED_AGAIN = 8
# the same of a product with a sparse matrix, whose edges would have to be looked at and turned around
MOST_OF_A_PRODUCT = 2**12
# numbers in rows of edges: up to so many, PyG's operators take less than towers that are scaled after their first maps
MOST_OF_TOWERS = 2**14
# of rows of edges: up to so many, PyG's operators take less than a layer that maps rows by types
MOST_OF_TYPES_BYTES = 2**20
# the same of what torch.compile makes of PyG's operators
MOST_OF_COMPILED = 2**12
# the same where an edge is much work, by a softmax or a network
MOST_OF_COMPILED_WORK = 2**10
# edges of a sparse matrix: up to so many, a list of them is made, which takes 16 bytes an edge
MOST_LISTED = 2**20
# the same, where the other way is a loop over chunks of edges
MOST_AT_ONCE_BYTES = 2**19
# of rows of edges and nodes: up to so many, a kernel takes edges through a network in less time than chunks take
MOST_IN_KERNELS_BYTES = 2**25
# of rows of edges: up to so many, several walks read a product with features of edges that is multiplied out once
MOST_MULTIPLIED_BYTES = 2**23
# numbers that a network of edges multiplies: beyond, several threads take less than one
MOST_PRODUCTS = 2**24
# numbers in rows of edges: beyond, walks of programs take two threads
MOST_OF_ONE_THREAD = 2**17
# edges: up to so many, features are mapped by a product of their own before the walk
MOST_MAPPED_FIRST = 2**9
# features of an edge, up to which walks multiply them: two threads take a wider product at once
MOST_MULTIPLIED_FEATURES = 2**5
# what an edge of narrower rows takes, too
_LEAST_ROW = 256

# times as many edges of a network of one, two, and more normalisations, each of which computes those before again; and
# where values of edges are returned, so that what is normalised is in memory
_NORMALISED = 1, 2, 6
_NORMALISED_RETURNED = 1, 2, 2
# more of them count no further
MOST_PASSES = len(_NORMALISED)

# why a layer runs PyG's operators
SO_FEW_EDGES = 'so few edges that a row for each takes less'


def counted_bytes(width: int, element_bytes: int, scores_channels: bool = False) -> int:
    """What a row of a width counts for `are_few`, in bytes.

    Args:
        width: Of a row.
        element_bytes: Bytes of a number.
        scores_channels: Whether edges have a score of their channels: as they come, they are scored one by one.
    """
    return max(_LEAST_ROW, width * element_bytes) * (2 if scores_channels else 1)


def are_few(num_edges: int, num_nodes: int, row_bytes: int, products: tuple[int, int] = (0, 0)) -> bool:
    """Whether edges are added up as they come; what was measured of walks (`pygfuse.autotune`) is for sorted ones.

    Args:
        num_edges: Number of edges.
        num_nodes: Number of sources and targets together.
        row_bytes: What a row counts, see `counted_bytes`.
        products: How many numbers are multiplied for an edge and for a node.

    Example:
        >>> are_few(100, 50, counted_bytes(64, 4)), are_few(100_000, 20_000, counted_bytes(64, 4))
        (True, False)
    """
    if num_edges * products[0] + num_nodes * products[1] > MOST_PRODUCTS:
        return False
    return (num_edges + num_nodes) * row_bytes <= MOST_BYTES and records.TABLE.is_empty()


def are_of_two_threads(num_edges: int, width: int) -> bool:
    """Whether the walk of a program along few edges is that much work that two threads share it.

    Example:
        >>> are_of_two_threads(1000, 64), are_of_two_threads(10_000, 64)
        (False, True)
    """
    return num_edges * width > MOST_OF_ONE_THREAD


def are_multiplied(num_edges: int, num_features: int) -> bool:
    """Whether the walk of a program multiplies features of edges by a weight, so that no row of an edge is written.

    Args:
        num_edges: Number of edges.
        num_features: Of an edge.

    Example:
        >>> are_multiplied(1000, 8), are_multiplied(100, 8), are_multiplied(1000, 64)
        (True, False, False)
    """
    return num_edges > MOST_MAPPED_FIRST and num_features <= MOST_MULTIPLIED_FEATURES


def are_of_a_product(num_edges: int) -> bool:
    """Whether a product with a sparse matrix takes less than a walk of its edges, which are so few.

    Example:
        >>> are_of_a_product(1000), are_of_a_product(10_000)
        (True, False)
    """
    return 0 < num_edges <= MOST_OF_A_PRODUCT


def are_listed(num_edges: int) -> bool:
    """Whether a list of the edges of a sparse matrix is made.

    Example:
        >>> are_listed(1000), are_listed(2_000_000)
        (True, False)
    """
    return 0 < num_edges <= MOST_LISTED


def fewest_of(
    is_long: bool = False,
    is_short: bool = False,
    is_weighed: bool = False,
    is_normalised: bool = False,
    is_several: bool = False,
    is_returned: bool = False,
    is_computed_again: bool = False,
    is_of_a_module: bool = False,
    is_of_a_matrix: bool = False,
    is_of_copies: bool = False,
    num_normalised: int = 1,
) -> int:
    """From how many edges on PyG's operators on edges take more time than what stands for them.

    Args:
        is_long: Whether that is many functions in Python: a network's, or operators on nodes.
        is_short: Whether PyG's are few.
        is_weighed: Whether that is a sum that is weighed by a number for each edge.
        is_normalised: Whether something is normalised over edges, which operators of torch compute.
        is_several: Whether several forms run one after the other, networks among them.
        is_returned: Whether values of edges are returned.
        is_computed_again: Whether much of what PyG's compute once is computed several times.
        is_of_a_module: Whether a module's own operators are meant, not a layer's.
        is_of_a_matrix: Whether these are products with a sparse matrix.
        is_of_copies: Whether edges are those of several copies of the nodes.
        num_normalised: How many normalisations a network has.

    Example:
        >>> fewest_of(), fewest_of(is_long=True), fewest_of(is_short=True)
        (0, 257, 1025)
        >>> [fewest_of(is_normalised=True, num_normalised=count) for count in (1, 2, 3, 9)]
        [2049, 4097, 12289, 12289]
    """
    again = min(max(num_normalised, 1), MOST_PASSES) - 1
    limits = (
        (is_long, MOST_OF_OPERATORS),
        (is_short, MOST_OF_ONE_OPERATOR),
        (is_weighed, MOST_OF_A_WEIGHED_SUM),
        (is_normalised or is_several, MOST_OF_NORMALISED * _NORMALISED[again]),
        (is_normalised and is_several, MOST_OF_SEVERAL_NORMALISED),
        (is_normalised and is_computed_again, MOST_OF_NORMALISED_AGAIN),
        (is_returned, MOST_OF_RETURNED * _NORMALISED_RETURNED[again]),
        (is_computed_again, MOST_OF_COMPUTED_AGAIN),
        (is_of_a_module, MOST_OF_A_MODULE),
        (is_of_a_matrix, MOST_OF_A_PRODUCT),
        (is_of_copies, MOST_OF_COPIES),
    )
    return max([0, *[limit + 1 for holds, limit in limits if holds]])


def fewest_of_matrices(numbers: int, is_differentiated: bool) -> int:
    """From how many edges on a matrix for each takes more than products that are added up by target first.

    Args:
        numbers: In a matrix.
        is_differentiated: Whether there will be gradients, of which PyG's operators take more.

    Example:
        >>> fewest_of_matrices(16 * 16, True), fewest_of_matrices(16 * 16, False), fewest_of_matrices(4 * 4, True)
        (385, 769, 1537)
    """
    numbers = max(numbers, 1)
    narrow = min(MOST_OF_NARROW_MATRICES // numbers, MOST_OF_NARROWEST_MATRICES)
    most = max(narrow, min(MOST_OF_MATRICES // numbers, MOST_OF_OPERATORS))
    return (most if is_differentiated else 2 * most) + 1


def fewest_of_sums(width: int) -> int:
    """From how many edges on PyG's operators take more than a walk that writes sums over channels, and a few on these.

    Args:
        width: How many numbers a sum is of.

    Example:
        >>> fewest_of_sums(64), fewest_of_sums(16)
        (1025, 4097)
    """
    return MOST_OF_SUMS // max(width, 1) + 1


def fewest_of_networks(width: int, is_kept: bool = False) -> int:
    """From how many edges on PyG's operators take more than a network.

    Args:
        width: Numbers of an edge in the widest of its values.
        is_kept: Whether what is normalised over edges, or what several reductions read, is in memory.

    Example:
        >>> fewest_of_networks(32), fewest_of_networks(32, is_kept=True)
        (2049, 8193)
    """
    return (MOST_OF_NETWORKS_KEPT if is_kept else MOST_OF_NETWORKS) // max(width, 1) + 1


def fewest_of_dropping(width: int) -> int:
    """From how many edges on PyG's operators take more than a layer's network that drops values.

    Args:
        width: Numbers of an edge behind the first linear map.

    Example:
        >>> fewest_of_dropping(64), fewest_of_dropping(16)
        (257, 1025)
    """
    return MOST_OF_DROPPING // max(width, 1) + 1


def fewest_of_towers(width: int, has_edge_features: bool) -> int:
    """From how many edges on PyG's operators take more than towers that are scaled after their first maps.

    Args:
        width: Of a tower's rows.
        has_edge_features: Whether edges have features, too, which walks multiply.

    Example:
        >>> fewest_of_towers(16, False), fewest_of_towers(16, True), fewest_of_towers(128, False)
        (1025, 2049, 257)
    """
    most = MOST_OF_TOWERS * (2 if has_edge_features else 1) // max(width, 1)
    return max(most, MOST_OF_OPERATORS) + 1


def fewest_of_chunks(row_bytes: int, is_computed_again: bool = False) -> int:
    """From how many edges on PyG's operators take more than operators on chunks of edges, for the memory they take.

    Args:
        row_bytes: Of all values of an edge that PyG's have in memory.
        is_computed_again: Whether chunks compute much of what PyG's compute once for several values.

    Example:
        >>> fewest_of_chunks(4 * 1024), fewest_of_chunks(4 * 1024, is_computed_again=True)
        (32769, 262145)
    """
    return MOST_OF_CHUNKED_BYTES * (_CHUNKED_AGAIN if is_computed_again else 1) // max(row_bytes, 1) + 1


def fewest_compiled(is_much_work: bool) -> int:
    """From how many edges on what torch.compile makes of PyG's operators takes more than kernels, which it only calls.

    Args:
        is_much_work: Whether an edge is much work, by a softmax over targets or a network.

    Example:
        >>> fewest_compiled(False), fewest_compiled(True)
        (4097, 1025)
    """
    return (MOST_OF_COMPILED_WORK if is_much_work else MOST_OF_COMPILED) + 1


def are_few_of_types(num_edges: int, row_bytes: int) -> bool:
    """Whether PyG's operators take less than a layer that maps rows by types, which is many operators of nodes.

    Args:
        num_edges: Number of edges.
        row_bytes: Of a row, see `counted_bytes`.

    Example:
        >>> are_few_of_types(4000, 256), are_few_of_types(4000, 1024)
        (True, False)
    """
    return 0 < num_edges * row_bytes <= MOST_OF_TYPES_BYTES


def are_at_once(num_edges: int, row_bytes: int) -> bool:
    """Whether edges have a row each in place of chunks of them.

    Example:
        >>> are_at_once(4000, 256)
        False
    """
    return 0 < num_edges * row_bytes <= MOST_AT_ONCE_BYTES


def are_multiplied_once(num_edges: int, row_bytes: int) -> bool:
    """Whether several walks read what features of edges give times a weight, in place of multiplying in each.

    Args:
        num_edges: Number of edges.
        row_bytes: Of a row of the product, see `counted_bytes`.

    Example:
        >>> are_multiplied_once(1000, 1500), are_multiplied_once(1_000_000, 1500)
        (True, False)
    """
    return 0 < num_edges * row_bytes <= MOST_MULTIPLIED_BYTES


def are_in_kernels(num_edges: int, num_nodes: int, row_bytes: int) -> bool:
    """Whether a kernel takes edges as they come through a network, in place of chunks of sorted ones.

    Args:
        num_edges: Number of edges.
        num_nodes: Number of sources and targets together.
        row_bytes: Of the widest value, see `counted_bytes`.

    Example:
        >>> are_in_kernels(40_000, 5_000, 256), are_in_kernels(400_000, 5_000, 256)
        (True, False)
    """
    is_little = (num_nodes + num_edges) * row_bytes <= MOST_IN_KERNELS_BYTES
    return num_edges > 0 and is_little and records.TABLE.is_empty()
