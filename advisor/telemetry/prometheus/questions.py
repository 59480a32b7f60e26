"""Asking one server for all that a frame is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.coded_text import coded
from .client.client import RefusedError
from .client.range_planner import DAY, Ask, Runner
from .client.response import Grid, Labels, SeriesAnswer
from .discovery import Discovery
from .owners.kube import BACK
from .promql.labels import agent_node
from .promql.promql import of_gpus, selector

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
    found: Discovery
    matches: tuple[str, ...]
    shaped: Callable[[Ask], Ask | None] = lambda ask: ask
    wanted: Collection[str] = ()
    given: dict[str, SeriesAnswer] = field(default_factory=dict)
    queries: dict[str, list[str]] = field(default_factory=dict)
    exporters: Sequence[Labels] = ()

    @property
    def grid(self) -> Grid:
        return Grid(self.found.window.start + self.found.step, self.found.window.end, self.found.step)

    def of_wanted(self, label: str) -> tuple[str, ...]:
        """The matchers of series of the wanted GPUs. `label`: names the GPU."""
        return (*self.matches, *of_gpus(self.wanted, label))

    def ask(self, asks: Sequence[Ask], series: int) -> dict[str, SeriesAnswer]:
        """Measures over the window. `series`: how many are expected of each."""
        shaped = [ask for one in asks if (ask := self.shaped(one)) is not None]
        answers: dict[str, SeriesAnswer] = {}
        for ask, answer in self.runner.matrices(shaped, self.found.window, self.found.step, series):
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
        if name not in self.found.names:
            return SeriesAnswer.nothing(self.grid.count)
        query = f"max by ({', '.join(kept)}) (last_over_time({name}{selector(self.matches)}[{BACK}]))"
        return self.ask([Ask(name, query, tuple(kept))], self.found.series)[name]

    def over_window(self, expression: str, kept: Sequence[str]) -> SeriesAnswer:
        """The newest value of each series in the window, by few samples: for what hardly changes."""
        seconds = self.found.window.seconds
        step = max(self.found.step, seconds / _SAMPLES)
        return self.instant(f"last_over_time({expression}[{seconds:.0f}s:{step:.0f}s])", kept)

    def instant(self, query: str, kept: Sequence[str], at: float | None = None) -> SeriesAnswer:
        """As at a moment, by default the window's end; nothing where the server refuses."""
        try:
            return self.runner.client.instant(query, self.found.window.end if at is None else at, kept)
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
        window = self.found.window
        self.queries.setdefault(ask.name, []).append(ask.query)
        days = [self.instant(ask.query, ask.kept, float(at)) for at in np.arange(window.end, window.start, -DAY)]
        return SeriesAnswer(tuple(one for day in days for one in day.labels), np.vstack([day.values for day in days]))
