"""Asking one server for all that a frame is made of."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from ...core.coded_text import coded
from ...core.frame import Window
from .. import queries as store
from ..resolution import MINUTE, concat
from . import promql as queries
from .client.client import Client, RefusedError
from .client.range_planner import DAY, Ask, Runner
from .client.response import Grid, Labels, SeriesAnswer
from .discovery import SHORT_STEP_SECONDS, Discovery
from .owners.kube import BACK
from .promql import agent_node, of_gpus, selector

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
            if ask.name.endswith(_STATISTICS):  # readings, of which seven digits are kept: half the memory
                single: Any = answer.values.astype(np.float32)
                answer = SeriesAnswer(answer.labels, single)  # noqa: PLW2901
            answers[ask.name] = answer
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
        return SeriesAnswer(
            tuple(label for day in days for label in day.labels), np.vstack([day.values for day in days])
        )


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
_KUBE_NODE = ("node", "exported_node")


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


def drained_nodes(asked: Questions, nodes: Collection[str]) -> pd.DataFrame:
    """Absences of the nodes of `known` on which Kubernetes schedules nothing at the window's end, or which it listed
    within the window and no longer lists, while it lists others."""
    chosen, window = queries.selector(asked.matches), asked.survey.window
    listed = f"kube_node_info{chosen}"
    gone = f"last_over_time({listed}[{window.seconds:.0f}s]) unless on ({', '.join(_KUBE_NODE)}) {listed}"
    query = f"kube_node_spec_unschedulable{chosen} == 1 or ({gone} and on () count({listed}))"
    labels = asked.instant(query, _KUBE_NODE).labels if any("kube_node_" in name for name in asked.survey.names) else ()
    short = {(label.get("exported_node") or label.get("node", "")).split(".")[0] for label in labels}
    table = pd.DataFrame({"node": sorted(node for node in nodes if node.split(".")[0] in short)}, dtype=object)
    why = {"reason": "drained", "detail": "Kubernetes schedules nothing on this node.", "remedy": ""}
    table = table.assign(scope="node", metric="*", since=window.start, **why)
    return concat([table] if len(table) else [], store.ABSENCES.columns)
