"""Cards from a source of telemetry: one job by its name, of which only its own life is read, or all of a window.

Runs of jobs from node databases: found by what names them, with what only a look at their own rows tells.

A card is wanted at once, so each look is one indexed SELECT of the views, before any table is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...rules.base.errors import NothingToDo, SkuwiseError
from ..core.card_types import COURSE_SPANS, Card, Course
from ..core.frame import Frame, Window
from ..core.scalars import known, records, text
from ..core.verdict_types import WorkloadVerdict
from ..rulebook import Rulebook
from ..telemetry.source import Databases, PrometheusServer, Source
from ..telemetry.sqlite.database import DatabaseReader, database_files, open_database, span_of
from .build import card_of, earlier_in, judge_window
from .measured import course_from
from .runs import Run, joined, named_run, run_of

_COLUMNS: tuple[str, ...] = (
    "workload_id", "series_id", "name", "scheduler", "job_id", "namespace", "pod", "user", "account", "first_seen",
    "last_seen", "array_job_id", "array_task_id", "team",
)  # fmt: skip
_NEAR = 500  # runs whose names are compared with one that nothing has
_EARLIER = 20  # runs of a series that a card is compared with
# Minutes are kept for some days; a longer life is shown by its hours.
_BY_MINUTES_SECONDS = 2 * 86400.0
_PREFIX_MIN = 4
_HOUR = 3600.0
# Earlier runs of a series are looked up in so many files; of a larger fleet on the nodes of the job alone.
_FILES_SEARCHED = 32
# One seed for all runs: the same data give the same intervals.
_SEED = 20
Earlier = Sequence[tuple[float, float | None]]  # GPU-hours and SM activity of earlier runs


def find_runs(files: Sequence[Path], asked: str, say: Callable[[str], None]) -> list[Run]:
    """The runs that `asked` may name in any of its ways. A file that cannot be read is said and left out; raises
    SkuwiseError where none can be."""
    word = asked.strip().encode("utf-8", "backslashreplace").decode()
    bare = word.rpartition("/")[2].partition("@")[0] or word
    array, _, task = bare.partition("_")
    begin = word if word.startswith("w-") else f"w-{word}"
    space, _, pod = word.partition("/")
    parameters = {
        "word": word, "bare": bare, "array": array, "task": task, "begin": begin, "after": f"{begin}\uffff",
        "space": space, "pod": pod, "name": word.rpartition("@")[0] or word,
    }  # fmt: skip
    ways = [
        "workload_id = :word", "job_id = :bare", "name IN (:word, :name)", "pod = :word",
        "(namespace = :space AND pod = :pod)", "array_job_id = :bare",
        "(array_job_id = :array AND array_task_id = :task)",
    ]  # fmt: skip
    if len(word) >= _PREFIX_MIN:
        ways.append("(workload_id >= :begin AND workload_id < :after)")
    return _read(files, say, f"WHERE {' OR '.join(ways)} ORDER BY last_seen DESC LIMIT 5000", parameters)


def _read(files: Sequence[Path], say: Callable[[str], None], where: str, parameters: Mapping[str, object]) -> list[Run]:
    found: list[Run] = []
    problems: list[SkuwiseError] = []
    for path in files:
        try:
            with open_database(path) as reader:
                sql = f"SELECT {', '.join(_COLUMNS)} FROM workloads {where}"  # noqa: S608 - constants of this file
                rows = [dict(zip(_COLUMNS, row, strict=True)) for row in reader.fetch(sql, parameters)]
                found += _runs_of(reader, path, rows) if rows else []
        except SkuwiseError as error:
            problems.append(error)
            say(f"Ignored: {error}")
    if problems and len(problems) == len(files):
        raise problems[0]
    return joined(found)


def _runs_of(reader: DatabaseReader, path: Path, rows: Sequence[Mapping[str, Any]]) -> list[Run]:
    seen: dict[str, float] = {}
    clusters: dict[str, str | None] = {}
    for node, cluster, newest in cast("list[Any]", reader.fetch("SELECT node, cluster, last_seen FROM nodes", {})):
        seen[node], clusters[node] = newest or 0.0, text(cluster)
    ids = {f"i{n}": row["workload_id"] for n, row in enumerate(rows[:500])}
    marks = ", ".join(f":{name}" for name in ids)
    held: dict[str, list[str]] = {}
    sql = f"SELECT DISTINCT workload_id, node FROM workload_gpus WHERE workload_id IN ({marks})"  # noqa: S608
    for workload, node in cast("list[Any]", reader.fetch(sql, ids)):
        held.setdefault(workload, []).append(node)
    found = []
    for row in rows:
        nodes = held.get(row["workload_id"], [])
        of = [node for node in nodes or seen if node in seen]
        cluster = next((clusters[node] for node in of if clusters[node]), None)
        newest = max((seen[node] for node in of), default=0.0)
        found.append(run_of(row, cluster, nodes, newest, (str(path),)))
    return [run for run in found if run is not None]


def fine_course(run: Run) -> tuple[list[float | None], list[float | None]] | None:
    """SM and tensor activity of a run in `COURSE_SPANS` equal spans, by its minutes; None: there are none, or its life
    is too long for them."""
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
    if not sums[:, 1].any():
        return None
    sm, tensor = ([total / count if count else None for total, count in sums[:, at : at + 2].tolist()] for at in (0, 2))
    return sm, tensor


def earlier_runs(run: Run, files: Sequence[Path]) -> list[tuple[float, float | None]]:
    """GPU-hours held and mean SM activity of the newest runs of the same series that began before this one."""
    runs_sql = (
        "SELECT workload_id FROM workloads WHERE series_id = :series AND workload_id <> :id"  # noqa: S608 - constants
        " AND first_seen < :start"
        f" ORDER BY first_seen DESC LIMIT {_EARLIER}"
    )
    # A GPU's hours that it held whole or in part: each by how much of it was held.
    sql = (
        "SELECT u.workload_id, sum(u.ts_end - u.ts_start) / 3600.0,"  # noqa: S608 - the statement above
        " sum((SELECT sum(h.sm_active_mean * (min(h.ts, u.ts_end) - max(h.ts - 3600.0, u.ts_start))) FROM gpu_hours h"
        " WHERE h.gpu_uuid = u.gpu_uuid AND h.node = u.node AND h.sm_active_mean IS NOT NULL AND h.ts > u.ts_start"
        " AND h.ts < u.ts_end + 3600.0)),"
        " sum((SELECT sum(min(h.ts, u.ts_end) - max(h.ts - 3600.0, u.ts_start)) FROM gpu_hours h"
        " WHERE h.gpu_uuid = u.gpu_uuid AND h.node = u.node AND h.sm_active_mean IS NOT NULL AND h.ts > u.ts_start"
        " AND h.ts < u.ts_end + 3600.0))"
        f" FROM workload_gpus u WHERE u.workload_id IN ({runs_sql}) GROUP BY u.workload_id"
    )
    parameters = {"series": run.series_id, "id": run.id, "start": run.start}
    found: dict[str, np.ndarray] = {}
    for path in files:
        with open_database(path) as reader:
            for workload, *values in cast("list[Any]", reader.fetch(sql, parameters)):
                found[workload] = found.get(workload, 0.0) + np.array([value or 0.0 for value in values])
    sums = [one.tolist() for one in found.values()]
    return [(hours, busy / seconds if seconds else None) for hours, busy, seconds in sums if hours > 0]


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
        lives = {row["workload_id"]: (row["first_seen"], row["last_seen"]) for row in records(frame.workloads)}
        cards = []
        for w in window.workloads:
            newest = max((seen[node] for node in w.nodes if node in seen), default=None)
            life = _life(w, lives.get(w.id, (w.start, w.end)), frame.window)
            cards.append(card_of(window, w, seen_until=newest, life=life, earlier=earlier_in(window, w)))
        return tuple(filter(wanted, cards))

    def _from_databases(self, source: Databases, asked: str) -> tuple[Card, tuple[Run, ...]]:
        files = database_files(source.paths)

        def newest() -> list[Run]:
            return _read(files, self.say, f"ORDER BY last_seen DESC LIMIT {_NEAR}", {})

        run, others = named_run(asked, find_runs(files, asked, self.say), self.command, newest)
        places = [Path(place) for place in run.places]
        earlier = earlier_runs(run, files if len(files) <= _FILES_SEARCHED else places)
        drawn = fine_course(run)
        course = course_from(run.start, run.end, *drawn) if drawn is not None else None
        begins = []
        for path in places:
            with open_database(path) as reader:
                begins.append(span_of(reader))
        span = life_window(run, self.now, min((one[0] for one in begins if one is not None), default=None))
        own = replace(source, paths=tuple(places))
        frame = own.read(self.book.catalog, since=span.seconds, until=span.end, now=self.now)
        return self._of(frame, run, earlier, course), others

    def _from_server(self, source: PrometheusServer, asked: str) -> tuple[Card, tuple[Run, ...]]:
        """Found in the window that was asked for; judged by its own life, at the resolution that this has."""
        frame = source.read(self.book.catalog, since=self.since, until=self.until, now=self.now)
        run, others = named_run(asked, runs_in(frame), self.command)
        span = life_window(run, self.now)
        begin = max(span.start, frame.window.start)
        if span.end - begin >= frame.window.seconds / 2:
            return self._of(frame, run, None, None), others
        own = source.read(self.book.catalog, since=span.end - begin, until=span.end, now=self.now)
        window = judge_window(frame, self.book, self.now, seed=_SEED, with_moves=False)
        whole = window.workload(run.id)
        earlier = earlier_in(window, whole) if whole is not None else None
        return self._of(own, run, earlier, None), others

    def _of(self, frame: Frame, run: Run, earlier: Earlier | None, course: Course | None) -> Card:
        window = judge_window(frame, self.book, self.now, seed=_SEED)
        w = window.workload(run.id, run.shown_job, run.start)
        if w is None:
            raise NothingToDo(
                f"No GPU data of {run.name or run.id}: nothing was observed while it ran.",
                "Check that the agent ran on its nodes.",
            )
        life = _life(w, (run.start, run.end), frame.window)
        earlier = earlier_in(window, w) if earlier is None else earlier
        return card_of(window, w, seen_until=run.seen_until or None, life=life, earlier=earlier, course=course)


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
    seen = _seen_until(frame)
    clusters = {row["node"]: text(row["cluster"]) for row in records(frame.nodes)}
    held = {key: sorted(set(part["node"])) for key, part in frame.uses.groupby("workload_id", sort=False)}
    found = []
    for row in records(frame.workloads):
        nodes = held.get(row["workload_id"], [])
        newest = max((seen[n] for n in nodes if n in seen), default=frame.window.end)
        cluster = next((clusters[n] for n in nodes if clusters.get(n)), None)
        found.append(run_of(row, cluster, nodes, newest))
    return [run for run in found if run is not None]


def _seen_until(frame: Frame) -> dict[str, float]:
    """The newest data of each node."""
    ends = {row["node"]: known(row["last_seen"]) for row in records(frame.nodes)}
    return {node: min(end, frame.window.end) for node, end in ends.items() if end is not None}


def _life(w: WorkloadVerdict, told: tuple[float, float], window: Window) -> tuple[float, float]:
    """Where a workload began and ended: as it was told, where the verdict is cut by its window."""
    first = told[0] if told[0] < w.start <= window.start + _HOUR else w.start
    return first, max(first, w.end)
