"""Asking one server for all that a frame is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from ....rules.base.progress import Steps
from ...core.coded_text import coded
from .client.client import RefusedError
from .client.range_planner import DAY, Ask, Runner
from .client.response import Labels, SeriesAnswer
from .discovery import Discovery
from .promql import promql as queries
from .promql.labels import NODE_LABELS, Hosts, NodeNames
from .rows import nodes

_SERIES = re.compile(r"\b(?:kube|node|skuwise|DCGM)_\w+")
_ABOUT_NODES = frozenset({"nodes", "node GPUs"})


class Questions:
    """Asks for measures, and keeps the answers that tell of nodes."""

    def __init__(
        self,
        runner: Runner,
        found: Discovery,
        matches: tuple[str, ...],
        steps: Steps,
        *,
        shaped: Callable[[Ask], Ask | None] = lambda ask: ask,
    ) -> None:
        """`shaped`: what an ask becomes before it is asked; None: it is left out."""
        self._runner, self.found, self.matches, self._steps, self._shaped = runner, found, matches, steps, shaped
        self.given: dict[str, SeriesAnswer] = {}
        self.queries: dict[str, list[str]] = {}  # by measure, of each exporter: what a person may ask again
        self._number = 0
        self.exporters: Sequence[Labels] = ()  # of dcgm-exporter's series: which target tells of which node

    def ask(self, asks: Sequence[Ask], series: int) -> dict[str, SeriesAnswer]:
        asks = [ask for one in asks if (ask := self._shaped(one)) is not None]
        answers: dict[str, SeriesAnswer] = {}
        runner = replace(self._runner, progress=self._note_progress)
        for ask, answer in runner.matrices(asks, self.found.window, self.found.step, series):
            answers[ask.name] = answer
            self._note(ask)
        self.given |= {name: answer for name, answer in answers.items() if name in _ABOUT_NODES}
        return answers

    def instant(self, query: str, kept: Sequence[str], at: float | None = None) -> SeriesAnswer:
        """Of something that does not change within the window, by default as at its end; nothing where refused."""
        try:
            return self._runner.client.instant(query, self.found.window.end if at is None else at, kept).answer
        except RefusedError as error:
            series = _SERIES.search(query)
            what = series.group() if series is not None else query.split("(", maxsplit=1)[0]
            self._runner.log.add(
                coded("question-refused", "Query for {what} failed: {error}", what=what, error=error.message)
            )
            return SeriesAnswer.nothing(1)

    def instants(self, asked: Sequence[str], kept: Sequence[str]) -> list[SeriesAnswer]:
        """Several of these, so many at once as the settings allow."""
        with ThreadPoolExecutor(self._runner.concurrency, thread_name_prefix="skuwise-prometheus") as pool:
            return list(pool.map(lambda query: self.instant(query, kept), asked))

    def daily(self, ask: Ask) -> list[SeriesAnswer]:
        """Of something that hardly changes: as at the end of the window, and at every whole day before."""
        window = self.found.window
        self._note(ask)
        return [self.instant(ask.query, ask.kept, float(at)) for at in np.arange(window.end, window.start, -DAY)]

    def _note(self, ask: Ask) -> None:
        self.queries.setdefault(ask.name, []).append(ask.query)

    def _note_progress(self, _: str) -> None:
        self._number += 1
        self._steps(self._number, None)


@dataclass
class HostInfo:
    """Series of node_exporter and kube-state-metrics by the GPU node that they speak of."""

    asked: Questions
    gpu_nodes: Mapping[str, int]
    found: Discovery

    def __post_init__(self) -> None:
        chosen, names = queries.selector(self.asked.matches), self.found.names
        window = f"[{min(self.found.window.seconds, 3600):.0f}s]"
        self._nodes = NodeNames(self.gpu_nodes)
        named: Sequence[Labels] = ()
        if "node_uname_info" in names:
            kept = ("instance", "nodename")
            named = self.asked.instant(f"last_over_time(node_uname_info{chosen}{window})", kept).labels
        self._hosts = Hosts(self._nodes, named)
        self.dmi: dict[str, Labels] = {}
        if "node_dmi_info" in names:
            kept = (*NODE_LABELS, "system_vendor", "product_name", "chassis_asset_tag")
            for labels in self.asked.instant(f"last_over_time(node_dmi_info{chosen}{window})", kept).labels:
                node = self.node(labels)
                if node is not None:
                    self.dmi[node] = labels
        self.kube: dict[str, Labels] = {}
        if "kube_node_labels" in names:
            kept = ("exported_node", "node", *nodes.KUBE_LABELS)
            for labels in self.asked.instant(f"last_over_time(kube_node_labels{chosen}{window})", kept).labels:
                node = self._nodes.matched(labels.get("exported_node") or labels.get("node", ""))
                if node is not None:
                    self.kube[node] = labels

    def node(self, labels: Labels) -> str | None:
        """The GPU node that a series of node_exporter speaks of; None: a node without GPUs."""
        return self._hosts.node(labels)
