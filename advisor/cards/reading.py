"""Cards from a source of telemetry: of one job, of which only its own life is read, or of all jobs of a window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from ...rules.base.errors import NothingToDo, SkuwiseError
from ..core.advice_types import Fleet
from ..core.card_types import COURSE_SPANS, Card, Course
from ..core.fleet_identity import fleet_of
from ..core.frame import Frame, Window
from ..rulebook import Rulebook
from ..telemetry.source import Databases, PrometheusServer, Source
from ..telemetry.sqlite.database import database_files, open_database
from ..telemetry.sqlite.reader import file_spans
from .build import Earlier, card_of, course_level, earlier_in, judge_window
from .runs import Run, find_runs, named_run, newest_data, runs_in

_EARLIER = 20  # runs of a series that a card is compared with
# Minutes are kept for some days; a longer life is shown by its hours.
_BY_MINUTES_SECONDS = 2 * 86400.0
_HOUR = 3600.0
# Earlier runs of a series are looked up in so many files; of a larger fleet on the nodes of the job alone.
_FILES_SEARCHED = 32


@dataclass(frozen=True, slots=True)
class CardsRead:
    """`cards`: of what was asked for; `fleet`: whose telemetry was read; `others`: other runs of the one job that was
    asked for, newest first."""

    cards: tuple[Card, ...]
    fleet: Fleet
    others: tuple[Run, ...] = ()


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

    def card(self, asked: str) -> CardsRead:
        """The card of the job that `asked` names. Raises NothingToDo where there is none, AmbiguousError for
        several."""
        if isinstance(self.source, Databases):
            return self._from_databases(self.source, asked)
        return self._from_server(self.source, asked)

    def cards(self, wanted: Callable[[Card], bool]) -> CardsRead:
        """The cards of all workloads of the window that are `wanted`."""
        frame = self._frame(self.source, self.since, self.until)
        window = judge_window(frame, self.book, self.now)
        newest, begun = newest_data(frame), {run.id: run.start for run in runs_in(frame)}
        cards = []
        for w in window.workloads:
            seen = max((newest[node] for node in w.nodes if node in newest), default=None)
            cards.append(card_of(window, w, seen_until=seen, begun=begun.get(w.id)))
        return CardsRead(tuple(filter(wanted, cards)), fleet_of(frame))

    def _from_databases(self, source: Databases, asked: str) -> CardsRead:
        files = database_files(source.paths)
        runs = find_runs(files, asked, self.say)
        run, others = named_run(asked, runs, self.command, lambda: find_runs(files, None, self.say))
        places = tuple(Path(place) for place in run.places)
        earlier = earlier_runs(run, files if len(files) <= _FILES_SEARCHED else places)
        spans, _, _ = file_spans(places)
        span = life_window(run, self.now, min((start for start, _ in spans.values()), default=None))
        frame = self._frame(replace(source, paths=places), span.seconds, span.end)
        card = self._card(frame, run, earlier, fine_course(run))
        return CardsRead((card,), _whole_fleet(frame, files), others)

    def _from_server(self, source: PrometheusServer, asked: str) -> CardsRead:
        """Found in the window that was asked for; judged by its own life, at the resolution that this has."""
        frame = self._frame(source, self.since, self.until)
        run, others = named_run(asked, runs_in(frame), self.command)
        span, earlier, life = life_window(run, self.now), None, frame
        begin = max(span.start, frame.window.start)
        if span.end - begin < frame.window.seconds / 2:
            window = judge_window(frame, self.book, self.now, with_moves=False)
            whole = window.workload(run)
            earlier = earlier_in(window, whole) if whole is not None else None
            life = self._frame(source, span.end - begin, span.end)
        return CardsRead((self._card(life, run, earlier),), fleet_of(frame), others)

    def _frame(self, source: Source, since: float, until: float | None) -> Frame:
        return source.read(self.book.catalog, since=since, until=until, now=self.now)

    def _card(self, frame: Frame, run: Run, earlier: Earlier | None, course: Course | None = None) -> Card:
        window = judge_window(frame, self.book, self.now)
        w = window.workload(run)
        if w is None:
            raise NothingToDo(
                f"No GPU data of {run.name or run.id}: nothing was observed while it ran.",
                "Check that the agent ran on its nodes.",
            )
        seen = run.seen_until or None
        return card_of(window, w, seen_until=seen, begun=run.start, earlier=earlier, course=course)


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


def fine_course(run: Run) -> Course | None:
    """SM and tensor activity of a run by its minutes; None: none of its beginning, or its life is too long for them."""
    life = run.end - run.start
    if not 0 < life <= _BY_MINUTES_SECONDS:
        return None
    sums = np.zeros((COURSE_SPANS, 4))
    sql = (
        "SELECT min(CAST((m.ts - :start) * :spans / :life AS INTEGER), :spans - 1) AS span,"
        " sum(m.sm_active_mean), count(m.sm_active_mean), sum(m.tensor_active_mean), count(m.tensor_active_mean)"
        " FROM gpu_minutes m JOIN (SELECT node, gpu_uuid, min(ts_start) AS a, max(ts_end) AS b FROM workload_gpus"
        " WHERE workload_id = :id GROUP BY node, gpu_uuid) u ON u.gpu_uuid = m.gpu_uuid AND u.node = m.node"
        " WHERE m.ts > :start AND m.ts <= :end + 59.0 AND m.ts > u.a AND m.ts <= u.b + 59.0 GROUP BY span"
    )
    parameters = {"start": run.start, "end": run.end, "life": life, "spans": COURSE_SPANS, "id": run.id}
    for place in run.places:
        with open_database(Path(place)) as reader:
            for span, *values in cast("list[Any]", reader.fetch(sql, parameters)):
                sums[span] += [value or 0.0 for value in values]
    if not sums[:2, 1].any():  # minutes of its beginning are gone: hours are kept for longer
        return None
    sm, tensor = (tuple(map(course_level, sums[:, at], sums[:, at + 1])) for at in (0, 2))
    return Course(run.start, life / COURSE_SPANS, sm, tensor)


def earlier_runs(run: Run, files: Sequence[Path]) -> Earlier:
    """The newest runs of the same series that began before this one, from node databases."""
    runs = (
        "SELECT workload_id FROM workloads WHERE series_id = :series AND workload_id <> :id AND first_seen < :start"  # noqa: S608 - constants
        f" ORDER BY first_seen DESC LIMIT {_EARLIER}"
    )
    # A GPU's hours that it held whole or in part: each by how much of it was held.
    during = (
        "(SELECT sum({} * (min(h.ts, u.ts_end) - max(h.ts - 3600.0, u.ts_start))) FROM gpu_hours h"
        " WHERE h.gpu_uuid = u.gpu_uuid AND h.node = u.node AND h.sm_active_mean IS NOT NULL AND h.ts > u.ts_start"
        " AND h.ts < u.ts_end + 3600.0)"
    )
    sql = (
        "SELECT u.workload_id, sum(u.ts_end - u.ts_start) / 3600.0,"  # noqa: S608 - the statements above
        f" sum({during.format('h.sm_active_mean')}), sum({during.format('1.0')})"
        f" FROM workload_gpus u WHERE u.workload_id IN ({runs}) GROUP BY u.workload_id"
    )
    by_run: dict[str, np.ndarray] = {}
    for path in files:
        with suppress(SkuwiseError), open_database(path) as reader:
            rows = reader.fetch(sql, {"series": run.series_id, "id": run.id, "start": run.start})
            for workload, *values in cast("list[Any]", rows):
                by_run[workload] = by_run.get(workload, 0.0) + np.array([value or 0.0 for value in values])
    sums = [values.tolist() for values in by_run.values()]
    return [(hours, busy / seconds if seconds else None) for hours, busy, seconds in sums if hours > 0]


def _whole_fleet(frame: Frame, files: Sequence[Path]) -> Fleet:
    """The fleet of all databases: that of one job's nodes alone would begin another state file."""
    nodes: list[tuple[object, ...]] = []
    gpus: list[tuple[object, ...]] = []
    for path in files:
        with suppress(SkuwiseError), open_database(path) as reader:
            nodes += reader.fetch("SELECT node, cluster, machine_id FROM nodes")
            gpus += reader.fetch("SELECT gpu_uuid, parent_uuid, node, gpu_index FROM gpus")
    whole = replace(
        frame,
        source={**frame.source, "databases": files},
        nodes=pd.DataFrame(nodes, columns=["node", "cluster", "machine_id"]),
        gpus=pd.DataFrame(gpus, columns=["gpu_uuid", "parent_uuid", "node", "gpu_index"]),
    )
    return fleet_of(whole)
