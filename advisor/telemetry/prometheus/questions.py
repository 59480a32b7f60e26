"""What a server has (its kind, exporters, metrics, window and intervals), and what is asked of it for a frame."""

import hashlib
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import yaml

from ....agent.base.safe_text import clean_text
from ....rules.base.errors import NothingToDo, SourceError
from ...core.coded_text import coded
from ...core.frame import Window
from ...core.timestamps import minute
from .. import queries as store
from ..resolution import HOUR, MINUTE, concat
from . import promql as queries
from .client.client import Client, RefusedError
from .client.range_planner import DAY, Ask, Runner
from .client.response import AnswerError, Grid, Labels, SeriesAnswer
from .engines import ENGINE_SERIES
from .owners import BACK
from .promql import AGENT_ANCHOR, agent_node, label_of, of_gpus, selector

_SCRAPE = "Scrape the agent (--listen) or dcgm-exporter, or check --match, --since and --until."
AMD_ACTIVITY = "gpu_gfx_activity"  # of AMD's device-metrics-exporter
# Names are asked of the index alone, so this reads no samples.
_NAMES = (
    "DCGM_FI_.+|skuwise[_:].+|node_infiniband_.+|node_disk_(read|written)_bytes_total|node_uname_info|node_dmi_info"
    "|node_cpu_seconds_total|node_network_(receive|transmit)_bytes_total|node_network_speed_bytes"
    "|node_scrape_collector_success|kube_node_(info|labels|spec_unschedulable|status_(capacity|allocatable))"
    "|kube_pod_(info|owner|created|start_time|labels|status_(phase|scheduled|reason))"
    "|kube_pod_spec_volumes_persistentvolumeclaims_info|kube_persistentvolumeclaim_(info|status_phase)"
    "|kube_storageclass_info|kube_(replicaset|job|deployment)_owner|kube_job_spec_parallelism|kube_namespace_labels"
    "|kube_pod_container_info|kube_pod_(init_)?container_resource_(requests|limits)|gpu_gfx_activity"
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


_SERIES = re.compile(r"\b(?:kube|node|skuwise|DCGM)_\w+")
_SAMPLES = 128  # of a series over the window: every three hours of two weeks
_STATISTICS = ("_mean", "_p95", "_max")
_ABOUT_NODES = frozenset({"nodes", "node GPUs", "ports"})


@dataclass
class Questions:
    """Asks for measures, and keeps the answers that describe nodes.

    `shaped`: what an ask becomes before it is asked; None: it is left out. `wanted`: ids of the GPUs that are asked
    for; empty: all. `given`: answers of the agents about nodes; `queries`: by measure what was asked of each exporter;
    `exporters`: labels of dcgm-exporter's series."""

    runner: Runner
    survey: Discovery
    matches: tuple[str, ...]
    shaped: Callable[[Ask], Ask | None] = lambda ask: ask
    wanted: Collection[str] = ()
    given: dict[str, SeriesAnswer] = field(default_factory=dict)
    queries: dict[str, list[str]] = field(default_factory=dict)
    exporters: Sequence[Labels] = ()

    @property
    def grid(self) -> Grid:
        return Grid(self.survey.window.start + self.survey.step, self.survey.window.end, self.survey.step)

    def of_wanted(self, label: str) -> tuple[str, ...]:
        """The matchers of series of the wanted GPUs. `label`: names the GPU."""
        return (*self.matches, *of_gpus(self.wanted, label))

    def ask(self, asks: Sequence[Ask], series: int) -> dict[str, SeriesAnswer]:
        """Measures over the window. `series`: how many are expected of each."""
        shaped = [ask for question in asks if (ask := self.shaped(question)) is not None]
        answers: dict[str, SeriesAnswer] = {}
        for ask, answer in self.runner.matrices(shaped, self.survey.window, self.survey.step, series):
            values: Any = answer.values
            if ask.name.endswith(_STATISTICS):  # readings, of which seven digits are kept: half the memory
                values = values.astype(np.float32)
            answers[ask.name] = SeriesAnswer(answer.labels, values)
            self.queries.setdefault(ask.name, []).append(ask.query)
        self.given |= {name: answer for name, answer in answers.items() if name in _ABOUT_NODES}
        return answers

    @property
    def agents(self) -> dict[str, Labels]:
        """Nodes with an agent, and what its page says of them."""
        answer = self.given.get("nodes", SeriesAnswer.nothing(1))
        return {node: labels for labels in answer.labels if (node := agent_node(labels))}

    def info(self, name: str, kept: Sequence[str]) -> SeriesAnswer:
        """Labels of an info series over the whole window, and in which rows each set of them was there."""
        if name not in self.survey.names:
            return SeriesAnswer.nothing(self.grid.count)
        query = f"max by ({', '.join(kept)}) (last_over_time({name}{selector(self.matches)}[{BACK}]))"
        return self.ask([Ask(name, query, tuple(kept))], self.survey.series)[name]

    def over_window(self, expression: str, kept: Sequence[str]) -> SeriesAnswer:
        """The newest value of each series in the window, by few samples: for what hardly changes."""
        seconds = self.survey.window.seconds
        step = max(self.survey.step, seconds / _SAMPLES)
        return self.instant(f"last_over_time({expression}[{seconds:.0f}s:{step:.0f}s])", kept)

    def instant(self, query: str, kept: Sequence[str], at: float | None = None) -> SeriesAnswer:
        """As at a moment, by default the window's end; nothing where the server refuses."""
        try:
            return self.runner.client.instant(query, self.survey.window.end if at is None else at, kept)
        except RefusedError as error:
            what = next(iter(_SERIES.findall(query)), query)
            text = "Query for {what} failed: {error}"
            self.runner.log.add(coded("question-refused", text, what=what, error=error.message))
            return SeriesAnswer.nothing(1)

    def instants(self, asked: Sequence[str], kept: Sequence[str]) -> list[SeriesAnswer]:
        """Several of these, so many at once as the settings allow."""
        with ThreadPoolExecutor(self.runner.concurrency, thread_name_prefix="skuwise-prometheus") as pool:
            return list(pool.map(lambda query: self.instant(query, kept), asked))

    def daily(self, ask: Ask) -> SeriesAnswer:
        """As at the end of the window, and at every whole day before, all as one moment: for what hardly changes."""
        window = self.survey.window
        self.queries.setdefault(ask.name, []).append(ask.query)
        days = [self.instant(ask.query, ask.kept, float(at)) for at in np.arange(window.end, window.start, -DAY)]
        labels = tuple(label for day in days for label in day.labels)
        return SeriesAnswer(labels, np.vstack([day.values for day in days]))


# Parts of the names of measures that only verdicts over days use: percentiles, rhythms, energy, latencies.
_NOT_NEEDED = (
    "_p95", "duty", "period", "idle_run", "energy", "occupancy", "fp64", "fp32", "fp16",
    "mem_clock", "xmit_wait", "temperature", "correlation", "_cv", "mem_used_bytes_max", "tensor_active_max",
    "dram_active_max", "fabric util", "kv_cache", "preemptions", "prompt",
    "buckets", "disk_read_bytes_per_second_max", "disk_write_bytes_per_second_max", "tx_max", "rx_max",
)  # fmt: skip
# What a workload usually does on its links and at which clock is in the rows of minutes.
_ONLY_OF_MINUTES = ("pcie_", "nvlink_", "sm_clock", "throttled")
# The agent's histograms, by which a frame has percentiles.
_BUCKETS = frozenset({"gpu_util", "sm_active", "tensor_active", "dram_active", "nvlink"})
# A row needs a sample whatever the scrapes' jitter, and a rate two.
_SCRAPES_A_ROW, _SCRAPES_A_RATE = 2.5, 4.0
_USUAL_SCRAPE_SECONDS = 30.0
# A subquery with this step finds nothing within a row of a minute.
_SPARSE = f":{queries.WITHIN}]"
# The newest minute is whole once so many of the series have a sample in it.
_FULL_SHARE = 0.9
_LOOK_BACK_SECONDS = 900.0


def with_short_rows(
    client: Client, matches: tuple[str, ...], survey: Discovery, *, since: float, until: float | None, now: float,
    step: float,
) -> Discovery:  # fmt: skip
    """What was found with rows of five minutes, with rows of `step` seconds up to `until` or to the newest minute that
    most GPUs have a sample in. Recording rules are of five minutes, so no shorter row is read from them."""
    end = math.floor(until / MINUTE) * MINUTE if until is not None else _newest_minute(client, matches, survey, now)
    window = Window(math.floor(round((end - since) / step, 6)) * step, math.floor(end / step) * step)
    ruled = survey.ruled if step >= queries.RULE_SECONDS else frozenset[str]()
    return replace(survey, window=window, step=step, ruled=ruled)


def _newest_minute(client: Client, matches: tuple[str, ...], survey: Discovery, now: float) -> float:
    anchors = [name for name in (queries.AGENT_ANCHOR, *queries.anchors_of(survey.names)) if name in survey.names]
    newest = math.floor(min(now, survey.window.end + SHORT_STEP_SECONDS) / MINUTE) * MINUTE
    grid = Grid(newest - _LOOK_BACK_SECONDS, newest, MINUTE)
    row = f"{queries.selector(matches)}[{max(MINUTE, 1.5 * (survey.scrape_seconds or 0.0)):.0f}s]"
    full: list[float] = []
    for name in anchors[:2]:
        counts = np.nan_to_num(client.range(f"count(count_over_time({name}{row}))", grid, ()).values)
        full += [grid.start + MINUTE * at for at in np.flatnonzero(counts >= _FULL_SHARE * counts.max(initial=1.0))]
    return max(full, default=survey.window.end)


def short_asks(step: float, scrape_seconds: float | None) -> Callable[[Ask], Ask | None]:
    """What an ask becomes for rows of `step` seconds: with a range that a scrape can fill, or None, left out."""
    is_minute, scrape = step < queries.RULE_SECONDS, scrape_seconds or _USUAL_SCRAPE_SECONDS
    row, gauge, rate = (
        queries.row_range(max(step, math.ceil(scrapes * scrape))) for scrapes in (0.0, _SCRAPES_A_ROW, _SCRAPES_A_RATE)
    )

    def shaped(ask: Ask) -> Ask | None:
        if ask.name in _BUCKETS or any(part in ask.name for part in _NOT_NEEDED):
            return None
        if not is_minute:
            return None if ask.name.startswith(_ONLY_OF_MINUTES) else ask
        is_rate = "rate(" in ask.query or "increase(" in ask.query
        return None if _SPARSE in ask.query else replace(ask, query=ask.query.replace(row, rate if is_rate else gauge))

    return shaped


_NODE_NAMES = ("node", "exported_node")


def drained_nodes(asked: Questions, nodes: Collection[str]) -> pd.DataFrame:
    """Absences of those of `nodes` on which Kubernetes schedules nothing at the window's end, or which it listed within
    the window and no longer lists, while it lists others."""
    chosen, window = queries.selector(asked.matches), asked.survey.window
    listed = f"kube_node_info{chosen}"
    gone = f"last_over_time({listed}[{window.seconds:.0f}s]) unless on ({', '.join(_NODE_NAMES)}) {listed}"
    query = f"kube_node_spec_unschedulable{chosen} == 1 or ({gone} and on () count({listed}))"
    is_asked = any("kube_node_" in name for name in asked.survey.names)
    labels = asked.instant(query, _NODE_NAMES).labels if is_asked else ()
    short = {label_of(label, "node").split(".")[0] for label in labels}
    table = pd.DataFrame({"node": sorted(node for node in nodes if node.split(".")[0] in short)}, dtype=object)
    why = {"reason": "drained", "detail": "Kubernetes schedules nothing on this node.", "remedy": ""}
    table = table.assign(scope="node", metric="*", since=window.start, **why)
    return concat([table] if len(table) else [], store.ABSENCES.columns)
