"""All mutations. Those of what is compiled come last: each compiles its kernels anew."""

from __future__ import annotations

from tests.mutations.in_adjacencies import OF_ADJACENCIES
from tests.mutations.in_callers import OF_CALLERS
from tests.mutations.in_code_of_others import OF_CODE_OF_OTHERS
from tests.mutations.in_compilation import OF_COMPILATION
from tests.mutations.in_compiled_calls import OF_COMPILED_CALLS
from tests.mutations.in_compiled_messages import OF_COMPILED_MESSAGES
from tests.mutations.in_copies import OF_COPIES
from tests.mutations.in_cuda import OF_CUDA
from tests.mutations.in_dropouts import OF_DROPOUTS
from tests.mutations.in_edges import OF_EDGES
from tests.mutations.in_extremes_and_norms import OF_EXTREMES_AND_NORMS
from tests.mutations.in_few_edge_stages import OF_FEW_EDGE_STAGES
from tests.mutations.in_few_edges import OF_FEW_EDGES
from tests.mutations.in_graphs import OF_GRAPHS
from tests.mutations.in_kernels import OF_KERNELS
from tests.mutations.in_layers import OF_LAYERS
from tests.mutations.in_mapped_walks import OF_MAPPED_WALKS
from tests.mutations.in_matrices_of_edges import OF_MATRICES_OF_EDGES
from tests.mutations.in_modules import OF_MODULES
from tests.mutations.in_nested_layers import OF_NESTED_LAYERS
from tests.mutations.in_objects import OF_OBJECTS
from tests.mutations.in_of_nodes import OF_NODES
from tests.mutations.in_operators import OF_OPERATORS
from tests.mutations.in_products import OF_PRODUCTS
from tests.mutations.in_programs import OF_PROGRAMS
from tests.mutations.in_remade_edges import OF_REMADE_EDGES
from tests.mutations.in_rows_of_nodes import OF_ROWS_OF_NODES
from tests.mutations.in_side_effects import OF_SIDE_EFFECTS
from tests.mutations.in_splines import OF_SPLINES
from tests.mutations.in_traced_calls import OF_TRACED_CALLS
from tests.mutations.in_turned import OF_TURNED
from tests.mutations.in_two_sets import OF_TWO_SETS
from tests.mutations.in_typed_layers import OF_TYPED_LAYERS
from tests.mutations.in_typed_maps import OF_TYPED_MAPS
from tests.mutations.in_types import OF_TYPES
from tests.mutations.in_values_of_edges import OF_VALUES_OF_EDGES
from tests.mutations.in_writes import OF_WRITES

MUTATIONS = (
    *OF_PROGRAMS,
    *OF_GRAPHS,
    *OF_OPERATORS,
    *OF_LAYERS,
    *OF_TYPED_LAYERS,
    *OF_SPLINES,
    *OF_WRITES,
    *OF_TYPES,
    *OF_TYPED_MAPS,
    *OF_ADJACENCIES,
    *OF_COMPILED_MESSAGES,
    *OF_COMPILED_CALLS,
    *OF_DROPOUTS,
    *OF_CODE_OF_OTHERS,
    *OF_MODULES,
    *OF_CALLERS,
    *OF_COPIES,
    *OF_TURNED,
    *OF_EXTREMES_AND_NORMS,
    *OF_SIDE_EFFECTS,
    *OF_NESTED_LAYERS,
    *OF_OBJECTS,
    *OF_TWO_SETS,
    *OF_NODES,
    *OF_REMADE_EDGES,
    *OF_VALUES_OF_EDGES,
    *OF_TRACED_CALLS,
    *OF_MATRICES_OF_EDGES,
    *OF_FEW_EDGE_STAGES,
    *OF_COMPILATION,
    *OF_FEW_EDGES,
    *OF_MAPPED_WALKS,
    *OF_PRODUCTS,
    *OF_ROWS_OF_NODES,
    *OF_EDGES,
    *OF_CUDA,
    *OF_KERNELS,
)
