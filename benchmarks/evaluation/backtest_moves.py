"""What became of day 7's recommendations: held against the advice that the second week, measured anew, leads to.

A recommendation holds where the second week gives the same again (the same identity: series, action, from, to), changed
where it gives that action with another target, broke where it gives none of it, and is gone where no run of its work
was left at the end of that week: nobody is advised to mend or move what has ended. Blocked ones and experiments are not
counted: nobody is told to follow them. Of those that hold, the second week's saving should lie within the first's 80 %
interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from skuwise.advisor.core.advice_types import Advice, Recommendation

from ..scoring import rate

# What was seen this shortly before the end still ran then.
RUNNING_SECONDS = 3600.0
FOLLOWED_RISKS = ("very-low", "low")


@dataclass
class Followed:
    """`outcomes` counts (action, outcome); `within` says of each saving seen twice whether it lay in its interval."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    within: list[bool] = field(default_factory=list)

    def add(self, other: Followed) -> None:
        self.outcomes += other.outcomes
        self.within += other.within

    def told(self) -> Iterator[str]:
        """The figures, for people."""
        for action in sorted({action for action, _ in self.outcomes}):
            holds, changed, broke, gone = (self.outcomes[action, o] for o in ("holds", "changed", "broke", "gone"))
            yield (
                f"recommended {action}: {rate(broke, holds + changed + broke, 'not advised any more')}, {changed} with "
                f"another target; {gone} whose work ended"
            )
        if self.within:
            inside = sum(self.within)
            yield f"savings of the second week within the first's 80 % interval: {inside} of {len(self.within)}"


def follow(early: Advice, late: Advice) -> Followed:
    """Hold the recommendations of one week against those of the next."""
    out = Followed()
    series = {w.id: w.series_id for w in (*early.workloads, *late.workloads)}
    there = {w.series_id for w in late.workloads if w.end >= late.end - RUNNING_SECONDS}
    again = [r for r in late.recommendations if _to_follow(r)]
    for given in early.recommendations:
        if not _to_follow(given):
            continue
        own = series.get(given.workload or "")
        same = next((r for r in again if r.id == given.id), None)
        if same is not None:
            outcome = "holds"
            if given.saving_usd_per_month and same.saving_usd_per_month:
                interval = given.saving_usd_per_month
                out.within.append(interval.p10 <= same.saving_usd_per_month.p50 <= interval.p90)
        elif given.workload is not None and own not in there:
            outcome = "gone"
        elif any(r.action == given.action and own is not None and series.get(r.workload or "") == own for r in again):
            outcome = "changed"
        else:
            outcome = "broke"
        out.outcomes[given.action, outcome] += 1
    return out


def _to_follow(recommendation: Recommendation) -> bool:
    return not recommendation.blocked_by and recommendation.risk in FOLLOWED_RISKS
