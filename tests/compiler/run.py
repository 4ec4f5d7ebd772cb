"""Compiles many random message functions: ``python -m tests.compiler.run --cases 10000``.

Each must give PyG's values and gradients, or be refused.
"""

from __future__ import annotations

import argparse
import collections
import traceback

from tests.compiler.outcomes import outcome
from tests.support import limits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--cases', type=int, default=1000, help='how many')
    parser.add_argument('--first', type=int, default=0, help='the first seed')
    parser.add_argument('--kernels', action='store_true', help='run walks, not torch')
    parser.add_argument('--traced', action='store_true', help='run them within torch.compile, which takes seconds each')
    parser.add_argument('--modules', action='store_true', help='modules that gather and reduce themselves')
    parser.add_argument('--copies', action='store_true', help='those of features with dimensions before that of nodes')
    options = parser.parse_args()
    limits.lift()
    refused: collections.Counter[str] = collections.Counter()
    wrong = 0
    for seed in range(options.first, options.first + options.cases):
        try:
            reason = outcome(seed, options.kernels, options.traced, options.modules, options.copies)
        except Exception:
            wrong += 1
            print(f'seed {seed}')
            traceback.print_exc(limit=3)
            continue
        if reason is not None:
            refused[reason] += 1
    count = sum(refused.values())
    print(f'{options.cases} cases: {options.cases - count - wrong} compiled, {count} refused, {wrong} wrong')
    for reason, number in refused.most_common():
        print(f'{number:>6}  {reason}')


if __name__ == '__main__':
    main()
