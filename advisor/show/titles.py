"""Titles: a recommendation as an action with its object and its gain, a finding as a resource, a fact and its cost."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..core import formatting as words
from ..core.advice_types import Advice, Finding, Interval, Recommendation
from ..core.ids import short_ids
from ..core.verdict_types import WorkloadVerdict
from ..core.worth import HOURS_PER_MONTH, compatible, selected

# ruff: noqa: PLC0415 - the rules and moves need numpy, which the screens load later

_NAME_MAX = 48  # characters of a workload's name in a title
_SURE = 0.01  # half-width of an interval over its median up to which a figure is printed in full


def fact_of(rule_id: str) -> str:
    """The fact that findings of a rule state, in a few words."""
    from ..recommend import waste

    return waste.fact_of(rule_id)


def waste_of(rule_id: str) -> str:
    """The category of waste of a rule's findings; "none" of a site's custom rules."""
    from ..recommend import waste

    return waste.waste_of(rule_id)


def is_waste(rule_id: str) -> bool:
    """Whether findings of a rule are about money that bought nothing; what work loses by waiting did buy something."""
    return waste_of(rule_id) not in ("slowed", "none")


def sum_of(rule_id: str) -> str:
    """The sum of the page's head that contains the cost of a rule's findings."""
    return "wasted" if is_waste(rule_id) else words.NONE if waste_of(rule_id) == "none" else "slowed"


def runs_noun(workloads: Sequence[WorkloadVerdict]) -> str:
    """``replicas`` of a service that run at the same time, else ``runs``."""
    spans = sorted((w.start, w.end) for w in workloads)
    at_once = any(later[0] < earlier[1] for earlier, later in pairwise(spans))
    return "replicas" if at_once and workloads[0].kind.label == "online-inference" else "runs"


def runs_words(workloads: Sequence[WorkloadVerdict]) -> str:
    """`` (4 replicas)`` or `` (4 runs)``; empty of a single one."""
    return f" ({len(workloads)} {runs_noun(workloads)})" if len(workloads) > 1 else ""


class Titles:
    """The titles of one advice, for lists."""

    def __init__(self, advice: Advice) -> None:
        # Names are cut in the middle: what differs is at their beginning or end.
        cut = _NAME_MAX // 2
        names = ((w.id, w.name) for w in advice.workloads)
        self._names = {id_: n if len(n) <= _NAME_MAX else f"{n[:cut]}…{n[1 - cut :]}" for id_, n in names}
        self._nodes = {w.id: w.nodes for w in advice.workloads}
        self._finding_nodes = {f.id: f.nodes or ((f.node,) if f.node else ()) for f in advice.findings}

    def of(self, r: Recommendation) -> str:
        """An action with its object: what to do, to which workload or nodes."""
        from ..recommend import moves

        nodes = tuple(sorted({n for f in r.findings for n in self._finding_nodes.get(f, ())}))
        workload = r.workload or ""
        return moves.title(r, self._names.get(workload), nodes or self._nodes.get(workload, ()))

    def resource(self, f: Finding) -> str:
        """The workload's name, else the nodes."""
        return self._names.get(f.workload or "") or words.listed(self._finding_nodes.get(f.id, ())) or "the fleet"


class Row(NamedTuple):
    """A recommendation in a list. `id`: short; `gain`: ``saves $71,774/month``; `instead_of`: short id of an earlier
    one that excludes it, or empty; `left_out`: why lists only count it, or empty."""

    recommendation: Recommendation
    id: str
    title: str
    gain: str
    instead_of: str
    left_out: str

    @property
    def accepted(self) -> bool:
        decision = self.recommendation.decision
        return decision is not None and decision.state == "accepted"

    @property
    def terms(self) -> str:
        """``low risk, instead of r-5603c79e``, and the decision."""
        r = self.recommendation
        decision = words.decision_words(r.decision) if r.decision and r.decision.state != "proposed" else ""
        instead = self.instead_of and f"instead of {self.instead_of}"
        return ", ".join(filter(None, (f"{r.risk.replace('-', ' ')} risk", instead, decision)))


def recommendation_rows(advice: Advice) -> tuple[Row, ...]:
    """Every recommendation of an advice: those that lists show, in their order, then those that lists count."""
    chosen, titles, short = selected(advice), Titles(advice), short_ids(r.id for r in advice.recommendations)
    groups = (
        ("", chosen.shown), (f"below {words.usd(chosen.worth.minimum)}/month or uncertain", chosen.small),
        ("excluded by an accepted one", chosen.excluded), ("", chosen.decided), ("blocked", chosen.blocked),
    )  # fmt: skip

    def row(r: Recommendation, why: str) -> Row:
        state = r.decision.state if r.set_aside and r.decision is not None else why
        gain, hours = gain_text(r), r.freed_gpu_hours_per_month
        if r.saving_usd_per_month is None and hours > 0 and chosen.worth.gpu_hour_usd(r) is not None:
            gain += f", worth {short_usd(chosen.worth.usd(r).p50)}"
        return Row(r, short[r.id], titles.of(r), gain, short.get(chosen.alternatives.get(r.id, ""), ""), state)

    return tuple(row(r, why) for why, same in groups for r in same)


def left_out_words(rows: Iterable[Row], more: int = 0) -> str:
    """``Not shown: 2 more; 3 below $100/month or uncertain (total $81/month); 12 blocked.`` Counts the `rows` that a
    list leaves out, and `more` for which it has no room. Empty: nothing is left out."""
    parts, groups = [f"{more:,} more"] if more > 0 else [], dict[str, list[Recommendation]]()
    for row in rows:
        groups.setdefault(row.left_out, []).append(row.recommendation)
    for why, same in groups.items():
        savings = (r.saving_usd_per_month for r in compatible(same)) if why.startswith("below") else ()
        usd = sum(max(saving.p50, 0.0) for saving in savings if saving is not None)
        parts += [f"{len(same):,} {why}{f' (total {words.usd(usd)}/month)' if usd else ''}"] if why else []
    return f"Not shown: {'; '.join(parts)}." if parts else ""


def short_usd(value: float) -> str:
    """``$2.2M``, ``$734k``, ``$8,123``: for a headline."""
    if abs(value) >= 1e6:
        return f"${value / 1e6:,.{1 if abs(value) < 1e7 else 0}f}M"
    return f"${value / 1e3:,.0f}k" if abs(value) >= 1e4 else words.usd(value)


def gain_text(r: Recommendation) -> str:
    """``saves $72k/month``, ``frees 2,920 GPU-hours/month``, ``saves 418 kWh/month``; as exact as its interval is."""
    saving, kwh = r.saving_usd_per_month, r.energy_saving_kwh_per_month
    if saving is not None:
        if saving.p50 < 0:
            return f"costs {usd_per_month(-saving.p50, saving)} more"
        when = f" from {r.available_from}" if r.realisation == "cash-at" and r.available_from else ""
        return f"saves {usd_per_month(saving.p50, saving)}{when}" if saving.p50 > 0 else "saves nothing"
    if r.freed_gpu_hours_per_month > 0:
        most = "up to " if r.action == "fix-first" else ""
        return f"frees {most}{words.hours(r.freed_gpu_hours_per_month)}/month"
    if kwh is not None and kwh.p50 > 0:
        return f"saves {_rounded(kwh.p50, kwh):,.0f} kWh/month"
    return "no gain claimed" if r.blocked_by else "no cash, no GPU-hours"


def titled(r: Recommendation, advice: Advice) -> str:
    """``Release 8 idle H100s on gpu-009 (saves $71,774/month)``; of a blocked one without its gain."""
    return f"{Titles(advice).of(r)} ({'blocked' if r.blocked_by else gain_text(r)})"


def finding_title(f: Finding, advice: Advice) -> str:
    """``gpu-009: idle GPUs ($23.9k/month)``: the resource, the fact and its cost; GPU-hours where no price is known."""
    usd = monthly(f.cost_usd, advice)
    cost = f"{words.hours(monthly(f.gpu_hours, advice))}/month" if usd is None else usd_per_month(usd)
    return f"{Titles(advice).resource(f)}: {fact_of(f.rule)} ({cost})"


def monthly(value: float | None, advice: Advice) -> float | None:
    """What a figure of the window is in a month of 730 hours, if the window is like it. None: unknown."""
    hours = covered_hours(advice)
    return None if value is None or hours <= 0 else value / hours * HOURS_PER_MONTH


def covered_hours(advice: Advice) -> float:
    """Hours of the window from its first telemetry on: before it, nothing has a cost."""
    begins = (note.fields.get("first_ts") for note in advice.notes if note.code == "telemetry-begins-late")
    return (advice.end - max([advice.start, *(at for at in begins if isinstance(at, int | float))])) / 3600


def usd_per_month(value: float, interval: Interval | None = None) -> str:
    """``$71,774/month``; ``$72k/month`` where the interval supports no more: at least two digits."""
    if interval is None or _is_sure(interval):
        return f"{words.usd(value)}/month"
    near = _rounded(value, interval)
    return f"{short_usd(near) if abs(near) >= 1e4 else f'${near:,.0f}'}/month"


def _is_sure(interval: Interval) -> bool:
    return abs(interval.p90 - interval.p10) / 2 <= _SURE * max(abs(interval.p50), 1.0)


def _rounded(value: float, interval: Interval) -> float:
    return value if _is_sure(interval) else round(value, min(2 - len(f"{abs(value):.0f}"), 0))
