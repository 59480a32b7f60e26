"""Asking one server for all that a frame is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from ....rules.base.progress import Steps
from ...core.coded_text import coded
from .client.client import RefusedError
from .client.range_planner import DAY, Ask, Runner
from .client.response import Grid, Labels, SeriesAnswer
from .discovery import Discovery
from .owners.kube import BACK
from .promql.labels import agent_node
from .promql.promql import selector

_SERIES = re.compile(r"\b(?:kube|node|skuwise|DCGM)_\w+")
_SAMPLES = 128  # of a series over the window: every three hours of two weeks
_ABOUT_NODES = frozenset({"nodes", "node GPUs", "ports"})


class Questions:
    """Asks for measures, and keeps the answers that describe nodes.

    `given`: answers of the agents about nodes; `queries`: by measure what was asked of each exporter; `exporters`:
    labels of dcgm-exporter's series."""

    def __init__(
        self, runner: Runner, found: Discovery, matches: tuple[str, ...], steps: Steps, *,
        shaped: Callable[[Ask], Ask | None] = lambda ask: ask,
    ) -> None:  # fmt: skip
        """`shaped`: what an ask becomes before it is asked; None: it is left out."""
        self._runner, self.found, self.matches, self._steps, self._shaped = runner, found, matches, steps, shaped
        self.given: dict[str, SeriesAnswer] = {}
        self.queries: dict[str, list[str]] = {}
        self.exporters: Sequence[Labels] = ()
        self.grid = Grid(found.window.start + found.step, found.window.end, found.step)
        self._number = 0

    def ask(self, asks: Sequence[Ask], series: int) -> dict[str, SeriesAnswer]:
        """Measures over the window. `series`: how many are expected of each."""
        shaped = [ask for one in asks if (ask := self._shaped(one)) is not None]
        answers: dict[str, SeriesAnswer] = {}
        runner = replace(self._runner, progress=self._note_progress)
        for ask, answer in runner.matrices(shaped, self.found.window, self.found.step, series):
            answers[ask.name] = answer
            self._note(ask)
        self.given |= {name: answer for name, answer in answers.items() if name in _ABOUT_NODES}
        return answers

    @property
    def agents(self) -> dict[str, Labels]:
        """Nodes with an agent, and what its page says of them."""
        answer = self.given.get("nodes")
        return {node: labels for labels in (answer.labels if answer else ()) if (node := agent_node(labels))}

    def info(self, name: str, kept: Sequence[str], *own: str) -> SeriesAnswer:
        """Labels of an info series over the whole window, and in which rows each set of them was there."""
        if name not in self.found.names:
            return SeriesAnswer.nothing(self.grid.count)
        query = f"max by ({', '.join(kept)}) (last_over_time({name}{selector(self.matches, *own)}[{BACK}]))"
        return self.ask([Ask(name, query, tuple(kept))], self.found.series).get(
            name, SeriesAnswer.nothing(self.grid.count)
        )

    def over_window(self, expression: str, kept: Sequence[str]) -> SeriesAnswer:
        """The newest value of each series in the window, by few samples: for what hardly changes."""
        seconds = self.found.window.seconds
        step = max(self.found.step, seconds / _SAMPLES)
        return self.instant(f"last_over_time({expression}[{seconds:.0f}s:{step:.0f}s])", kept)

    def instant(self, query: str, kept: Sequence[str], at: float | None = None) -> SeriesAnswer:
        """As at a moment, by default the window's end; nothing where the server refuses."""
        try:
            return self._runner.client.instant(query, self.found.window.end if at is None else at, kept)
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
        """As at the end of the window, and at every whole day before: for what hardly changes."""
        window = self.found.window
        self._note(ask)
        return [self.instant(ask.query, ask.kept, float(at)) for at in np.arange(window.end, window.start, -DAY)]

    def _note(self, ask: Ask) -> None:
        self.queries.setdefault(ask.name, []).append(ask.query)

    def _note_progress(self, _: str) -> None:
        self._number += 1
        self._steps(self._number, None)
