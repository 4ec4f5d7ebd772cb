"""What a run of cases found, by kind."""

from __future__ import annotations

import collections
import dataclasses

from tests.properties.case import BOTH_RAISE, ONLY_OURS, ONLY_PYG, WRONG, Outcome
from tests.properties.coverage import Pair, all_pairs, pairs_of
from tests.properties.dimension import Case
from tests.properties.known import reason_for
from tests.properties.space import SPACE


def fault_of(case: Case, outcome: Outcome) -> str | None:
    """What is wrong with an outcome, or None."""
    unknown = outcome.kind in (ONLY_PYG, ONLY_OURS) and reason_for(case, outcome) is None
    return f'{outcome.kind}: {outcome.text}' if unknown or outcome.kind == WRONG else None


@dataclasses.dataclass
class Tally:
    """What was found.

    Attributes:
        kinds: How many cases had an outcome of each kind.
        one_sided: How many errors only one side raised, by side, reason and kind.
        paths: How many layers ran fused, or the path of PyG.
        faults: By number of the case, what is wrong.
        met: The pairs of values that were met.
    """

    kinds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    one_sided: collections.Counter[tuple[str, str, str]] = dataclasses.field(default_factory=collections.Counter)
    paths: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    faults: dict[int, str] = dataclasses.field(default_factory=dict)
    met: set[Pair] = dataclasses.field(default_factory=set)

    def add(self, case: Case, outcome: Outcome) -> None:
        """Adds a case."""
        self.kinds[outcome.kind] += 1
        self.met.update(pairs_of(case))
        if outcome.kind != BOTH_RAISE:
            self.paths['fused' if outcome.reason is None else 'PyG'] += 1
        if outcome.kind in (ONLY_PYG, ONLY_OURS):
            self.one_sided[outcome.kind, reason_for(case, outcome) or 'UNKNOWN', outcome.text] += 1
        fault = fault_of(case, outcome)
        if fault is not None:
            self.faults[SPACE.number(case)] = fault

    def update(self, other: Tally) -> None:
        """Adds what another tally has."""
        self.kinds += other.kinds
        self.one_sided += other.one_sided
        self.paths += other.paths
        self.faults |= other.faults
        self.met |= other.met

    @property
    def count(self) -> int:
        """How many cases there were."""
        return self.kinds.total()

    def report(self) -> str:
        """Everything, in lines."""
        lines = [f'{self.count} cases', *_counted(self.kinds)]
        lines += ['', f'{self.paths["fused"]} ran fused, {self.paths["PyG"]} by the path of PyG']
        reasons: collections.Counter[str] = collections.Counter()
        for (side, reason, _), count in self.one_sided.items():
            reasons[f'{side}: {reason}'] += count
        lines += ['', 'errors of one side only, by reason:', *_counted(reasons)]
        lines += [
            '',
            'the same by kind:',
            *_counted({f'{side}: {kind}': n for (side, _, kind), n in self.one_sided.items()}),
        ]
        pairs = set(all_pairs())
        lines += ['', f'{len(self.met & pairs)} of {len(pairs)} pairs of values were met']
        lines += ['', f'{len(self.faults)} faults', *(f'{number}: {text}' for number, text in self.faults.items())]
        return '\n'.join(lines)


def _counted(counts: collections.Counter[str] | dict[str, int]) -> list[str]:
    return [f'{count:8} {name}' for name, count in collections.Counter(counts).most_common()]
