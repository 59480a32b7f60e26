"""A simulated day as Prometheus would have scraped it: the agent, dcgm-exporter, the page of ``skuwise serve``."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.incident_types import Incident, IncidentKind, Sighting
from skuwise.advisor.monitoring.metrics_page import render_page
from skuwise.advisor.monitoring.panels import Panel
from skuwise.advisor.monitoring.site_state import PageLimits, SiteState, WatchStanding
from skuwise.advisor.pipeline import AdviseOptions, advise
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.agent.base.openmetrics import PLAIN
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.server_metrics.agent_metrics import agent_series
from skuwise.tests.server_metrics.exporter_metrics import exporter_series
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.incident_builders import sighting
from skuwise.tests.support.rulebooks import rulebook

HOUR, DAY = 3600.0, 86400.0
END = 1_790_000_000.0 // DAY * DAY
NODES = ("mix-train-01", "mix-train-02", "mix-left-01", "mix-desk-01", "mix-serve-01")
_ADVICE_EVERY = 6 * HOUR
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def day_of_series(folder: Path, nodes: Sequence[str] = NODES) -> list[Series]:
    """The last of three simulated days, by name. The last node has dcgm-exporter alone, the others our agent."""
    simulate("mixed", folder, days=3, seed=4, until=END, minutes_seconds=DAY, nodes=nodes)
    files = sorted(folder.glob("*.db"))
    window = read_frame(files, since_seconds=DAY, until=END).window
    agents = [one for one in files if one.stem != nodes[-1]]
    found = list(agent_series(read_frame(agents, window)))
    found += exporter_series([one for one in files if one.stem == nodes[-1]], window)
    found += _more(found)
    ticks = np.arange(END - DAY, END, 300.0)
    missing = {"node": nodes[0], "scope": "gpu", "metric": "tensor_active", "reason": "no-gpm"}
    found += [Series("skuwise_absence", missing, ticks, np.ones_like(ticks)), *_page_series(files, ticks)]
    for one in nodes[:-1]:
        found.append(Series("up", {"job": "skuwise", "instance": f"{one}:9477"}, ticks, np.ones_like(ticks)))
        found.append(Series("skuwise_agent_last_tick_timestamp_seconds", {"node": one}, ticks, ticks - 1.0))
    return sorted(found, key=lambda one: one.name)


# dcgm-exporter counts these only where it is told to: they follow another series here.
_LIKE = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("DCGM_FI_PROF_SM_ACTIVE", 0.8),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("DCGM_FI_PROF_NVLINK_TX_BYTES", 20.0),
}


def _more(found: Sequence[Series]) -> list[Series]:
    """What the series of tests leave out: two fields of DCGM, and the agent's time in which ports were silent."""
    made = [replace(one, name=_LIKE[one.name][0], values=one.values * _LIKE[one.name][1])
            for one in found if one.name in _LIKE]  # fmt: skip
    rates = {str(one.labels): one.values[0] for one in found if one.name == "skuwise_fabric_line_rate_bytes_per_second"}
    for one in found:
        if one.name != "skuwise_fabric_tx_bytes_total" or str(one.labels) not in rates:
            continue
        spans = np.diff(one.ts, prepend=one.ts[:1])
        silent = np.diff(one.values, prepend=one.values[:1]) < 0.001 * rates[str(one.labels)] * spans
        made.append(Series("skuwise_fabric_util_observed_seconds_total", one.labels, one.ts, np.cumsum(spans)))
        made.append(Series("skuwise_fabric_silent_seconds_total", one.labels, one.ts, np.cumsum(spans * silent)))
    return made


def incidents_at(now: float, nodes: Sequence[str] = NODES) -> tuple[Incident, ...]:
    """One incident of each kind; they began one after another in the last day."""
    found: list[Incident] = []
    for at, kind in enumerate(get_args(IncidentKind)):
        since = END - DAY * (0.8 - 0.15 * at)
        if since < now:
            seen: Sighting = sighting(f"run-{at}", since=since, until=now, kind=kind, nodes=(nodes[at % len(nodes)],))
            found.append(Incident(f"i-{at}", seen, "open", since, since, now, now, seen.gpu_hours, seen.cost_usd))
    return tuple(found)


def _page_series(files: Sequence[Path], ticks: np.ndarray) -> Iterator[Series]:
    told: dict[tuple[str, str], list[tuple[float, float]]] = {}
    advice: Advice | None = None
    for at in ticks.tolist():
        if advice is None or at - advice.generated_at >= _ADVICE_EVERY:
            frame = read_frame(files, since_seconds=2 * DAY, until=at)
            made = advise(frame, rulebook(), AdviseOptions(at), np.random.default_rng(20))
            advice = replace(made, generated_at=at)
        watch = WatchStanding(int((at - END + DAY) / 300) + 1, 0, at, 4.0)
        state = SiteState(advice, True, incidents_at(at), True, watch)
        for line in render_page(state, PageLimits(), at, PLAIN, {}).splitlines():
            if (match := _SAMPLE.fullmatch(line)) is not None and not line.startswith("#"):
                told.setdefault((match[1], match[2] or ""), []).append((at, float(match[3])))
    for (name, labels), points in told.items():
        own = {key: value.replace("\\\\", "\\") for key, value in _LABEL.findall(labels)}
        times, values = np.array(points).T
        yield Series(name, {**own, "job": "skuwise-serve", "instance": "serve:9478"}, times, values)


def plain_query(expr: str, *, cluster: str = ".*", team: str = ".*", node: str = ".*", interval: str = "15m") -> str:
    """A panel's query with Grafana's variables filled in."""
    for name, value in (("__rate_interval", interval), ("cluster", cluster), ("team", team), ("node", node)):
        expr = expr.replace(f"${name}", value)
    assert not re.search(r"\$[a-z_]", expr), expr
    return expr


def ask(url: str, panel: Panel, expr: str, end: float = END, step: float = 600.0) -> list[dict[str, Any]]:
    """What Prometheus answers for a panel: the last day, or its end where the panel shows that alone."""
    if panel.shape == "timeseries":
        path, when = "query_range", {"start": end - DAY + 1, "end": end - 1, "step": step}
    else:
        path, when = "query", {"time": end - 1}
    words = urllib.parse.urlencode({"query": expr, **when})
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{words}", timeout=60) as answer:
        document = json.load(answer)
    assert document["status"] == "success", document
    return document["data"]["result"]
