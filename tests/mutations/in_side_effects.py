"""What is broken in modules that count, write into their arguments, and find sizes."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

_ABSENT = 'tests/compiler/test_absent_and_added.py'
_COUNTERS = 'tests/compiler/symbols/test_counters.py'
_IDIOMS = 'tests/conv/modules/test_idioms.py'
_WRITTEN = 'tests/conv/modules/test_written_arguments.py'

OF_SIDE_EFFECTS = (
    Mutation(
        'numbers of rows that are computed with',
        'compiler/ir/values.py',
        'if any(type(number) not in (int, bool) for number in found_in(int, (args, attributes))):',
        'if False:',
        f'{_ABSENT} -k numbers_of_rows',
    ),
    Mutation(
        'attributes that are absent at first',
        'compiler/capture/watch.py',
        'if any(hasattr(owner, name) for owner, name in absent):',
        'if False:',
        f'{_ABSENT} -k first_call',
    ),
    Mutation(
        'modules that are added later',
        'compiler/capture/watch.py',
        'return all(_names_in(owner) == names for owner, names in structures)',
        'return True',
        f'{_ABSENT} -k added_later',
    ),
    Mutation(
        'numbers that are counted up',
        'compiler/plan/written.py',
        "stored = f'getattr({place}) + {constant.moved}' if is_counter",
        "stored = f'getattr({place})' if is_counter",
        f'{_COUNTERS} -k is_counted',
    ),
    Mutation(
        'what comparisons of counters gave',
        'compiler/capture/watch.py',
        'if not all(map(holds, self.compared)) or not',
        'if not',
        f'{_COUNTERS} -k errors',
    ),
    Mutation(
        'counters that are stored elsewhere',
        'compiler/capture/watch.py',
        'if isinstance(found, Counter) and (found.owner, found.name) != (module, name):',
        'if False:',
        f'{_COUNTERS} -k Elsewhere',
    ),
    Mutation(
        'arguments that are written into',
        'compiler/modules/captured_module.py',
        'arguments[name].copy_(one.of(computed, arguments))',
        'pass',
        f'{_WRITTEN} -k numbers',
    ),
    Mutation(
        'what backward reads of arguments that are written into',
        'conv/_modules/module.py',
        '{name: given[name].clone() for name in names}',
        '{name: given[name] for name in names}',
        f'{_WRITTEN} -k numbers',
    ),
    Mutation(
        'memory of two arguments, of which one is written into',
        'conv/_modules/module.py',
        'if any(other == memory[name] for key, other in memory.items() if key != name):',
        'if False:',
        f'{_WRITTEN} -k memory',
    ),
    Mutation(
        'views of arguments that are written into',
        'compiler/symbols/sharing.py',
        'not (all(one is symbol for one in given) and _may_write(symbol))',
        'not _may_write(symbol)',
        f'{_WRITTEN} -k views',
    ),
    Mutation(
        'sizes that end behind the last target',
        'compiler/functions/scattering.py',
        "return AFTER_LAST_TARGET if 'ends_early' in x.node.attributes else Rows(index.rows)",
        'return Rows(index.rows)',
        f'{_IDIOMS} -k sizes_that_are_found',
    ),
)
