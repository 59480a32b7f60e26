"""What a server has: its kind and limits, which exporters, in which spellings, how often and since when.

From that follows what advice is possible, and which line of which exporter's configuration would make it better.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....agent.base.safe_text import clean_text
from ....agent.sources.gpu_backends import DRIVER_NAMES
from ....agent.sources.scrape.dcgm import FIELDS
from ....rules.base.errors import NothingToDo, SourceError
from ...core.coded_text import CodedText, coded
from ...core.frame import Window
from ...core.timestamps import minute
from ...core.unobservable import Blind, of_reason, unreadable
from .client.client import Client, RefusedError, TooMuchError
from .client.range_planner import halves
from .client.response import AnswerError, Grid, Labels
from .promql.engine_series import ENGINE_SERIES
from .promql.promql import (
    AGENT_ABSENCE,
    AGENT_ANCHOR,
    AGENT_SERIES,
    DCGM_GAUGES,
    RULE_SECONDS,
    anchors_of,
    named_ask,
    row_range,
    rule_name,
    selector,
)

HOUR = 3600.0
# Names are asked of the index alone, so this reads no samples.
_NAMES = (
    "DCGM_FI_.+|skuwise[_:].+|node_infiniband_.+|node_disk_(read|written)_bytes_total|node_uname_info|node_dmi_info"
    "|node_cpu_seconds_total|kube_node_(labels|info|spec_unschedulable)"
    "|node_network_(receive|transmit)_bytes_total|node_network_speed_bytes"
    "|node_network_info|node_scrape_collector_success|kube_node_status_(capacity|allocatable)"
    "|kube_pod_(info|owner|created|start_time|labels|status_phase)|kube_(replicaset|job|deployment)_owner"
    "|kube_job_spec_parallelism|kube_namespace_labels|kube_pod_container_(info|resource_requests|resource_limits)"
)
# A metric of a GPU, and no more than so many of them are looked for where GPUs are searched.
_DCGM_GPU = re.compile(r"DCGM_FI_(DEV|PROF)_.+")
_LOOKED_FOR = 3
# Windows shorter than this are read in rows of five minutes.
SHORT_WINDOW_SECONDS = 12 * HOUR
SHORT_STEP_SECONDS = 300.0
# Time of cores is summed over so many series at most without a recording rule: it is no verdict's main evidence.
MAX_CORE_SERIES = 8000
# In DCGM's own terms why NVLink's default field is of no use.
_NVLINK_TOTAL = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"


@dataclass(frozen=True, slots=True)
class Server:
    """What answers: ``Prometheus``, ``VictoriaMetrics``, ``Grafana Mimir`` ..., and its limits where it tells them."""

    kind: str
    version: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.version}".strip()


@dataclass(frozen=True)
class Discovery:
    """What can be read over a window. `series`: of GPUs, for planning; `step`: length of a row, seconds. `named`: GPUs
    that series name of which no measure is read."""

    server: Server
    window: Window
    step: float
    names: frozenset[str]
    agent_gpus: int
    dcgm_gpus: int
    scrape_seconds: float | None
    retention: str
    core_series: int
    ruled: frozenset[str]
    named: tuple[Labels, ...] = ()

    @property
    def series(self) -> int:
        return max(self.agent_gpus, self.dcgm_gpus, 1)

    @property
    def has_fabric(self) -> bool:
        return "node_infiniband_port_data_transmitted_bytes_total" in self.names

    @property
    def exporters(self) -> tuple[str, ...]:
        found = []
        if self.agent_gpus:
            found.append("skuwise agent")
        if self.dcgm_gpus:
            found.append("dcgm-exporter")
        if any(name.startswith("node_") for name in self.names):
            found.append("node_exporter")
        if any(name.startswith("kube_") for name in self.names):
            found.append("kube-state-metrics")
        return tuple(found)


def discover(
    client: Client,
    matches: Sequence[str],
    *,
    since_seconds: float,
    until: float | None,
    now: float,
    max_series: int,
    step: float | None = None,
) -> Discovery:
    """Find out; `step`: how long a row is to be (None: by the length of the window), seconds. Raises NothingToDo where
    the server has no GPU telemetry, SourceError where it cannot be asked or has more series than `max_series`."""
    server = server_of(client)
    latest = until if until is not None else now
    names = _names(client, matches, latest - since_seconds, latest)
    own = (AGENT_ANCHOR,) if AGENT_ANCHOR in names else ()
    # Of a GPU any metric may be missing, so several are looked for.
    exported = anchors_of(names)[:_LOOKED_FOR]
    if not own and not exported:
        blind = _blind(client, matches, names, latest)
        if blind:
            raise unreadable(blind)
        raise NothingToDo(
            f"No GPU metrics on {client.url} ({server}) between {minute(latest - since_seconds)} and {minute(latest)}.",
            "Scrape the agent (--listen) or dcgm-exporter, or check --match, --since and --until.",
        )
    anchors = (*own, *exported)
    window, step = _window(client, matches, anchors, since=since_seconds, until=until, now=now, step=step)
    agents = _series(client, own, matches, window, max_series)
    gpus = _series(client, exported, matches, window, max_series)
    cores = 0
    if "node_cpu_seconds_total" in names:
        idle = selector(matches, 'mode="idle"')
        cores = _count(client, f"count(last_over_time(node_cpu_seconds_total{idle}[1h]))", window.end)
    return Discovery(
        server=server,
        window=window,
        step=step,
        names=frozenset(names),
        agent_gpus=agents,
        dcgm_gpus=gpus,
        scrape_seconds=_scrape_seconds(client, exported or own, matches, window),
        retention=server.limits.get("storage.tsdb.retention.time", ""),
        core_series=cores,
        ruled=_ruled(client, names, matches, window.start + step, step=step, gpus=gpus),
        named=_named(client, names, matches, window) if exported else (),
    )


def _scrape_seconds(client: Client, anchors: Sequence[str], matches: Sequence[str], window: Window) -> float | None:
    for name in anchors:
        scraped = client.scalar(f"quantile(0.5, count_over_time({name}{selector(matches)}[1h]))", window.end)
        if scraped:
            return HOUR / scraped
    return None


def _named(client: Client, names: set[str], matches: Sequence[str], window: Window) -> tuple[Labels, ...]:
    """The GPUs of the series that nothing is read of, at the window's end and in its middle: what else there is of a
    GPU tells of it by itself."""
    # The engine's activity is asked of some GPUs only.
    read = {name for gauge in DCGM_GAUGES for name in gauge.names if gauge.measure != "engine"}
    others = sorted(name for name in names - read if _DCGM_GPU.fullmatch(name))
    if not others:
        return ()
    ask, found = named_ask(others, matches), {}
    for at in (window.end, (window.start + window.end) / 2):
        try:
            answer = client.instant(ask.query, at, ask.kept).answer
        except RefusedError:
            continue
        found |= {tuple(sorted(labels.items())): labels for labels in answer.labels}
    return tuple(found.values())


def server_of(client: Client) -> Server:
    """What kind of server answers. The first question: raises UnreachableError where nobody does."""
    try:
        one = client.scalar("vector(1)", 0.0)
    except (RefusedError, AnswerError) as error:
        raise SourceError(f"{client.url} does not answer like Prometheus: {error.message}", error.remedy) from None
    if one != 1.0:
        raise SourceError(f"{client.url} does not evaluate queries like Prometheus.", "Check the URL.")
    about = client.about("buildinfo")
    version = about.get("version")
    version = clean_text(version)[:40] if isinstance(version, str) else ""
    application = about.get("application")
    if isinstance(application, str) and application:
        return Server(clean_text(application)[:40], version, {})
    if _speaks_metricsql(client):
        return Server("VictoriaMetrics", "", {})
    flags = client.about("flags")
    wanted = ("query.max-samples", "query.timeout", "query.lookback-delta", "storage.tsdb.retention.time")
    limits = {name: clean_text(str(flags[name]))[:40] for name in wanted if name in flags}
    return Server("Prometheus" if limits else "a server with the Prometheus API", version, limits)


def _speaks_metricsql(client: Client) -> bool:
    try:
        return client.scalar("union(vector(1))", 0.0) == 1.0
    except (RefusedError, AnswerError):
        return False


def _blind(client: Client, matches: Sequence[str], names: set[str], at: float) -> dict[str, Blind]:
    """Nodes with an agent that reads no GPU, and why. The agent's page carries the reason's code, not its sentence."""
    if AGENT_ABSENCE not in names:
        return {}
    chosen = selector(matches, 'scope="source"', f'subject=~"{"|".join(DRIVER_NAMES)}"', 'metric="*"')
    told = client.instant(f"group by (node, reason) (last_over_time({AGENT_ABSENCE}{chosen}[1d]))", at)
    return {
        clean_text(one["node"]): of_reason(clean_text(one["reason"]))
        for one in told.answer.labels
        if "node" in one and "reason" in one
    }


def _names(client: Client, matches: Sequence[str], start: float, end: float) -> set[str]:
    own = f'__name__=~"{_NAMES}|{"|".join(sorted(ENGINE_SERIES))}"'
    return set(client.names(selector(matches, own), max(start, 0.0), end))


def _window(
    client: Client, matches: Sequence[str], anchors: Sequence[str], *, since: float, until: float | None, now: float,
    step: float | None = None,
) -> tuple[Window, float]:  # fmt: skip
    """The window in whole rows up to the newest data, and how long a row is."""
    latest = until if until is not None else now
    step = step or (HOUR if since >= SHORT_WINDOW_SECONDS else SHORT_STEP_SECONDS)
    end = math.floor(latest / step) * step
    start = math.floor((latest - since) / step) * step
    if until is None:
        counted = " or ".join(f"max(count_over_time({name}{selector(matches)}{row_range(step)}))" for name in anchors)
        # Looked for from the end: a server that is being scraped has data in the last row. One sample is none yet: it
        # may lie on the edge.
        for first, last in _backwards(start, end, step):
            newest = _newest(client, counted, Grid(first, last, step))
            if newest is not None:
                end = newest
                break
        else:
            raise NothingToDo(
                f"No GPU samples on {client.url} between {minute(start)} and {minute(end)}.",
                "Choose another window with --since and --until.",
            )
        start = math.floor((end - since) / step) * step
    if end <= start:
        raise NothingToDo("The window is shorter than one row of telemetry.", "Choose a longer window with --since.")
    return Window(start, end), step


def _newest(client: Client, counted: str, grid: Grid) -> float | None:
    """The last moment of `grid` whose row holds more than one sample; smaller pieces are asked where a limit is met."""
    try:
        values = client.range(counted, grid, ()).answer.values
    except TooMuchError:
        if grid.count == 1:
            raise
        early, late = halves(grid)
        found = _newest(client, counted, late)
        return found if found is not None else _newest(client, counted, early)
    at = np.nonzero((values > 1).any(axis=0))[0]
    return grid.start + float(at[-1]) * grid.step if len(at) else None


def _backwards(start: float, end: float, step: float) -> list[tuple[float, float]]:
    """Spans of a day's rows, the newest first; before them the newest rows, which most servers have."""
    spans, last, rows = [], end, 2
    while last > start:
        first = max(start + step, last - (rows - 1) * step)
        rows = 24
        spans.append((first, last))
        last = first - step
    return spans


def _series(client: Client, names: Sequence[str], matches: Sequence[str], window: Window, most: int) -> int:
    """How many series a measure has near the end of the window, or somewhere in it: the most of some measures."""
    found = 0
    for seconds in (HOUR, window.seconds):
        for name in names:
            count = _count(client, f"count(last_over_time({name}{selector(matches)}[{seconds:.0f}s]))", window.end)
            if count > most:
                raise SourceError(
                    f"Too many time series of {name}: {count} match, the limit is {most}.",
                    "Use --match to select fewer, or raise prometheus.max_series.",
                )
            found = max(found, count)
        if found:
            break
    return found


def _count(client: Client, query: str, at: float) -> int:
    return int(client.scalar(query, at) or 0)


def _ruled(
    client: Client, names: set[str], matches: Sequence[str], at: float, *, step: float, gpus: int
) -> frozenset[str]:
    """The recording rules that had run for the whole window, as far as its first row tells."""
    chosen = selector(matches)
    found = []
    for gauge in DCGM_GAUGES:
        for statistic in ("mean", "max"):
            rule = rule_name(gauge.measure, statistic)
            if rule not in names:
                continue
            told = client.scalar(f"sum(count_over_time({rule}{chosen}{row_range(step)}))", at) or 0.0
            raw = [name for name in gauge.names if name in names]
            # Without the samples themselves the rules are all there is; with them they must tell as much.
            needed = client.scalar(f"count(last_over_time({raw[0]}{chosen}[{step:g}s]))", at) if raw else 0.0
            if told >= 0.9 * (needed or 0.0) * step / RULE_SECONDS and (told > 0 or gpus == 0):
                found.append(rule)
    return frozenset(found)


def advice_notes(found: Discovery) -> tuple[CodedText, ...]:
    """What the server's telemetry lacks for better advice, and what would add it; the weightiest first."""
    notes: list[CodedText] = []
    names = found.names
    if found.dcgm_gpus and not found.agent_gpus:
        lacking = [
            one for one in FIELDS
            if one.metric in ("tensor_active", "dram_active", "sm_active", "nvlink_tx_bytes_per_second")
            and not any(name in names for name in one.names)
        ]  # fmt: skip
        for one in lacking:
            why = ""
            if one.metric.startswith("nvlink") and _NVLINK_TOTAL in names:
                why = f" ({_NVLINK_TOTAL} is the sum of both directions and is not used)"
            notes.append(
                CodedText(
                    "dcgm-field-missing",
                    f"No {one.metric} from dcgm-exporter{why}. Add '{one.csv}' to its counters CSV.",
                    {"metric": one.metric, "csv": one.csv},
                )
            )
    if found.dcgm_gpus and not found.has_fabric:
        notes.append(
            coded(
                "no-fabric-series",
                "No fabric metrics: idle fabrics are not detected. Run node_exporter with "
                "--collector.infiniband, or run the agent.",
            )
        )
    if found.core_series > MAX_CORE_SERIES:
        notes.append(
            coded(
                "too-many-core-series",
                "Host CPU metrics are not read: {series} time series of cores are too many. Use a narrower --match.",
                series=found.core_series,
            )
        )
    if found.scrape_seconds is not None and found.scrape_seconds > 90 and found.dcgm_gpus and not found.agent_gpus:
        notes.append(
            coded(
                "scraped-seldom", "GPUs are scraped every {seconds:.0f} s. Set scrape_interval to 30s for more detail.",
                seconds=found.scrape_seconds,
            )
        )  # fmt: skip
    if found.agent_gpus and AGENT_SERIES not in names:
        notes.append(
            coded("no-workloads-told", "No workloads reported by the agent. Run 'skuwise agent doctor' on a node.")
        )
    return tuple(notes)


def lacking_fields(found: Discovery) -> dict[str, tuple[str, str]]:
    """Metric -> why dcgm-exporter does not tell it, and the remedy: for the absences of its nodes."""
    out = {}
    for one in FIELDS:
        if not any(name in found.names for name in one.names):
            out[one.metric] = (
                f"dcgm-exporter does not export {one.names[0]}.",
                f"Add '{one.csv}' to its counters CSV.",
            )
    return out
