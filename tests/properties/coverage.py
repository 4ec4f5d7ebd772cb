"""Which pairs of values were met, and a small set of cases that meets all of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping

from tests.properties.dimension import LAYER, Case, Space
from tests.properties.possible import REFUSED, RULES, conflict
from tests.properties.space import SPACE

# how often a case is drawn before a pair is taken to be impossible
TRIES = 200
# how often all values are drawn again, and not one of those that have no meaning together
AFRESH = 0.1
CANDIDATES = 12
# values whose cases take long, of which there are tests of each layer with its options
SLOW = {('context', 'compiled')}
EVERY_RULE = {**RULES, **REFUSED}

Setting = tuple[str, str]
Pair = tuple[Setting, Setting]


def draw(
    source: random.Random, fixed: Mapping[str, str] | None = None, space: Space = SPACE, refused: float = 0.0
) -> Case | None:
    """A random case that has a meaning; None if none was found.

    Args:
        source: Random numbers.
        fixed: Values that are given.
        space: All cases.
        refused: The share of cases in which what PyG is expected to refuse is left as it is.
    """
    fixed = fixed or {}
    rules = RULES if source.random() < refused else EVERY_RULE
    has_layer = LAYER in fixed or any(space.dimensions[name].layer for name in fixed)
    case = space.draw(source, fixed)
    for _ in range(TRIES):
        read = conflict(case, rules, space)
        if read is None:
            return case
        free = sorted(read - fixed.keys() - {LAYER})
        if free and source.random() > AFRESH:
            name = source.choice(free)
            case = Case({**case.values, name: space.dimensions[name].draw(source)}, case.seed)
        elif free or (LAYER in read and not has_layer):
            case = space.draw(source, fixed)
        else:
            return None
    return None


def pairs_of(case: Case) -> Iterator[Pair]:
    """All pairs of values of a case."""
    return itertools.combinations(case.values.items(), 2)


def all_pairs(space: Space = SPACE) -> Iterator[Pair]:
    """All pairs of values of two dimensions that a layer has, but for those of `SLOW` ones and of a layer's options."""
    met = set()
    for layer in space.dimensions[LAYER].values:
        for one, other in itertools.combinations(space.of_layer(layer), 2):
            for pair in itertools.product(one.values, other.values):
                named = (one.name, pair[0]), (other.name, pair[1])
                if named[1] in SLOW and one.layer is not None:
                    continue
                if named not in met and not (one.name == LAYER and pair[0] != layer and other.layer):
                    met.add(named)
                    yield named


def covering(seed: int = 0, space: Space = SPACE) -> tuple[list[Case], set[Pair]]:
    """Cases that together have every pair of values, and the pairs that no case has.

    Cases that PyG refuses do not count. Pairs are taken in order; each that is not there yet is completed by the best
    of some random cases.
    """
    source, cases, impossible = random.Random(seed), [], set()
    missing = dict.fromkeys(all_pairs(space))
    while missing:
        pair = next(iter(missing))
        found = [draw(source, dict(pair), space)]
        if found[0] is None:
            impossible.add(pair)
            del missing[pair]
            continue
        found += [draw(source, dict(pair), space) or found[0] for _ in range(CANDIDATES - 1)]
        best = max(found, key=lambda case: sum(pair in missing for pair in pairs_of(case)))
        for met in pairs_of(best):
            missing.pop(met, None)
        cases.append(best)
    return cases, impossible
