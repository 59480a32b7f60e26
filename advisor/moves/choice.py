"""Of options that exclude one another, those that bring most together.

The best of all sets, not the best option first: an option that is lost (its evidence is missing, somebody dismissed it)
can then never raise the sum of what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .context.move_context import DrawnRecommendation

Array = NDArray[np.float64]

# Options of one tangle that are compared in all combinations; beyond it the largest come first.
MOST_COMPARED = 24


def best_together(options: Sequence[DrawnRecommendation]) -> list[DrawnRecommendation]:
    """The options, no two of which claim the same, whose medians have the largest sum. Ties go to the smaller ids."""
    chosen: list[DrawnRecommendation] = []
    for tangle in _tangles(sorted(options, key=lambda o: (-_p50(o), o.recommendation.id))):
        chosen += _best(tangle) if len(tangle) <= MOST_COMPARED else _largest_first(tangle)
    return chosen


def without_losers(draws: Sequence[Array]) -> list[Array]:
    """Joint draws without those whose going raises the median of the sum, the worst first.

    Medians do not add up: an option that loses about as often as it gains can lower the sum of the others.
    """
    left = list(draws)
    while len(left) > 1:
        total = np.sum(left, axis=0)
        medians = [float(np.median(total - own)) for own in left]
        worst = int(np.argmax(medians))
        if medians[worst] <= float(np.median(total)) + 1e-9:
            break
        del left[worst]
    return left


def _tangles(options: Sequence[DrawnRecommendation]) -> list[list[DrawnRecommendation]]:
    """The options in sets that have no key in common."""
    tangles: list[tuple[set[str], list[DrawnRecommendation]]] = []
    for option in options:
        keys, own = set(option.keys), [option]
        apart = []
        for other, members in tangles:
            if other & keys:
                keys, own = keys | other, [*members, *own]
            else:
                apart.append((other, members))
        tangles = [*apart, (keys, own)]
    return [own for _, own in tangles]


def _best(options: Sequence[DrawnRecommendation]) -> list[DrawnRecommendation]:
    """Branch and bound: each option is in or out, and a branch that cannot beat the best found is left."""
    rest = [0.0] * (len(options) + 1)
    for n in range(len(options) - 1, -1, -1):
        rest[n] = rest[n + 1] + _p50(options[n])
    best: tuple[float, tuple[DrawnRecommendation, ...]] = (0.0, ())

    def branch(n: int, total: float, taken: tuple[DrawnRecommendation, ...], claimed: frozenset[str]) -> None:
        nonlocal best
        if total > best[0] + 1e-9:
            best = (total, taken)
        if n == len(options) or total + rest[n] <= best[0] + 1e-9:
            return
        option = options[n]
        if not claimed & option.keys:
            branch(n + 1, total + _p50(option), (*taken, option), claimed | option.keys)
        branch(n + 1, total, taken, claimed)

    branch(0, 0.0, (), frozenset())
    return list(best[1])


def _largest_first(options: Sequence[DrawnRecommendation]) -> list[DrawnRecommendation]:
    chosen: list[DrawnRecommendation] = []
    claimed: set[str] = set()
    for option in options:
        if not claimed & option.keys:
            claimed |= option.keys
            chosen.append(option)
    return chosen


def _p50(option: DrawnRecommendation) -> float:
    saving = option.recommendation.saving_usd_per_month
    return saving.p50 if saving is not None else 0.0
