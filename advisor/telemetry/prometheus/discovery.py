"""What a server has: its kind, which exporters, which metrics, over which window and how often."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import yaml

from ....agent.base.safe_text import clean_text
from ....rules.base.errors import NothingToDo, SourceError
from ...core.coded_text import CodedText, coded
from ...core.frame import Window
from ...core.timestamps import minute
from . import promql as queries
from .client.client import Client, RefusedError
from .client.range_planner import DAY
from .client.response import AnswerError, Grid
from .owners.engines import ENGINE_SERIES
from .promql import AGENT_ANCHOR, selector

HOUR = 3600.0
_SCRAPE = "Scrape the agent (--listen) or dcgm-exporter, or check --match, --since and --until."
AMD_ACTIVITY = "gpu_gfx_activity"  # of AMD's device-metrics-exporter
# Names are asked of the index alone, so this reads no samples.
_NAMES = (
    "DCGM_FI_.+|skuwise[_:].+|node_infiniband_.+|node_disk_(read|written)_bytes_total|node_uname_info|node_dmi_info"
    "|node_cpu_seconds_total|node_network_(receive|transmit)_bytes_total|node_network_speed_bytes"
    "|node_scrape_collector_success|kube_node_(info|labels|spec_unschedulable|status_(capacity|allocatable))"
    "|kube_pod_(info|owner|created|start_time|labels|status_phase)|kube_(replicaset|job|deployment)_owner"
    "|kube_job_spec_parallelism|kube_namespace_labels|kube_pod_container_(info|resource_requests|resource_limits)|gpu_gfx_activity"
)
# Windows shorter than this are read in rows of five minutes.
SHORT_WINDOW_SECONDS = 12 * HOUR
SHORT_STEP_SECONDS = 300.0
# Time of cores is summed over so many series at most without a recording rule: it is no verdict's main evidence.
MAX_CORE_SERIES = 8000


@dataclass(frozen=True)
class Discovery:
    """What can be read over a window. `server`: kind and version; `step`: length of a row, seconds; `series`: of GPUs,
    for planning; `ruled`: recording rules that are read instead of samples."""

    server: str
    window: Window
    step: float
    names: frozenset[str]
    agent_gpus: int
    dcgm_gpus: int
    scrape_seconds: float | None
    core_series: int
    ruled: frozenset[str]

    @property
    def series(self) -> int:
        return max(self.agent_gpus, self.dcgm_gpus, 1)

    @property
    def has_fabric(self) -> bool:
        return "node_infiniband_port_data_transmitted_bytes_total" in self.names

    @property
    def exporters(self) -> tuple[str, ...]:
        has = {"skuwise agent": self.agent_gpus, "dcgm-exporter": self.dcgm_gpus}
        for name, prefix in (("node_exporter", "node_"), ("kube-state-metrics", "kube_")):
            has[name] = any(metric.startswith(prefix) for metric in self.names)
        return tuple(name for name, exists in has.items() if exists)


def discover(
    client: Client, matches: Sequence[str], *, since_seconds: float, until: float | None, now: float, max_series: int,
    step: float | None = None,
) -> Discovery:  # fmt: skip
    """Find out; `step`: length of a row in seconds (None: by the length of the window). Raises NothingToDo where
    the server has no GPU telemetry, SourceError where it cannot be asked or has more series than `max_series`."""
    server = _server_of(client)
    latest = until if until is not None else now
    start, chosen = latest - since_seconds, queries.selector(matches)
    own_names = queries.selector(matches, f'__name__=~"{_NAMES}|{"|".join(sorted(ENGINE_SERIES))}"')
    names = frozenset(client.names(own_names, max(start, 0.0), latest))
    anchors = (queries.AGENT_ANCHOR,) if queries.AGENT_ANCHOR in names else ()
    # Of a GPU any metric may be missing, so several are looked for.
    exported = queries.anchors_of(names)[:3]
    if not anchors and not exported:
        what, remedy = f"No GPU metrics on {client.url} ({server}) from {minute(start)} to {minute(latest)}.", _SCRAPE
        if queries.AGENT_ABSENCE in names:
            what, remedy = f"No agent on {client.url} ({server}) reads a GPU.", "Run 'skuwise agent doctor' on a node."
        elif AMD_ACTIVITY in names:
            what, remedy = f"{client.url} ({server}) has metrics of AMD GPUs only.", "skuwise reads NVIDIA GPUs only."
        raise NothingToDo(what, remedy)
    step = step or (HOUR if since_seconds >= SHORT_WINDOW_SECONDS else SHORT_STEP_SECONDS)
    end = math.floor(latest / step) * step
    if until is None:
        end = _newest(client, (*anchors, *exported), matches, Grid(math.floor(start / step) * step, end, step))
        start = end - since_seconds
    window = Window(math.floor(start / step) * step, end)
    if window.end <= window.start:
        raise NothingToDo("The window is shorter than one row of telemetry.", "Choose a longer window with --since.")
    agents, gpus = (_series(client, anchor, chosen, window, max_series) for anchor in (anchors, exported))
    idle, scraped, cores = queries.selector(matches, 'mode="idle"'), None, None
    if "node_cpu_seconds_total" in names:
        cores = client.scalar(f"count(last_over_time(node_cpu_seconds_total{idle}[1h]))", window.end)
    for name in exported or anchors:
        scraped = scraped or client.scalar(f"quantile(0.5, count_over_time({name}{chosen}[1h]))", window.end)
    return Discovery(
        server=server, window=window, step=step, names=names, agent_gpus=agents, dcgm_gpus=gpus,
        scrape_seconds=HOUR / scraped if scraped else None, core_series=int(cores or 0),
        ruled=frozenset(_ruled(client, names, chosen, window.start + step, step)) if gpus else frozenset(),
    )  # fmt: skip


def _server_of(client: Client) -> str:
    """The kind and the version of what answers. The first query: raises UnreachableError without an answer."""
    try:
        if client.scalar("vector(1)", 0.0) != 1.0:
            raise SourceError(f"{client.url} does not evaluate queries like Prometheus.", "Check the URL.")
    except (RefusedError, AnswerError) as error:
        raise SourceError(f"{client.url} does not answer like Prometheus: {error.message}", error.remedy) from None
    about = client.about("buildinfo")
    kind, version = (clean_text(str(about.get(name) or ""))[:40] for name in ("application", "version"))
    with suppress(RefusedError, AnswerError):
        if not kind and client.scalar("union(vector(1))", 0.0) == 1.0:  # MetricsQL alone has it
            return "VictoriaMetrics"
    kind = kind or ("Prometheus" if version[:2] in {"2.", "3."} else "a server with the Prometheus API")
    return f"{kind} {version}".strip()


def _newest(client: Client, anchors: Sequence[str], matches: Sequence[str], grid: Grid) -> float:
    """The end of the last row that holds more than one sample: one alone may lie on its edge. A server that is being
    scraped has it in the newest rows; before them a day at a time is asked for."""
    row = queries.selector(matches) + queries.row_range(grid.step)
    counted = " or ".join(f"max(count_over_time({name}{row}))" for name in anchors)
    last, rows = grid.end, 2
    while last > grid.start:
        first = max(grid.start + grid.step, last - (rows - 1) * grid.step)
        values = client.range(counted, Grid(first, last, grid.step), ()).values
        if len(at := np.flatnonzero((values > 1).any(axis=0))):
            return first + float(at[-1]) * grid.step
        last, rows = first - grid.step, 24
    what = f"No GPU samples on {client.url} between {minute(grid.start)} and {minute(grid.end)}."
    raise NothingToDo(what, "Choose another window with --since and --until.")


def _series(client: Client, names: Sequence[str], chosen: str, window: Window, most: int) -> int:
    count = 0
    for seconds in (HOUR, window.seconds):
        for name in names if not count else ():
            samples = client.scalar(f"count(last_over_time({name}{chosen}[{seconds:.0f}s]))", window.end)
            if samples is not None and samples > most:
                what = f"Too many time series of {name}: {samples:.0f} match, the limit is {most}."
                raise SourceError(what, "Use --match to select fewer, or raise prometheus.max_series.")
            count = max(count, int(samples or 0))
    return count


def _ruled(client: Client, names: frozenset[str], chosen: str, at: float, step: float) -> Iterator[str]:
    """The recording rules that had run in the window's first row already, of all GPUs that have the samples."""
    for gauge in queries.DCGM_GAUGES:
        rules = {queries.rule_name(gauge.measure, statistic) for statistic in ("mean", "max")} & names
        # Without the samples themselves the rules are all there is.
        raw = gauge.known(names)[:1] if rules else ()
        gpus = sum(client.scalar(f"count(last_over_time({name}{chosen}[{step:g}s]))", at) or 0.0 for name in raw)
        for rule in rules:
            values = client.scalar(f"sum(count_over_time({rule}{chosen}{queries.row_range(step)}))", at) or 0.0
            if values > 0 and values >= 0.9 * gpus * step / queries.RULE_SECONDS:
                yield rule


def advice_notes(survey: Discovery) -> tuple[CodedText, ...]:
    """What the server lacks for better advice, beside absences and gaps."""
    notes: list[CodedText] = []
    if survey.dcgm_gpus and not survey.has_fabric:
        remedy = "Run node_exporter with --collector.infiniband, or run the agent."
        notes.append(coded("no-fabric-series", f"No fabric metrics: idle fabrics are not detected. {remedy}"))
    if survey.core_series > MAX_CORE_SERIES:
        text = "Host CPU metrics are not read: {series} time series of cores are too many. Use a narrower --match."
        notes.append(coded("too-many-core-series", text, series=survey.core_series))
    if survey.agent_gpus and queries.AGENT_SERIES not in survey.names:
        text = "No workloads reported by the agent. Run 'skuwise agent doctor' on a node."
        notes.append(coded("no-workloads-told", text))
    return tuple(notes)


# One series of dcgm-exporter a GPU, beside the agent's. Which does not matter, as long as it is the same from run to
# run; memory in use changes seldom, so that copies of a server mostly agree.
_PRESENT = (
    "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)  # fmt: skip
_ID_LABELS = ("__name__", "UUID", "gpu_uuid")
_GLOBAL = re.compile(r"^global:[^\n]*\n(?:[ \t#][^\n]*\n|\n)*", re.MULTILINE)


def external_labels(client: Client) -> dict[str, str]:
    """The external labels of a server; empty where its configuration is not readable."""
    config = client.about("config").get("yaml")
    # Scrape configurations may be long; only the global section is parsed.
    section = _GLOBAL.search(f"{config}\n") if isinstance(config, str) else None
    try:
        labels = yaml.safe_load(section.group())["global"]["external_labels"] if section else {}
    except (yaml.YAMLError, LookupError, TypeError):
        return {}
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {}


def gpus_at(client: Client, matches: Sequence[str], at: float) -> frozenset[str]:
    """The UUIDs of the GPUs that the server holds at a moment (Unix seconds). Raises SourceError."""
    query = _largest((*_PRESENT, AGENT_ANCHOR), matches, _ID_LABELS[1:])
    return frozenset(value for ids in client.instant(query, at, _ID_LABELS[1:]).labels for value in ids.values())


def held_at_midnights(
    client: Client, names: Collection[str], matches: Sequence[str], window: Window
) -> dict[float, str]:
    """A digest of the GPUs and a value of each, by the ends of the window's UTC days (Unix seconds); midnights
    without a GPU are missing. Values distinguish fleets with equal ids, such as simulated ones. Raises SourceError.

    The server behind an address may change; its data of the past do not."""
    chosen = [name for name in _PRESENT if name in names][:1] + [AGENT_ANCHOR] * (AGENT_ANCHOR in names)
    grid = Grid(math.floor(window.start / DAY) * DAY, math.floor(window.end / DAY) * DAY, DAY)
    if not chosen or grid.count < 2:
        return {}
    answer = client.range(_largest(chosen, matches, _ID_LABELS), grid, _ID_LABELS)
    held = {}
    for column, values in enumerate(answer.values.T.tolist()):
        pairs = zip(answer.labels, values, strict=True)
        lines = sorted(f"{sorted(labels.items())} {value:.6g}" for labels, value in pairs if not math.isnan(value))
        if lines:
            held[grid.start + column * DAY] = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
    return held


def _largest(names: Sequence[str], matches: Sequence[str], labels: Sequence[str]) -> str:
    """By labels, of several metrics. Google Managed Prometheus takes exact names only."""
    return f"max by ({', '.join(labels)}) ({' or '.join(f'{name}{selector(matches)}' for name in names)})"
