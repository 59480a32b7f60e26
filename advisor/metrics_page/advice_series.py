"""Families of what the advice says: the fleet, its workloads and its findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from ...agent.base.openmetrics import MetricFamily, MetricsText, label_text
from ..core.advice_types import Advice, Finding, Reconciliation
from ..core.verdict_types import Owner, WorkloadVerdict
from ..core.worth import HOURS_PER_MONTH
from .bounded_series import BoundedSeries, Measure
from .site_state import PageLimits

_HOUR = 3600.0
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
