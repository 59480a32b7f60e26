"""The page of metrics of ``skuwise serve``. Pure: what is known in, text out.

Units: times are seconds and Unix seconds, amounts of GPU time are seconds of one GPU (``gpu_seconds``). Money has no
base unit: it stands in US dollars, rates in dollars an hour (``usd_per_hour``), as prices are quoted. What advice says
covers its window; rates are means over that window, so that those of workloads add up. Missing is left out, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...agent.base.openmetrics import ExpositionFormat, Kind, MetricFamily, MetricsText, label_text
from ..core.advice_types import Advice
from .advice_series import add_findings, add_fleet, add_workloads
from .incident_series import add_incidents, add_workload_idle
from .site_state import PageLimits, SiteState, WatchStanding

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
