"""Every recommendation of a fleet, and what can be had together: of options that exclude one another, those that bring
most together, so that an option that is lost never raises the sum of what is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..core.advice_types import Interval, Recommendation
from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from ..core.verdict_types import INFERRED
from ..core.worth import excluded_by_decisions
from .evidence import EvidenceGate, with_gap, without_claim
from .fleet import Fleet
from .groups import Group
from .move import held_to_class, raised_risk
from .moves import BY_ACTION, MOVES
from .moves.fix_first import block_until_fixed
from .prediction import Array, percentiles

# Options that hang together, compared in all combinations; beyond it the largest come first.
MOST_COMPARED = 24
_NAMED = 3


def all_recommendations(fleet: Fleet) -> tuple[Recommendation, ...]:
    """All recommendations with their draws: a fix comes before any move of the same work, unnamed owners are asked
    first, what was not observed is not claimed, and no latency class breaks unseen."""
    options = block_until_fixed([r for move in MOVES for r in move.build(fleet)], fleet.series)
    gate = EvidenceGate(fleet.verdicts, fleet.free, fleet.floor_hours)
    bases = {s.group.lead.id: s.base for s in fleet.series}
    held = []
    for asked in _ask_owners(options, fleet.groups):
        subject, base = BY_ACTION[asked.action].subject, bases.get(asked.workload or "")
        missing = gate.missing(asked.needs) if asked.needs is not None else ()
        r = without_claim(asked, subject, missing) if missing else with_gap(asked, gate.gap(asked.needs))
        held.append(r if base is None else held_to_class(r, base))
    holders: dict[str, list[str]] = {}
    for r in held:
        for key in r.claims:
            holders.setdefault(key, []).append(r.id)
    rivals = [dict.fromkeys(rival for key in sorted(r.claims) for rival in holders[key]) for r in held]
    return tuple(replace(r, excludes=tuple(i for i in of if i != r.id)) for r, of in zip(held, rivals, strict=True))


def work_that_is_over(fleet: Fleet) -> tuple[CodedText, ...]:
    """Notes on what was found of work that ended and did not recur: it saves nothing next month."""
    series_ids = {waste.group.series_id for waste in fleet.waste if waste.group is not None}
    faulty = frozenset[str]().union(*(waste.faulty for waste in fleet.waste))
    text = "{workload} {ended}; its past waste there is not recoverable."
    ended = {True: "moved to other nodes", False: "ended and did not recur"}
    over = (g for g in fleet.groups if not g.recurs and g.series_id in series_ids - faulty)
    return tuple(coded("work-is-over", text, workload=g.lead.name, ended=ended[g.moved]) for g in over)


def _ask_owners(options: Iterable[Recommendation], groups: Sequence[Group]) -> Iterator[Recommendation]:
    """The options; work without an owner is blocked, at a risk one step higher."""
    tells = "The GPUs of this work belong to several people or jobs. The grouping is inferred from their activity; pod "
    tells += "labels or the Slurm prolog make it certain."
    unowned = {group.series_id: group for group in groups if group.lead.basis == INFERRED}
    series_of = {w.id: group.series_id for group in unowned.values() for w in group.workloads}
    for r in options:
        touched = {*(key.partition(":")[2] for key in r.claims), series_of.get(r.workload or "")} & unowned.keys()
        if not touched:
            yield r
            continue
        nodes = sorted({node for key in touched for w in unowned[key].now for node in w.nodes})
        more = len(nodes) - _NAMED
        who = ", ".join(nodes[:_NAMED]) + (f" and {counted(more, 'more node')}" if more > 0 else "")
        note = f"the owner of this work is unknown; ask who uses {who} before you act"
        why = CodedText("owner-unknown", note, {"nodes": ", ".join(nodes)})
        # What is not advised anyway asks nothing of anybody.
        ask = "" if r.blocked_by else f" First ask who uses {who}: no label or process names an owner."
        tells_too = (*r.would_change_if, coded("work-inferred", tells))
        blocked, text = (*r.blocked_by, why), f"{r.text.rstrip()}{ask}"
        yield replace(r, risk=raised_risk(r.risk), blocked_by=blocked, would_change_if=tells_too, text=text)


def recoverable_cash(options: Iterable[Recommendation]) -> tuple[float, Interval | None]:
    """Cash a month that can be had: of options that exclude one another those that bring most together, summed draw by
    draw, not by percentiles; without those that a decision excludes. None for the interval: nothing is recoverable."""
    options = list(options)
    out = excluded_by_decisions(options)
    best = best_together([r for r in options if r.counts and r.draws is not None and r.id not in out])
    if not (draws := without_losers([r.draws for r in best])):
        return 0.0, None
    total = percentiles(sum(draws[1:], start=draws[0]))
    return total.p50, total


def best_together(options: Iterable[Recommendation]) -> list[Recommendation]:
    """The options, no two of which claim the same, whose medians have the largest sum. Ties go to the smaller ids."""
    ranked = sorted(options, key=lambda r: (-_sum([r]), r.id))
    holders: dict[str, list[int]] = {}
    for n, r in enumerate(ranked):
        for key in r.claims:
            holders.setdefault(key, []).append(n)
    chosen: list[Recommendation] = []
    left = dict.fromkeys(range(len(ranked)))
    while left:
        # All that hang together by their claims.
        todo, tangle = [next(iter(left))], set[int]()
        while todo:
            n = todo.pop()
            if n in left:
                del left[n]
                tangle.add(n)
                todo += [o for key in ranked[n].claims for o in holders[key]]
        rivals = [ranked[n] for n in sorted(tangle)]
        while len(rivals) > MOST_COMPARED:
            chosen.append(rivals[0])
            rivals = _beside_first(rivals)
        chosen += _best(rivals)
    return chosen


def _beside_first(options: Sequence[Recommendation]) -> list[Recommendation]:
    claimed = set(options[0].claims)
    return [r for r in options[1:] if claimed.isdisjoint(r.claims)]


def _best(options: Sequence[Recommendation]) -> list[Recommendation]:
    """The best set of all: the first is in it, without what it excludes, or out of it where that could bring more."""
    if not options:
        return []
    beside = _beside_first(options)
    best, others = [options[0], *_best(beside)], options[1:]
    if len(beside) == len(others) or _sum(others) <= _sum(best) + 1e-9:
        return best
    without = _best(others)
    return without if _sum(without) > _sum(best) + 1e-9 else best


def without_losers(draws: Sequence[Array]) -> list[Array]:
    """Joint draws without those whose removal raises the median of the sum, the worst first."""
    left = list(draws)
    while len(left) > 1:
        total = np.sum(left, axis=0)
        medians = [float(np.median(total - saving)) for saving in left]
        if max(medians) <= float(np.median(total)) + 1e-9:
            break
        del left[int(np.argmax(medians))]
    return left


def _sum(options: Iterable[Recommendation]) -> float:
    return sum(r.saving_usd_per_month.p50 for r in options if r.saving_usd_per_month is not None)
