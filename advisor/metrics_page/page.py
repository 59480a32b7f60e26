"""The page of metrics of ``skuwise serve``. Pure: what is known in, text out.

Units: times are seconds and Unix seconds, amounts of GPU time are seconds of one GPU (``gpu_seconds``). Money has no
base unit: it stands in US dollars, rates in dollars an hour (``usd_per_hour``), as prices are quoted. What advice says
covers its window; rates are means over that window, so that those of workloads add up. Missing is left out, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import get_args

from ...agent.base.openmetrics import ExpositionFormat, Kind, MetricFamily, MetricsText, label_text
from ..core.advice_types import Advice, Finding, Reconciliation, Severity
from ..core.incident_types import Incident, IncidentKind
from ..core.verdict_types import Owner, WorkloadVerdict
from ..core.worth import HOURS_PER_MONTH
from .bounded_series import BoundedSeries, Measure
from .site_state import PageLimits, SiteState, WatchStanding

_HOUR = 3600.0
_STATES = ("open", "acknowledged")
_OPEN = MetricFamily("skuwise_incident_open", "gauge", "", "Incidents that are not over, by kind, severity and state.")
_INFO = MetricFamily("skuwise_incident", "info", "", "An incident that is not over: what, whose and where.")
_GPU_SECONDS = MetricFamily("skuwise_incident_gpu_seconds", "gauge", "gpu_seconds", "GPU time of the incident so far.")
_COST = MetricFamily("skuwise_incident_cost_usd", "gauge", "usd", "Cost of the incident so far.")
_RATE = MetricFamily("skuwise_incident_usd_per_hour", "gauge", "usd_per_hour", "Cost of the GPUs that it holds.")
_SINCE = MetricFamily("skuwise_incident_start_timestamp_seconds", "gauge", "seconds", "When the incident began.")
_LEFT = MetricFamily("skuwise_incident_truncated", "gauge", "", "Incidents without a series of their own.")
_IDLE = MetricFamily(
    "skuwise_workload_idle_seconds", "gauge", "seconds", "Time since a workload that holds GPUs last used them."
)


def add_incidents(page: MetricsText, incidents: Sequence[Incident], limits: PageLimits) -> None:
    """Incidents that are not over. The counts are complete and 0 where there is none, so that alerts on them end."""
    going = [one for one in incidents if one.state != "resolved"]
    counts = Counter((one.sighting.kind, one.sighting.severity, one.state) for one in going)
    page.add(
        _OPEN,
        [
            (label_text({"kind": kind, "severity": severity, "state": state}), counts[kind, severity, state])
            for kind in get_args(IncidentKind)
            for severity in get_args(Severity)
            for state in _STATES
        ],
    )
    series = BoundedSeries(going, limits.series_max, lambda one: (one.cost_usd or 0.0, one.gpu_hours), _labels)
    series.add_info(page, _INFO, _facts)
    series.add_to(page, Measure(_GPU_SECONDS, lambda one: one.gpu_hours * _HOUR))
    series.add_to(page, Measure(_COST, lambda one: one.cost_usd))
    series.add_to(page, Measure(_RATE, lambda one: one.sighting.usd_per_hour))
    series.add_to(page, Measure(_SINCE, lambda one: one.since, sums=False))
    page.add(_LEFT, [("", len(series.rest))])


def add_workload_idle(page: MetricsText, incidents: Sequence[Incident], limits: PageLimits, now: float) -> None:
    """Workloads that hold GPUs unused for longer than their holder's limit. Where data are missing since, the time
    ends there: what is not seen is not idle."""
    idle = [
        one
        for one in incidents
        if one.sighting.kind == "held-idle" and one.state != "resolved" and one.sighting.subject.workload_id
    ]

    def seconds(one: Incident) -> float:
        return max(min(now, one.silent_since or now) - one.since, 0.0)

    series = BoundedSeries(idle, limits.series_max, lambda one: (seconds(one),), _idle_labels)
    series.add_to(page, Measure(_IDLE, seconds, sums=False))


def _labels(one: Incident) -> Mapping[str, str | None]:
    subject = one.sighting.subject
    return {
        "incident": one.id, "kind": one.sighting.kind, "severity": one.sighting.severity, "workload": subject.name,
        **owner_labels(subject.owner), "node": subject.nodes[0] if len(subject.nodes) == 1 else None,
    }  # fmt: skip


def _facts(one: Incident) -> Mapping[str, str | None]:
    subject = one.sighting.subject
    return {
        **_labels(one), "state": one.state, "code": one.sighting.code, "gpu_sku": subject.gpu_sku,
        "scheduler": subject.scheduler, "job_id": subject.job_id,
    }  # fmt: skip


def _idle_labels(one: Incident) -> Mapping[str, str | None]:
    subject = one.sighting.subject
    return {"workload_id": subject.workload_id, "workload": subject.name, **owner_labels(subject.owner)}


# A clock that was set back by less than this makes no advice stale.
_AHEAD_SECONDS = 3600.0


def family(name: str, kind: Kind, text: str, unit: str = "") -> MetricFamily:
    """A family of ours; `unit` ends its name."""
    return MetricFamily(f"skuwise_{name}_{unit}" if unit else f"skuwise_{name}", kind, unit, text)


_GENERATED = family("advice_generated_timestamp", "gauge", "When the newest advice was made.", "seconds")
_AGE = family("advice_age", "gauge", "Age of the newest advice.", "seconds")
_STALE = family(
    "advice_stale", "gauge", "1: the advice is older than serve.stale; its workloads and findings are left out."
)
_READABLE = family("advice_readable", "gauge", "1: the advice could be read, 0: it could not.")
_INCIDENTS_READABLE = family("incident_file_readable", "gauge", "1: the incidents could be read, 0: they could not.")
_WINDOW = family("advice_window", "gauge", "Length of the time that the advice covers.", "seconds")
_PASSES = family("watch_passes", "counter", "Passes of the watch that ended since this program began.")
_FAILURES = family("watch_pass_failures", "counter", "Those of them that failed.")
_LAST = family("watch_last_pass_timestamp", "gauge", "End of the newest pass that succeeded.", "seconds")
_DURATION = family("watch_last_pass_duration", "gauge", "Duration of the newest pass.", "seconds")
_ENDED = family("serve_connections", "counter", "Connections to this page by how they ended.")


def render_page(
    state: SiteState, limits: PageLimits, now: float, form: ExpositionFormat, ended: Mapping[str, int]
) -> str:
    """The whole page. `now`: Unix time; `ended`: how connections to the page have ended."""
    page = MetricsText(form)
    _add_flag(page, _READABLE, state.advice_readable)
    if state.advice is not None:
        _add_advice(page, state.advice, limits, now)
    _add_flag(page, _INCIDENTS_READABLE, state.incidents_readable)
    if state.incidents is not None:
        add_incidents(page, state.incidents, limits)
        add_workload_idle(page, state.incidents, limits, now)
    if state.watch is not None:
        _add_watch(page, state.watch)
    page.add(_ENDED, [(label_text({"outcome": outcome}), count) for outcome, count in sorted(ended.items())])
    return page.text()


def _add_flag(page: MetricsText, what: MetricFamily, value: bool | None) -> None:
    page.add(what, [("", None if value is None else int(value))])


def _add_advice(page: MetricsText, advice: Advice, limits: PageLimits, now: float) -> None:
    age = now - advice.generated_at
    stale = not -_AHEAD_SECONDS <= age <= limits.stale_seconds
    page.add(_GENERATED, [("", float(advice.generated_at))])
    page.add(_AGE, [("", max(age, 0.0))])
    page.add(_STALE, [("", int(stale))])
    page.add(_WINDOW, [("", float(advice.end - advice.start))])
    if stale:
        return
    add_fleet(page, advice)
    add_workloads(page, advice, limits)
    add_findings(page, advice, limits)


def _add_watch(page: MetricsText, watch: WatchStanding) -> None:
    page.add(_PASSES, [("", watch.passes)])
    page.add(_FAILURES, [("", watch.failures)])
    page.add(_LAST, [("", watch.last_end)])
    page.add(_DURATION, [("", watch.duration_seconds)])


_NOBODY = Owner()

_SPEND = MetricFamily("skuwise_fleet_spend_usd_per_hour", "gauge", "usd_per_hour", "Cost of the GPUs in the window.")
_WASTED = MetricFamily("skuwise_fleet_wasted_usd_per_hour", "gauge", "usd_per_hour", "Cost of waste, counted once.")
_RECOVERABLE = MetricFamily(
    "skuwise_fleet_recoverable_usd_per_hour", "gauge", "usd_per_hour", "What recommendations save, at 730 h a month."
)
_GPUS = MetricFamily("skuwise_fleet_gpus", "gauge", "", "GPUs that were there.")
_BY_USE = MetricFamily("skuwise_fleet_use_usd_per_hour", "gauge", "usd_per_hour", "Cost of the GPUs by their use.")

_WORKLOAD_INFO = MetricFamily("skuwise_workload", "info", "", "What a workload is: kind, bottleneck, owner, GPUs.")
_WORKLOAD_COST = MetricFamily(
    "skuwise_workload_cost_usd_per_hour", "gauge", "usd_per_hour", "Cost of a workload, mean over the advice's window."
)
_WORKLOAD_GPUS = MetricFamily("skuwise_workload_gpus", "gauge", "", "GPUs held, mean over the advice's window.")
_WORKLOAD_START = MetricFamily(
    "skuwise_workload_start_timestamp_seconds", "gauge", "seconds", "Begin of the workload, as far as observed."
)
_WORKLOADS_LEFT = MetricFamily("skuwise_workload_truncated", "gauge", "", "Workloads without a series of their own.")
_FINDING_INFO = MetricFamily("skuwise_finding", "info", "", "A finding with its rule, severity and owner.")
_FINDING_COST = MetricFamily(
    "skuwise_finding_wasted_usd_per_hour", "gauge", "usd_per_hour",
    "Cost of the waste, mean over the advice's window; findings overlap, the fleet's sum does not.",
)  # fmt: skip
_FINDING_GPUS = MetricFamily("skuwise_finding_wasted_gpus", "gauge", "", "GPUs wasted, mean over the advice's window.")
_FINDING_SINCE = MetricFamily(
    "skuwise_finding_since_timestamp_seconds", "gauge", "seconds", "Begin of the workload or window that it covers."
)
_FINDINGS_LEFT = MetricFamily("skuwise_finding_truncated", "gauge", "", "Findings without a series of their own.")


def window_hours(advice: Advice) -> float | None:
    """Hours of the advice's window for which there are data, which its costs are of; None where there are none."""
    observed = advice.summary.observed_hours
    return observed if observed is not None else (advice.end - advice.start) / _HOUR


def add_fleet(page: MetricsText, advice: Advice) -> None:
    """Sums of the fleet. What cannot be known (a price is missing) is left out."""
    hours, summary = window_hours(advice), advice.summary
    page.add(_GPUS, [("", summary.gpu_count)])
    page.add(_SPEND, [("", _rate(summary.cost_usd, hours))])
    page.add(_WASTED, [("", _rate(summary.wasted_usd, hours))])
    page.add(_RECOVERABLE, [("", _rate(summary.recoverable_usd_per_month, HOURS_PER_MONTH))])
    uses = [one.name for one in fields(Reconciliation) if one.name != "total"]
    page.add(_BY_USE, [(label_text({"use": use}), _rate(getattr(summary.reconciliation, use), hours)) for use in uses])


def add_workloads(page: MetricsText, advice: Advice, limits: PageLimits) -> None:
    """Workloads, the most expensive first."""
    hours = window_hours(advice)
    series = BoundedSeries(
        advice.workloads, limits.series_max, lambda one: (one.cost_usd or 0.0, one.gpu_hours), _workload_labels
    )
    series.add_info(page, _WORKLOAD_INFO, _workload_facts)
    series.add_to(page, Measure(_WORKLOAD_COST, lambda one: _rate(one.cost_usd, hours)))
    series.add_to(page, Measure(_WORKLOAD_GPUS, lambda one: _rate(one.gpu_hours, hours)))
    series.add_to(page, Measure(_WORKLOAD_START, lambda one: float(one.start), sums=False))
    page.add(_WORKLOADS_LEFT, [("", len(series.rest))])


def add_findings(page: MetricsText, advice: Advice, limits: PageLimits) -> None:
    """Findings, the most expensive first."""
    hours = window_hours(advice)
    by_id = {one.id: one for one in advice.workloads}

    def labels(one: Finding) -> Mapping[str, str | None]:
        return _finding_labels(one, by_id.get(one.workload or ""))

    def since(one: Finding) -> float:
        about = by_id.get(one.workload or "")
        return float(about.start if about is not None else advice.start)

    series = BoundedSeries(advice.findings, limits.series_max, lambda one: (one.cost_usd or 0.0, one.gpu_hours), labels)
    series.add_info(page, _FINDING_INFO, labels)
    series.add_to(page, Measure(_FINDING_COST, lambda one: _rate(one.cost_usd, hours)))
    series.add_to(page, Measure(_FINDING_GPUS, lambda one: _rate(one.gpu_hours, hours)))
    series.add_to(page, Measure(_FINDING_SINCE, since, sums=False))
    page.add(_FINDINGS_LEFT, [("", len(series.rest))])


def _rate(amount: float | None, hours: float | None) -> float | None:
    return None if amount is None or not hours else amount / hours


def _workload_labels(one: WorkloadVerdict) -> Mapping[str, str | None]:
    return {"workload_id": one.id, "workload": one.name, **owner_labels(one.owner)}


def _workload_facts(one: WorkloadVerdict) -> Mapping[str, str | None]:
    return {
        **_workload_labels(one), "kind": one.kind.label, "bottleneck": one.bottleneck.label, "gpu_sku": one.gpu_sku,
        "node_sku": one.node_sku, "node": one.nodes[0] if len(one.nodes) == 1 else None,
    }  # fmt: skip


def _finding_labels(one: Finding, about: WorkloadVerdict | None) -> Mapping[str, str | None]:
    return {
        "finding": one.id, "rule": one.rule, "severity": one.severity,
        "workload": about.name if about is not None else None,
        **owner_labels(about.owner if about is not None else _NOBODY), "node": one.node,
    }  # fmt: skip


def owner_labels(owner: Owner) -> Mapping[str, str | None]:
    """Whose it is; what is unknown has no label."""
    return {"team": owner.team, "user": owner.user, "namespace": owner.namespace}
