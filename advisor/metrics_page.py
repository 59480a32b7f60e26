"""The page of metrics of ``skuwise serve``, for Prometheus: the newest advice and the incidents of the watch.

Units: times are seconds and Unix seconds, amounts of GPU time are seconds of one GPU (``gpu_seconds``). Money is in US
dollars, rates in dollars an hour (``usd_per_hour``). Figures of the advice are means over its window, so those of
workloads add up. Missing values are left out, never 0.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import product
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

_LABEL_MAX = 96  # characters; a pod's name has 63 at most, a job's seldom more
# A clock that was set back by less than this makes no advice stale.
_AHEAD_SECONDS = 3600.0
_RATE = "usd_per_hour"
_OWNER = ("team", "user", "namespace")
_Labels = dict[str, str | None]
_Row = tuple[_Labels, _Labels, Sequence[float | None]]  # labels of its series, the first its identity; facts; values
_Family = tuple[str, str, str]  # name, unit and help; seconds do not add up, so the rest has no series of them


class ServedAdvice(msgspec.Struct, frozen=True):
    """The part of the advice's JSON that the page shows."""

    schema: Literal["skuwise.advice/1"]
    generated_at: datetime
    window: dict[str, datetime]
    summary: dict[str, Any]
    workloads: list[dict[str, Any]]
    findings: list[dict[str, Any]]


class WatchPasses(NamedTuple):
    """The passes of the watch since this program began. `last_end`: Unix time when the newest successful pass ended;
    None: none has. `duration_seconds`: of the newest pass."""

    passes: int = 0
    failures: int = 0
    last_end: float | None = None
    duration_seconds: float | None = None


class SitePage:
    """The page, built from the files each time. `states`: state files with incidents; those of simulated fleets count
    only where there are no others. `series_max`: of workloads, findings or incidents, the worst first; the rest is one
    series. After a damaged advice file the last advice stays, until it is older than `stale_seconds`."""

    def __init__(
        self, advice: Path, states: Callable[[], list[State]], watch: Callable[[], WatchPasses | None],
        series_max: int = 500, stale_seconds: float = 86400.0,
    ) -> None:  # fmt: skip
        self._advice, self._states, self._watch = advice, states, watch
        self._series_max, self._stale_seconds = series_max, stale_seconds
        self._last: ServedAdvice | None = None
        self._faults: set[str] = set()

    def page(self, ended: Mapping[str, int]) -> Page:
        """The page now. `ended`: how connections to it have ended. Each fault of the files is printed once."""
        page, now, faults = Page({}), time.time(), set[str]()
        if self._advice.exists():
            try:
                self._last = msgspec.json.decode(self._advice.read_bytes(), type=ServedAdvice)
            except (OSError, msgspec.DecodeError) as error:
                faults.add(f"metrics: {self._advice} cannot be read: {clean(str(error))}")
            page.add("advice_readable", "1: the advice could be read, 0: it could not.", not faults)
        if self._last is not None:
            _add_advice(page, self._last, now, self._series_max, self._stale_seconds)
        real, simulated, readable = list[Incident](), list[Incident](), None
        try:
            for state in self._states():
                if state.path.exists():
                    with state.reading() as db:
                        (simulated if any(fleet.simulated for fleet in fleets_in(db)) else real).extend(listed(db))
                    readable = True
        except StoreError as error:
            faults.add(f"metrics: {error}")
            readable = False
        page.add("incident_file_readable", "1: the incidents could be read, 0: they could not.", readable)
        if readable:  # unknown is not "none is open"
            _add_incidents(page, real or simulated, now, self._series_max)
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


def _add_rows(page: Page, name: str, about: str, rows: Iterable[_Row], most: int, *families: _Family) -> None:
    """Families with a series for each of the `most` worst rows (the largest first values), and one for the rest.
    `about`: the help of an info family `name`; empty: none."""
    shown: dict[tuple[tuple[str, str], ...], _Row] = {}
    rest: list[_Row] = []
    for row in sorted(rows, key=lambda row: [value or 0.0 for value in row[2]], reverse=True):
        key = tuple(cleaned(row[0], _LABEL_MAX).items())
        # Two series with the same labels make the whole page invalid.
        if len(shown) < most and key not in shown:
            shown[key] = row
        else:
            rest.append(row)
    if about:
        facts = [(dict(key) | cleaned(row[1], _LABEL_MAX), 1) for key, row in shown.items()]
        page.add(name, about, facts, kind="info")
        page.add(f"{name}_truncated", f"{name.capitalize()}s without a series of their own.", len(rest))
    for column, (family, unit, text) in enumerate(families):
        samples = [(dict(key), row[2][column]) for key, row in shown.items()]
        values = [value for row in rest if (value := row[2][column]) is not None]
        if values and unit != "seconds":
            samples.append(({next(iter(rest[0][0])): "other"}, sum(values)))
        page.add(family, text, samples, unit)


def _add_incidents(page: Page, incidents: Sequence[Incident], now: float, most: int) -> None:
    counts = Counter((i.sighting.kind, i.sighting.severity, i.state) for i in incidents)
    every = product(get_args(IncidentKind), get_args(Severity), ("open", "acknowledged"))
    samples = [
        ({"kind": kind, "severity": how, "state": state}, counts[kind, how, state]) for kind, how, state in every
    ]
    page.add("incident_open", "Incidents that are not over, by kind, severity and state.", samples)
    rows, idle = list[_Row](), list[_Row]()
    for incident in incidents:
        seen, subject = incident.sighting, incident.sighting.subject
        owner: _Labels = {name: getattr(subject.owner, name) for name in _OWNER}
        labels: _Labels = {"incident": incident.id, "kind": seen.kind, "severity": seen.severity}
        labels |= {"workload": subject.name, **owner, "node": subject.nodes[0] if len(subject.nodes) == 1 else None}
        facts: _Labels = {"state": incident.state, "code": seen.code, "gpu_sku": subject.gpu_sku}
        facts |= {"scheduler": subject.scheduler, "job_id": subject.job_id}
        rows.append((labels, facts, (incident.cost_usd, incident.gpu_hours * 3600, seen.usd_per_hour, incident.since)))
        if seen.kind == "held-idle" and subject.workload_id:
            # Missing data end the time: what is not observed is not idle.
            seconds = max(min(now, incident.silent_since or now) - incident.since, 0.0)
            idle.append(({"workload_id": subject.workload_id, "workload": subject.name, **owner}, {}, (seconds,)))
    _add_rows(
        page, "incident", "An incident that is not over: what, whose and where.", rows, most,
        ("incident_cost", "usd", "Cost of the incident so far."),
        ("incident", "gpu_seconds", "GPU time of the incident so far."),
        ("incident", _RATE, "Cost of the GPUs that it holds."),
        ("incident_start_timestamp", "seconds", "When the incident began."),
    )  # fmt: skip
    family = ("workload_idle", "seconds", "Time since a workload that holds GPUs last used them.")
    _add_rows(page, "workload_idle", "", idle, most, family)


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
    # Costs are of the hours with data.
    hours = window_seconds / 3600 if summary["observed_hours"] is None else summary["observed_hours"]

    def mean(amount: float | None, over: float = hours) -> float | None:
        return None if amount is None or not over else amount / over

    monthly = mean(summary["recoverable_usd_per_month"], HOURS_PER_MONTH)
    by_use = [({"use": use}, mean(usd)) for use, usd in summary["reconciliation"].items() if use != "total"]
    page.add("fleet_gpus", "GPUs that were there.", summary["gpu_count"])
    page.add("fleet_spend", "Cost of the GPUs in the window.", mean(summary["cost_usd"]), _RATE)
    page.add("fleet_wasted", "Cost of waste, counted once.", mean(summary["wasted_usd"]), _RATE)
    page.add("fleet_recoverable", "What recommendations save, at 730 h a month.", monthly, _RATE)
    page.add("fleet_use", "Cost of the GPUs by their use.", by_use, _RATE)

    rows, begins, names = list[_Row](), dict[str, float](), dict[str, _Labels]()
    for w in advice.workloads:
        begins[w["id"]] = datetime.fromisoformat(w["start"]).timestamp()
        names[w["id"]] = {"workload": w["name"], **{name: w["owner"][name] for name in _OWNER}}
        facts = {"kind": w["kind"]["label"], "bottleneck": w["bottleneck"]["label"], "gpu_sku": w["gpu_sku"]}
        facts |= {"node_sku": w["node_sku"], "node": w["nodes"][0] if len(w["nodes"]) == 1 else None}
        values = (mean(w["cost_usd"]), mean(w["gpu_hours"]), begins[w["id"]])
        rows.append(({"workload_id": w["id"], **names[w["id"]]}, facts, values))
    _add_rows(
        page, "workload", "What a workload is: kind, bottleneck, owner, GPUs.", rows, most,
        ("workload_cost", _RATE, "Cost of a workload, mean over the advice's window."),
        ("workload_gpus", "", "GPUs held, mean over the advice's window."),
        ("workload_start_timestamp", "seconds", "Begin of the workload, as far as observed."),
    )  # fmt: skip
    rows = []
    for f in advice.findings:
        labels = {"finding": f["id"], "rule": f["rule"], "severity": f["severity"]}
        labels |= names.get(f["workload"], {}) | {"node": f["node"]}
        rows.append((labels, {}, (mean(f["cost_usd"]), mean(f["gpu_hours"]), begins.get(f["workload"], start))))
    _add_rows(
        page, "finding", "A finding with its rule, severity and owner.", rows, most,
        ("finding_wasted", _RATE, "Cost of the waste, mean over the advice's window; findings overlap, the fleet's sum "
         "does not."),
        ("finding_wasted_gpus", "", "GPUs wasted, mean over the advice's window."),
        ("finding_since_timestamp", "seconds", "Begin of the workload or window that it covers."),
    )  # fmt: skip
