"""The page of metrics of ``skuwise serve``, for Prometheus: what the newest advice and the watch say.

Units: times are seconds and Unix seconds, amounts of GPU time are seconds of one GPU (``gpu_seconds``). Money has no
base unit: it stands in US dollars, rates in dollars an hour (``usd_per_hour``), as prices are quoted. What advice says
covers its window; rates are means over that window, so that those of workloads add up. Missing is left out, never 0.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from ..agent.service.page_server import Page, cleaned
from ..rules.base.errors import StoreError
from ..rules.base.output import say
from ..rules.base.sanitize import clean
from .core.advice_types import Severity
from .core.incident_types import Incident, IncidentKind
from .core.worth import HOURS_PER_MONTH
from .state.file import State
from .state.fleets import fleets_in
from .state.incidents import listed

_HOUR = 3600.0
_LABEL_MAX = 96  # characters; a pod's name has 63 at most, a job's seldom more
# A clock that was set back by less than this makes no advice stale.
_AHEAD_SECONDS = 3600.0
_RATE = "usd_per_hour"
_Family = tuple[str, str, str, bool]  # name, unit, help, and whether values add up, so that the rest has one too


class ServedAdvice(msgspec.Struct, frozen=True):
    """What the page tells of: a part of the advice's JSON."""

    schema: Literal["skuwise.advice/1"]
    generated_at: datetime
    window: dict[str, datetime]
    summary: dict[str, Any]
    workloads: list[dict[str, Any]]
    findings: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class WatchPasses:
    """The passes of the watch since this program began. `last_end`: Unix time, by our clock, when the newest successful
    pass ended; None: none has. `duration_seconds`: of the newest pass."""

    passes: int = 0
    failures: int = 0
    last_end: float | None = None
    duration_seconds: float | None = None


class SitePage:
    """The page, made anew of the files each time. `states`: the state files whose incidents it tells, those of
    simulated fleets only where there are no others. `watch`: how the watch's passes ended. `series_max`: of workloads,
    findings or incidents, the worst first; the rest is one series. What is said of workloads and findings is dropped
    once their advice is older than `stale_seconds`.

    Advice that cannot be read leaves what was known, which says its age and ends with it.
    """

    def __init__(
        self, advice: Path, states: Callable[[], list[State]], watch: Callable[[], WatchPasses | None],
        series_max: int = 500, stale_seconds: float = 86400.0,
    ) -> None:  # fmt: skip
        self._advice, self._states, self._watch = advice, states, watch
        self._limits = series_max, stale_seconds
        self._known: ServedAdvice | None = None
        self._faults: set[str] = set()

    def page(self, ended: Mapping[str, int]) -> Page:
        """The page now. `ended`: how connections to it have ended. What is wrong with the files is said once."""
        page, now, faults = Page({}), time.time(), set[str]()
        readable = incidents_readable = None
        try:
            self._known = msgspec.json.decode(self._advice.read_bytes(), type=ServedAdvice)
            readable = True
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            faults.add(f"metrics: {self._advice} cannot be read: {clean(str(error))}")
            readable = False
        page.add("advice_readable", "1: the advice could be read, 0: it could not.", readable)
        if self._known is not None:
            _add_advice(page, self._known, now, *self._limits)
        real, simulated = list[Incident](), list[Incident]()
        try:
            for state in self._states():
                if state.path.exists():
                    with state.reading() as db:
                        (simulated if any(fleet.simulated for fleet in fleets_in(db)) else real).extend(listed(db))
                    incidents_readable = True
        except StoreError as error:
            faults.add(f"metrics: {error}")
            incidents_readable = False
        page.add("incident_file_readable", "1: the incidents could be read, 0: they could not.", incidents_readable)
        if incidents_readable:  # unknown is not "none is open"
            _add_incidents(page, real or simulated, now, self._limits[0])
        if (watch := self._watch()) is not None:
            passes = "Passes of the watch that ended since this program began."
            page.add("watch_passes", passes, watch.passes, kind="counter")
            page.add("watch_pass_failures", "Those of them that failed.", watch.failures, kind="counter")
            page.add("watch_last_pass_timestamp", "End of the newest pass that succeeded.", watch.last_end, "seconds")
            page.add("watch_last_pass_duration", "Duration of the newest pass.", watch.duration_seconds, "seconds")
        outcomes = [({"outcome": outcome}, count) for outcome, count in sorted(ended.items())]
        page.add("serve_connections", "Connections to this page by how they ended.", outcomes, kind="counter")
        for fault in faults - self._faults:
            say(fault)
        self._faults = faults
        return page


class _Row(NamedTuple):
    """A thing with series of its own: the labels of each, of which the first is its identity; what its info series
    tells beside; and the values of its families. The worst has the largest first values."""

    labels: Mapping[str, str | None]
    facts: Mapping[str, str | None]
    values: tuple[float | None, ...]


def _add_rows(
    page: Page, name: str, rows: Iterable[_Row], families: Sequence[_Family], most: int, *, about: str = ""
) -> None:
    """Families with a series for each of the `most` worst rows, and one for the rest. `about`: the help of an info
    family `name`, with which goes the count of the rest; empty: there is none."""
    shown: dict[tuple[tuple[str, str], ...], _Row] = {}
    rest: list[_Row] = []
    for row in sorted(rows, key=lambda row: tuple(value or 0.0 for value in row.values), reverse=True):
        key = tuple(cleaned(row.labels, _LABEL_MAX).items())
        # Two of the same labels would make the whole page invalid.
        if len(shown) < most and key not in shown:
            shown[key] = row
        else:
            rest.append(row)
    if about:
        facts = [(dict(key) | cleaned(row.facts, _LABEL_MAX), 1) for key, row in shown.items()]
        page.add(name, about, facts, kind="info")
        page.add(f"{name}_truncated", f"{name.capitalize()}s without a series of their own.", len(rest))
    for column, (family, unit, text, sums) in enumerate(families):
        samples = [(dict(key), row.values[column]) for key, row in shown.items()]
        known = [value for row in rest if (value := row.values[column]) is not None]
        if known and sums:
            samples.append(({next(iter(rest[0].labels)): "other"}, sum(known)))
        page.add(family, text, samples, unit)


def _add_incidents(page: Page, incidents: Sequence[Incident], now: float, most: int) -> None:
    """Incidents that are not over. The counts are complete and 0 where there is none, so that alerts on them end."""
    counts = Counter((one.sighting.kind, one.sighting.severity, one.state) for one in incidents)
    page.add(
        "incident_open", "Incidents that are not over, by kind, severity and state.",
        [({"kind": kind, "severity": severity, "state": state}, counts[kind, severity, state])
         for kind in get_args(IncidentKind) for severity in get_args(Severity) for state in ("open", "acknowledged")],
    )  # fmt: skip
    rows, idle = list[_Row](), list[_Row]()
    for incident in incidents:
        seen, subject = incident.sighting, incident.sighting.subject
        owner = {"team": subject.owner.team, "user": subject.owner.user, "namespace": subject.owner.namespace}
        labels = {
            "incident": incident.id,
            "kind": seen.kind,
            "severity": seen.severity,
            "workload": subject.name,
            **owner,
        }
        facts = {"state": incident.state, "code": seen.code, "gpu_sku": subject.gpu_sku, "scheduler": subject.scheduler}
        node = {"node": subject.nodes[0] if len(subject.nodes) == 1 else None}
        values = (incident.cost_usd, incident.gpu_hours * _HOUR, seen.usd_per_hour, incident.since)
        rows.append(_Row(labels | node, facts | {"job_id": subject.job_id}, values))
        if seen.kind == "held-idle" and subject.workload_id:
            # Where data are missing since, the time ends there: what is not seen is not idle.
            seconds = max(min(now, incident.silent_since or now) - incident.since, 0.0)
            idle.append(_Row({"workload_id": subject.workload_id, "workload": subject.name, **owner}, {}, (seconds,)))
    families = (
        ("incident_cost", "usd", "Cost of the incident so far.", True),
        ("incident", "gpu_seconds", "GPU time of the incident so far.", True),
        ("incident", _RATE, "Cost of the GPUs that it holds.", True),
        ("incident_start_timestamp", "seconds", "When the incident began.", False),
    )
    _add_rows(page, "incident", rows, families, most, about="An incident that is not over: what, whose and where.")
    families = (("workload_idle", "seconds", "Time since a workload that holds GPUs last used them.", False),)
    _add_rows(page, "workload_idle", idle, families, most)


def _add_advice(page: Page, advice: ServedAdvice, now: float, most: int, stale_seconds: float) -> None:
    start, made, summary = advice.window["start"].timestamp(), advice.generated_at.timestamp(), advice.summary
    window_seconds, age = advice.window["end"].timestamp() - start, now - made
    stale = not -_AHEAD_SECONDS <= age <= stale_seconds
    page.add("advice_generated_timestamp", "When the newest advice was made.", made, "seconds")
    page.add("advice_age", "Age of the newest advice.", max(age, 0.0), "seconds")
    page.add("advice_stale", "1: the advice is older than serve.stale; its workloads and findings are left out.", stale)
    page.add("advice_window", "Length of the time that the advice covers.", window_seconds, "seconds")
    if stale:
        return
    # Hours for which there are data, which the costs are of.
    hours = window_seconds / _HOUR if summary["observed_hours"] is None else summary["observed_hours"]

    def mean(amount: float | None, over: float = hours) -> float | None:
        return None if amount is None or not over else amount / over

    monthly = mean(summary["recoverable_usd_per_month"], HOURS_PER_MONTH)
    by_use = [({"use": use}, mean(usd)) for use, usd in summary["reconciliation"].items() if use != "total"]
    page.add("fleet_gpus", "GPUs that were there.", summary["gpu_count"])
    page.add("fleet_spend", "Cost of the GPUs in the window.", mean(summary["cost_usd"]), _RATE)
    page.add("fleet_wasted", "Cost of waste, counted once.", mean(summary["wasted_usd"]), _RATE)
    page.add("fleet_recoverable", "What recommendations save, at 730 h a month.", monthly, _RATE)
    page.add("fleet_use", "Cost of the GPUs by their use.", by_use, _RATE)

    rows, begins, whose = list[_Row](), dict[str, float](), dict[str, dict[str, str | None]]()
    for one in advice.workloads:
        begins[one["id"]] = datetime.fromisoformat(one["start"]).timestamp()
        owner = {name: one["owner"][name] for name in ("team", "user", "namespace")}
        whose[one["id"]] = {"workload": one["name"], **owner}
        facts = {"kind": one["kind"]["label"], "bottleneck": one["bottleneck"]["label"], "gpu_sku": one["gpu_sku"]}
        facts |= {"node_sku": one["node_sku"], "node": one["nodes"][0] if len(one["nodes"]) == 1 else None}
        values = (mean(one["cost_usd"]), mean(one["gpu_hours"]), begins[one["id"]])
        rows.append(_Row({"workload_id": one["id"], **whose[one["id"]]}, facts, values))
    families = (
        ("workload_cost", _RATE, "Cost of a workload, mean over the advice's window.", True),
        ("workload_gpus", "", "GPUs held, mean over the advice's window.", True),
        ("workload_start_timestamp", "seconds", "Begin of the workload, as far as observed.", False),
    )
    _add_rows(page, "workload", rows, families, most, about="What a workload is: kind, bottleneck, owner, GPUs.")
    rows = []
    for one in advice.findings:
        labels = {"finding": one["id"], "rule": one["rule"], "severity": one["severity"]}
        labels |= whose.get(one["workload"], {}) | {"node": one["node"]}
        values = (mean(one["cost_usd"]), mean(one["gpu_hours"]), begins.get(one["workload"], start))
        rows.append(_Row(labels, {}, values))
    wasted = "Cost of the waste, mean over the advice's window; findings overlap, the fleet's sum does not."
    families = (
        ("finding_wasted", _RATE, wasted, True),
        ("finding_wasted_gpus", "", "GPUs wasted, mean over the advice's window.", True),
        ("finding_since_timestamp", "seconds", "Begin of the workload or window that it covers.", False),
    )
    _add_rows(page, "finding", rows, families, most, about="A finding with its rule, severity and owner.")
