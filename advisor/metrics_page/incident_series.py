"""Families of what the watch says: incidents that are not over, and for how long workloads have been idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from ...agent.base.openmetrics import MetricFamily, MetricsText, label_text
from ..core.advice_types import Severity
from ..core.incident_types import Incident, IncidentKind
from .advice_series import owner_labels
from .bounded_series import BoundedSeries, Measure
from .site_state import PageLimits

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
