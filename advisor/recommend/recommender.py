"""Every recommendation for every finding: what each brings, what blocks it, and when it would be wrong.

Of options that exclude one another, those that bring most together.

The best of all sets, not the best option first: an option that is lost (its evidence is missing, somebody dismissed it)
can then never raise the sum of what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..classify.types import Verdicts
from ..core.advice_types import Decision, Interval, Recommendation
from ..core.coded_text import CodedText, coded
from .evidence import EvidenceGate, with_gap, without_claim
from .finding_context import FindingContext
from .fleet_context import FleetContext, GroupContext
from .groups import Group
from .latency import by_workload, through_latency
from .move_context import DrawnRecommendation, MoveContext, baseline_for
from .moves.fix_first import block_until_fixed
from .owner import ask_owners
from .prediction import percentiles
from .recommendation_kinds import ALL_KINDS, KINDS

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


def all_recommendations(
    scene: MoveContext, verdicts: Verdicts, groups: Sequence[Group], found: Sequence[FindingContext]
) -> tuple[tuple[DrawnRecommendation, ...], tuple[CodedText, ...]]:
    """All recommendations of a window with their draws, and notes on what brings nothing because it is over.

    A fix comes before any move of the same work. A finished series that did not recur gets none.
    """
    movable, notes = _movable(scene, verdicts, groups, found)
    fleet = FleetContext(scene, verdicts, groups, found, movable)
    options = block_until_fixed([option for kind in ALL_KINDS for option in kind.build(fleet)], movable)
    gate = EvidenceGate(verdicts, scene.floor_hours)
    led = by_workload(movable)
    held = [through_latency(_through(gate, option), led) for option in ask_owners(options, groups)]
    return _exclusive(held), notes


def _movable(
    scene: MoveContext, verdicts: Verdicts, groups: Sequence[Group], found: Sequence[FindingContext]
) -> tuple[tuple[GroupContext, ...], tuple[CodedText, ...]]:
    """The series that may be moved, and notes on those that are over: of known kind and sound signals, and in use."""
    by_group: dict[str, dict[str, FindingContext]] = {}
    for item in found:
        if item.group is not None:
            by_group.setdefault(item.group.series_id, {})[item.finding.rule] = item
    faulty = frozenset[str]().union(*(f.faulty for f in found))
    movable: list[GroupContext] = []
    notes: list[CodedText] = []
    for group in groups:
        own = by_group.get(group.series_id, {})
        if not group.recurs:
            if group.series_id not in faulty and own:
                ended = "moved to other nodes" if group.moved else "ended and did not recur"
                notes.append(
                    coded(
                        "work-is-over", "{workload} {ended}; its past waste there is not recoverable.",
                        workload=group.lead.name, ended=ended,
                    )
                )  # fmt: skip
            continue
        released = any("release" in one.answered_by for one in own.values())
        if group.series_id in faulty or not group.nodes or group.kind in ("idle", "unknown") or released:
            continue
        its_scene, base = baseline_for(scene, group)
        movable.append(GroupContext(its_scene, verdicts, base, own))
    return tuple(movable), tuple(notes)


def _through(gate: EvidenceGate, option: DrawnRecommendation) -> DrawnRecommendation:
    """The option as the evidence leaves it: every option passes here, whatever its action."""
    if option.claim is None:
        return option
    missing = gate.missing(option.claim)
    if missing:
        return replace(
            option,
            recommendation=without_claim(option.recommendation, KINDS[option.recommendation.action].subject, missing),
            draws=None,
        )
    return replace(option, recommendation=with_gap(option.recommendation, gate.gap(option.claim)))


def decided(
    options: Sequence[DrawnRecommendation], decisions: Mapping[str, Decision]
) -> tuple[DrawnRecommendation, ...]:
    """The options with what people decided on them, by recommendation's id."""
    return tuple(
        replace(o, recommendation=replace(o.recommendation, decision=decisions.get(o.recommendation.id)))
        for o in options
    )


def recoverable_cash(options: Sequence[DrawnRecommendation]) -> tuple[float, Interval | None]:
    """Cash a month that can be had: of options that exclude one another those that bring most together, summed draw by
    draw, not by percentiles.

    None for the interval: nothing is recoverable.
    """
    best = best_together([o for o in options if o.counts])
    draws = without_losers([option.draws for option in best if option.draws is not None])
    if not draws:
        return 0.0, None
    total = percentiles(sum(draws[1:], start=draws[0]))
    return total.p50, total


def _exclusive(options: Sequence[DrawnRecommendation]) -> tuple[DrawnRecommendation, ...]:
    """Each option with the ids of those it cannot be combined with."""
    by_key: dict[str, list[str]] = {}
    for option in options:
        for key in option.keys:
            by_key.setdefault(key, []).append(option.recommendation.id)
    out = []
    for option in options:
        r = option.recommendation
        rivals = dict.fromkeys(one for key in sorted(option.keys) for one in by_key[key] if one != r.id)
        out.append(replace(option, recommendation=replace(r, excludes=tuple(rivals))))
    return tuple(out)


def order(options: Sequence[DrawnRecommendation]) -> tuple[Recommendation, ...]:
    """Recommendations as people should read them: what can be had now first, what was set aside last."""
    return tuple(sorted((o.recommendation for o in options), key=lambda r: r.rank))
