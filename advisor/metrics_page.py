"""The page of metrics of ``skuwise serve``, for Prometheus: what the newest advice and the watch say. Pure.

Units: times are seconds and Unix seconds, amounts of GPU time are seconds of one GPU (``gpu_seconds``). Money has no
base unit: it stands in US dollars, rates in dollars an hour (``usd_per_hour``), as prices are quoted. What advice says
covers its window; rates are means over that window, so that those of workloads add up. Missing is left out, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar, get_args

from ..agent.service.page_server import Page, cleaned
from .core.advice_types import Advice, Finding, Reconciliation, Severity
from .core.incident_types import Incident, IncidentKind
from .core.verdict_types import Owner, WorkloadVerdict
from .core.worth import HOURS_PER_MONTH

_HOUR = 3600.0
_LABEL_MAX = 96  # characters; a pod's name has 63 at most, a job's seldom more
# A clock that was set back by less than this makes no advice stale.
_AHEAD_SECONDS = 3600.0
OTHER = "other"
Labels = Mapping[str, str | None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WatchStanding:
    """The passes of the watch since this program began. `last_end`: Unix time, by our clock, when the newest successful
    pass ended; None: none has. `duration_seconds`: of the newest pass; None: none has ended."""

    passes: int = 0
    failures: int = 0
    last_end: float | None = None
    duration_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SiteState:
    """`advice` None: there is none, or it cannot be read. `incidents` None: unknown, which is not "none is open".
    `advice_readable`, `incidents_readable`: whether the newest look at the file succeeded; None: there is no file."""

    advice: Advice | None = None
    advice_readable: bool | None = None
    incidents: Sequence[Incident] | None = None
    incidents_readable: bool | None = None
    watch: WatchStanding | None = None


@dataclass(frozen=True, slots=True)
class PageLimits:
    """`series_max`: of workloads, findings or incidents, the worst first; the rest is one series. `stale_seconds`: what
    is said of workloads and findings is dropped once their advice is older."""

    series_max: int = 500
    stale_seconds: float = 86400.0


def make_page(state: SiteState, limits: PageLimits, now: float, ended: Mapping[str, int]) -> Page:
    """The whole page. `now`: Unix time; `ended`: how connections to the page have ended."""
    page = Page({})
    page.add("advice_readable", "1: the advice could be read, 0: it could not.", state.advice_readable)
    if state.advice is not None:
        _add_advice(page, state.advice, limits, now)
    page.add("incident_file_readable", "1: the incidents could be read, 0: they could not.", state.incidents_readable)
    if state.incidents is not None:
        _add_incidents(page, state.incidents, limits, now)
    if (watch := state.watch) is not None:
        passes = "Passes of the watch that ended since this program began."
        page.add("watch_passes", passes, watch.passes, kind="counter")
        page.add("watch_pass_failures", "Those of them that failed.", watch.failures, kind="counter")
        page.add("watch_last_pass_timestamp", "End of the newest pass that succeeded.", watch.last_end, "seconds")
        page.add("watch_last_pass_duration", "Duration of the newest pass.", watch.duration_seconds, "seconds")
    outcomes = [({"outcome": outcome}, count) for outcome, count in sorted(ended.items())]
    page.add("serve_connections", "Connections to this page by how they ended.", outcomes, kind="counter")
    return page


def _add_each(
    page: Page, things: Sequence[T], limit: int, *, worst: Callable[[T], tuple[float, ...]],
    labels: Callable[[T], Labels], measures: Sequence[tuple[str, str, str, Callable[[T], float | None], bool]],
    info: tuple[str, str, Callable[[T], Labels]] | None = None,
) -> None:  # fmt: skip
    """Families with a series for each of the worst things, within `limit`, and one for the rest.

    `worst`: a key that is largest for what must not be left out; `labels`: of one thing, the first is its identity.
    `measures`: name, unit, help, value of one thing, and whether values add up, so that the rest has one too. `info`:
    name and help of a family that describes each thing, and its labels; with it goes the count of the rest.
    """
    shown: dict[tuple[tuple[str, str], ...], T] = {}
    rest: list[T] = []
    for thing in sorted(things, key=worst, reverse=True):
        key = tuple(cleaned(labels(thing), _LABEL_MAX).items())
        # Two of the same labels would make the whole page invalid.
        if len(shown) < limit and key not in shown:
            shown[key] = thing
        else:
            rest.append(thing)
    if info is not None:
        series = dict.fromkeys(tuple(cleaned(info[2](thing), _LABEL_MAX).items()) for thing in shown.values())
        page.add(info[0], info[1], [(dict(one), 1) for one in series], kind="info")
    for name, unit, text, value, sums in measures:
        samples: list[tuple[dict[str, str], float | None]] = [(dict(key), value(thing)) for key, thing in shown.items()]
        known = [amount for thing in rest if (amount := value(thing)) is not None]
        if known and sums:
            samples.append(({next(iter(labels(things[0]))): OTHER}, sum(known)))
        page.add(name, text, samples, unit)
    if info is not None:
        page.add(f"{info[0]}_truncated", f"{info[0].capitalize()}s without a series of their own.", len(rest))


def _add_incidents(page: Page, incidents: Sequence[Incident], limits: PageLimits, now: float) -> None:
    """Incidents that are not over. The counts are complete and 0 where there is none, so that alerts on them end."""
    going = [one for one in incidents if one.state != "resolved"]
    counts = Counter((one.sighting.kind, one.sighting.severity, one.state) for one in going)
    page.add(
        "incident_open", "Incidents that are not over, by kind, severity and state.",
        [({"kind": kind, "severity": severity, "state": state}, counts[kind, severity, state])
         for kind in get_args(IncidentKind) for severity in get_args(Severity) for state in ("open", "acknowledged")],
    )  # fmt: skip

    def labels(one: Incident) -> Labels:
        subject = one.sighting.subject
        return {
            "incident": one.id, "kind": one.sighting.kind, "severity": one.sighting.severity, "workload": subject.name,
            **_owner(subject.owner), "node": subject.nodes[0] if len(subject.nodes) == 1 else None,
        }  # fmt: skip

    def facts(one: Incident) -> Labels:
        subject = one.sighting.subject
        return {
            **labels(one), "state": one.state, "code": one.sighting.code, "gpu_sku": subject.gpu_sku,
            "scheduler": subject.scheduler, "job_id": subject.job_id,
        }  # fmt: skip

    _add_each(
        page, going, limits.series_max, worst=lambda i: (i.cost_usd or 0.0, i.gpu_hours), labels=labels,
        measures=[
            ("incident", "gpu_seconds", "GPU time of the incident so far.", lambda i: i.gpu_hours * _HOUR, True),
            ("incident_cost", "usd", "Cost of the incident so far.", lambda i: i.cost_usd, True),
            ("incident", "usd_per_hour", "Cost of the GPUs that it holds.", lambda i: i.sighting.usd_per_hour, True),
            ("incident_start_timestamp", "seconds", "When the incident began.", lambda i: i.since, False),
        ],
        info=("incident", "An incident that is not over: what, whose and where.", facts),
    )  # fmt: skip

    # Workloads that hold GPUs unused for longer than their holder's limit.
    idle = [one for one in going if one.sighting.kind == "held-idle" and one.sighting.subject.workload_id]

    def seconds(one: Incident) -> float:
        """Where data are missing since, the time ends there: what is not seen is not idle."""
        return max(min(now, one.silent_since or now) - one.since, 0.0)

    def holder(one: Incident) -> Labels:
        subject = one.sighting.subject
        return {"workload_id": subject.workload_id, "workload": subject.name, **_owner(subject.owner)}

    text = "Time since a workload that holds GPUs last used them."
    measures = [("workload_idle", "seconds", text, seconds, False)]
    _add_each(page, idle, limits.series_max, worst=lambda i: (seconds(i),), labels=holder, measures=measures)


def _add_advice(page: Page, advice: Advice, limits: PageLimits, now: float) -> None:
    age = now - advice.generated_at
    stale = not -_AHEAD_SECONDS <= age <= limits.stale_seconds
    page.add("advice_generated_timestamp", "When the newest advice was made.", advice.generated_at, "seconds")
    page.add("advice_age", "Age of the newest advice.", max(age, 0.0), "seconds")
    page.add("advice_stale", "1: the advice is older than serve.stale; its workloads and findings are left out.", stale)
    page.add("advice_window", "Length of the time that the advice covers.", advice.end - advice.start, "seconds")
    if stale:
        return
    # Hours for which there are data, which the costs are of; None where there are none.
    observed, summary = advice.summary.observed_hours, advice.summary
    hours = observed if observed is not None else (advice.end - advice.start) / _HOUR

    def mean(amount: float | None, over: float | None = hours) -> float | None:
        return None if amount is None or not over else amount / over

    rate, window = "usd_per_hour", ", mean over the advice's window."
    page.add("fleet_gpus", "GPUs that were there.", summary.gpu_count)
    page.add("fleet_spend", "Cost of the GPUs in the window.", mean(summary.cost_usd), rate)
    page.add("fleet_wasted", "Cost of waste, counted once.", mean(summary.wasted_usd), rate)
    monthly = mean(summary.recoverable_usd_per_month, HOURS_PER_MONTH)
    page.add("fleet_recoverable", "What recommendations save, at 730 h a month.", monthly, rate)
    uses = [one.name for one in fields(Reconciliation) if one.name != "total"]
    by_use = [({"use": use}, mean(getattr(summary.reconciliation, use))) for use in uses]
    page.add("fleet_use", "Cost of the GPUs by their use.", by_use, rate)

    def labels(w: WorkloadVerdict) -> Labels:
        return {"workload_id": w.id, "workload": w.name, **_owner(w.owner)}

    def facts(w: WorkloadVerdict) -> Labels:
        return {
            **labels(w), "kind": w.kind.label, "bottleneck": w.bottleneck.label, "gpu_sku": w.gpu_sku,
            "node_sku": w.node_sku, "node": w.nodes[0] if len(w.nodes) == 1 else None,
        }  # fmt: skip

    _add_each(
        page, advice.workloads, limits.series_max, worst=lambda w: (w.cost_usd or 0.0, w.gpu_hours), labels=labels,
        measures=[
            ("workload_cost", rate, f"Cost of a workload{window}", lambda w: mean(w.cost_usd), True),
            ("workload_gpus", "", f"GPUs held{window}", lambda w: mean(w.gpu_hours), True),
            ("workload_start_timestamp", "seconds", "Begin of the workload, as far as observed.", lambda w: w.start,
             False),
        ],
        info=("workload", "What a workload is: kind, bottleneck, owner, GPUs.", facts),
    )  # fmt: skip

    by_id = {one.id: one for one in advice.workloads}

    def finding_labels(f: Finding) -> Labels:
        about = by_id.get(f.workload or "")
        return {
            "finding": f.id, "rule": f.rule, "severity": f.severity, "workload": about.name if about else None,
            **_owner(about.owner if about else Owner()), "node": f.node,
        }  # fmt: skip

    def since(f: Finding) -> float:
        about = by_id.get(f.workload or "")
        return about.start if about else advice.start

    overlap = "; findings overlap, the fleet's sum does not."
    _add_each(
        page, advice.findings, limits.series_max, worst=lambda f: (f.cost_usd or 0.0, f.gpu_hours),
        labels=finding_labels, measures=[
            ("finding_wasted", rate, f"Cost of the waste{window[:-1]}{overlap}", lambda f: mean(f.cost_usd), True),
            ("finding_wasted_gpus", "", f"GPUs wasted{window}", lambda f: mean(f.gpu_hours), True),
            ("finding_since_timestamp", "seconds", "Begin of the workload or window that it covers.", since, False),
        ],
        info=("finding", "A finding with its rule, severity and owner.", finding_labels),
    )  # fmt: skip


def _owner(owner: Owner) -> Labels:
    """Whose it is; what is unknown has no label."""
    return {"team": owner.team, "user": owner.user, "namespace": owner.namespace}
