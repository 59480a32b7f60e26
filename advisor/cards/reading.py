"""Cards from a source of telemetry: one job by its name, of which only its own life is read, or all of a window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...rules.base.errors import NothingToDo
from ..core.card_types import Card, Course
from ..core.frame import Frame, Window
from ..core.scalars import known, text
from ..core.verdict_types import Owner
from ..rulebook import Rulebook
from ..telemetry.source import Databases, PrometheusServer, Source
from ..telemetry.sqlite.database import span_of
from ..telemetry.sqlite.open import database_files, open_database
from .build import card_of, earlier_in, judge_window
from .database_runs import earlier_runs, find_runs, fine_course, newest_runs
from .measured import course_from
from .runs import Chosen, Run, named_run

_HOUR = 3600.0
# Earlier runs of a series are looked up in so many files; of a larger fleet on the nodes of the job alone.
_FILES_SEARCHED = 32
# One seed for all runs: the same data give the same intervals.
_SEED = 20


@dataclass(frozen=True)
class CardReading:
    """What reads cards. `now`: Unix seconds. `command`: gives the command line for another id."""

    source: Source
    book: Rulebook
    now: float
    since: float
    until: float | None
    say: Callable[[str], None]
    command: Callable[[str], str]

    def card(self, asked: str) -> tuple[Card, tuple[Run, ...]]:
        """The card of the job that `asked` names, and its earlier runs where it was requeued. Raises NothingToDo where
        there is none, AmbiguousError for several."""
        if isinstance(self.source, Databases):
            return self._from_databases(self.source, asked)
        return self._from_server(self.source, asked)

    def cards(self, wanted: Callable[[Card], bool]) -> tuple[Card, ...]:
        """The cards of all workloads of the window that are `wanted`."""
        frame = self.source.read(self.book.catalog, since=self.since, until=self.until, now=self.now)
        window = judge_window(frame, self.book, self.now, seed=_SEED)
        seen = _seen_until(frame)
        lives = _lives(frame)
        found = []
        for w in window.workloads:
            newest = max((seen[node] for node in w.nodes if node in seen), default=None)
            card = card_of(
                window, w, seen_until=newest, life=_life(w.start, w.end, lives.get(w.id), frame.window),
                earlier=earlier_in(window, w),
            )  # fmt: skip
            if wanted(card):
                found.append(card)
        return tuple(found)

    def _from_databases(self, source: Databases, asked: str) -> tuple[Card, tuple[Run, ...]]:
        files = database_files(source.paths)
        chosen = named_run(
            asked, find_runs(files, asked, self.say), self.command,
            lambda: newest_runs(files, self.say),
        )  # fmt: skip
        run = chosen.run
        searched = files if len(files) <= _FILES_SEARCHED else [Path(place) for place in run.places]
        earlier = earlier_runs(run, searched)
        drawn = fine_course(run)
        course = course_from(run.start, run.end, *drawn) if drawn is not None else None
        places = [Path(place) for place in run.places]
        span = life_window(run, self.now, self._begin(places))
        own = replace(source, paths=tuple(places))
        frame = own.read(self.book.catalog, since=span.seconds, until=span.end, now=self.now)
        return self._of(frame, chosen, earlier, course), chosen.others

    def _begin(self, places: Sequence[Path]) -> float | None:
        """Where the data of these files begin, Unix seconds; None: there are none."""
        begins = []
        for path in places:
            with open_database(path) as reader:
                span = span_of(reader)
            begins += [span[0]] if span is not None else []
        return min(begins, default=None)

    def _from_server(self, source: PrometheusServer, asked: str) -> tuple[Card, tuple[Run, ...]]:
        """Found in the window that was asked for; judged by its own life, at the resolution that this has."""
        frame = source.read(self.book.catalog, since=self.since, until=self.until, now=self.now)
        every = runs_in(frame)
        chosen = named_run(asked, every, self.command)
        span = life_window(chosen.run, self.now)
        begin = max(span.start, frame.window.start)
        if span.end - begin < frame.window.seconds / 2:
            own = source.read(self.book.catalog, since=span.end - begin, until=span.end, now=self.now)
        else:
            own = frame
        window = judge_window(frame, self.book, self.now, seed=_SEED, with_moves=False) if own is not frame else None
        whole = window.workload([chosen.run.id]) if window is not None else None
        earlier = earlier_in(window, whole) if window is not None and whole is not None else None
        return self._of(own, chosen, earlier, None), chosen.others

    def _of(
        self, frame: Frame, chosen: Chosen, earlier: Sequence[tuple[float, float | None]] | None, course: Course | None
    ) -> Card:
        run = chosen.run
        window = judge_window(frame, self.book, self.now, seed=_SEED)
        w = window.workload([run.id], run.shown_job, run.start)
        if w is None:
            raise NothingToDo(
                f"No GPU data of {run.name or run.id}: nothing was observed while it ran.",
                "Check that the agent ran on its nodes.",
            )
        if earlier is None:
            earlier = earlier_in(window, w)
        seen = run.seen_until or None
        life = _life(w.start, w.end, (run.start, run.end), frame.window)
        return card_of(window, w, seen_until=seen, life=life, earlier=earlier, course=course)


def life_window(run: Run, now: float, begin: float | None = None) -> Window:
    """The window of a run's life, in whole hours, as the past is kept; up to the newest data where it runs on, and from
    where data `begin`: what lies before that is unknown, and not unobserved.

    A clock that ran ahead moves no window: what is later than `now` by more than an hour is cut.
    """
    end = min(run.end, max(now + _HOUR, run.start + 60.0))
    newest = math.ceil(min(max(run.seen_until, end), max(now + _HOUR, end)) / 60.0) * 60.0
    whole = math.ceil(end / _HOUR) * _HOUR
    stop = max(min(whole, newest), math.ceil(end / 60.0) * 60.0)
    first = run.start if begin is None else max(run.start, min(begin, stop - _HOUR))
    return Window(math.floor(first / _HOUR) * _HOUR, stop)


def runs_in(frame: Frame) -> list[Run]:
    """The runs of a frame, as they are listed before one is chosen."""
    if frame.workloads.empty:
        return []
    seen = _seen_until(frame)
    clusters = {str(row["node"]): text(row.get("cluster")) for row in frame.nodes.to_dict("records")}
    held: dict[str, tuple[str, ...]] = {
        str(key): tuple(sorted({str(node) for node in part["node"]}))
        for key, part in frame.uses.groupby("workload_id", sort=False)
    }
    found = []
    for row in frame.workloads.to_dict("records"):
        id_ = str(row["workload_id"])
        nodes = held.get(id_, ())
        start, end = known(row.get("first_seen")), known(row.get("last_seen"))
        if start is None or end is None:
            continue
        array, task = text(row.get("array_job_id")), text(row.get("array_task_id"))
        owner = Owner(
            text(row.get("team")), text(row.get("user")), text(row.get("account")), text(row.get("namespace"))
        )
        newest = max((seen[n] for n in nodes if n in seen), default=frame.window.end)
        cluster = next((clusters[n] for n in nodes if clusters.get(n)), None)
        number = f"{array}_{task}" if array and task else None
        found.append(
            Run(
                id_, str(row["series_id"]), text(row.get("name")) or "", start, max(start, end),
                text(row.get("scheduler")) or "", text(row.get("job_id")), number,
                array, cluster, owner.namespace,
                text(row.get("pod")), owner, nodes, newest,
            )
        )  # fmt: skip
    return found


def _seen_until(frame: Frame) -> dict[str, float]:
    ends = {str(row["node"]): known(row.get("last_seen")) for row in frame.nodes.to_dict("records")}
    return {node: min(end, frame.window.end) for node, end in ends.items() if end is not None}


def _lives(frame: Frame) -> dict[str, tuple[float, float]]:
    found = {}
    for row in frame.workloads.to_dict("records"):
        start, end = known(row.get("first_seen")), known(row.get("last_seen"))
        if start is not None and end is not None:
            found[str(row["workload_id"])] = (start, end)
    return found


def _life(start: float, end: float, told: tuple[float, float] | None, window: Window) -> tuple[float, float]:
    """Where a workload began and ended: as it was told, where the verdict is cut by its window."""
    if told is None:
        return start, end
    first = told[0] if told[0] < start <= window.start + _HOUR else start
    return first, max(first, end)
