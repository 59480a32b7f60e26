"""Cards from a source of telemetry: one job by its name, of which only its own life is read, or all of a window.

Runs of jobs from node databases: found by what names them, with what only a look at their own rows tells.

A card is wanted at once, so each look is one indexed SELECT of the views, before any table is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...rules.base.errors import NothingToDo, SkuwiseError
from ..core.card_types import COURSE_SPANS, Card, Course
from ..core.frame import Frame, Window
from ..core.scalars import known, text
from ..core.verdict_types import Owner
from ..rulebook import Rulebook
from ..telemetry.source import Databases, PrometheusServer, Source
from ..telemetry.sqlite.database import span_of
from ..telemetry.sqlite.open import DatabaseReader, database_files, open_database
from .build import card_of, earlier_in, judge_window
from .measured import course_from
from .runs import Chosen, Run, joined, named_run

_COLUMNS = (
    "workload_id, series_id, name, scheduler, job_id, namespace, pod, user, account, first_seen, last_seen, "
    "array_job_id, array_task_id, team"
)
_NEAR = 500  # runs whose names are compared with one that nothing has
_EARLIER = 20  # runs of a series that a card is compared with
# Minutes are kept for some days; a longer life is shown by its hours.
_BY_MINUTES_SECONDS = 2 * 86400.0
_PREFIX_MIN = 4


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
    where = f"WHERE {' OR '.join(ways)} ORDER BY last_seen DESC LIMIT 5000"
    return _read(files, say, where, parameters)


def newest_runs(files: Sequence[Path], say: Callable[[str], None]) -> list[Run]:
    """The newest runs of each file, for suggestions."""
    return _read(files, say, f"ORDER BY last_seen DESC LIMIT {_NEAR}", {})


def _read(files: Sequence[Path], say: Callable[[str], None], where: str, parameters: Mapping[str, object]) -> list[Run]:
    found: list[Run] = []
    problem: SkuwiseError | None = None
    read = 0
    for path in files:
        try:
            with open_database(path) as reader:
                found += _runs_of(reader, path, where, parameters)
                read += 1
        except SkuwiseError as error:
            problem = problem or error
            say(f"Ignored: {error}")
    if problem is not None and not read:
        raise problem
    return joined(found)


def _runs_of(reader: DatabaseReader, path: Path, where: str, parameters: Mapping[str, object]) -> list[Run]:
    sql = f"SELECT {_COLUMNS} FROM workloads {where}"  # noqa: S608 - constants of this file
    rows = reader.fetch(sql, parameters)
    if not rows:
        return []
    nodes = {str(node): (cluster, seen) for node, cluster, seen in reader.fetch(
        "SELECT node, cluster, last_seen FROM nodes", {}
    )}  # fmt: skip
    held: dict[str, set[str]] = {}
    ids = {f"i{n}": row[0] for n, row in enumerate(rows[:500])}
    marks = ", ".join(f":{name}" for name in ids)
    held_sql = f"SELECT DISTINCT workload_id, node FROM workload_gpus WHERE workload_id IN ({marks})"  # noqa: S608
    for workload, node in reader.fetch(held_sql, ids):
        held.setdefault(str(workload), set()).add(str(node))
    found = []
    for row in rows:
        run_nodes = tuple(sorted(held.get(str(row[0]), set())))
        of = [nodes[one] for one in (run_nodes or nodes) if one in nodes]
        cluster = next((str(name) for name, _ in of if name), None)
        seen = max((float(seen) for _, seen in of if isinstance(seen, int | float)), default=0.0)
        run = _run(row, cluster, seen, run_nodes, path)
        if run is not None:
            found.append(run)
    return found


def _run(row: Sequence[Any], cluster: str | None, seen: float, nodes: tuple[str, ...], path: Path) -> Run | None:
    (id_, series, name, scheduler, job, namespace, pod, user, account, first, last, array, task, team) = row
    if not isinstance(first, int | float) or not isinstance(last, int | float):
        return None
    return Run(
        str(id_), str(series), str(name or ""), float(first), max(float(first), float(last)), str(scheduler or ""),
        _text(job), f"{array}_{task}" if array and task else None, _text(array), cluster, _text(namespace), _text(pod),
        Owner(_text(team), _text(user), _text(account), _text(namespace)), nodes, seen, (str(path),),
    )  # fmt: skip


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def fine_course(run: Run) -> tuple[list[float | None], list[float | None]] | None:
    """SM and tensor activity of a run in `COURSE_SPANS` equal spans, by its minutes; None: there are none, or its life
    is too long for them."""
    life = run.end - run.start
    if not 0 < life <= _BY_MINUTES_SECONDS:
        return None
    sums: list[list[float]] = [[0.0, 0.0, 0.0, 0.0] for _ in range(COURSE_SPANS)]
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
            for row in reader.fetch(sql, parameters):
                span = row[0]
                if isinstance(span, int) and 0 <= span < COURSE_SPANS:
                    for at, value in enumerate(row[1:]):
                        sums[span][at] += float(value) if isinstance(value, int | float) else 0.0
    if not any(one[1] for one in sums):
        return None
    sm = [one[0] / one[1] if one[1] else None for one in sums]
    tensor = [one[2] / one[3] if one[3] else None for one in sums]
    return sm, tensor


def earlier_runs(run: Run, files: Sequence[Path]) -> list[tuple[float, float | None]]:
    """GPU-hours held and mean SM activity of the newest runs of the same series that began before this one."""
    found: dict[str, list[float]] = {}
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
    for path in files:
        with open_database(path) as reader:
            for row in reader.fetch(sql, parameters):
                sums = found.setdefault(str(row[0]), [0.0, 0.0, 0.0])
                for at, value in enumerate(row[1:]):
                    sums[at] += float(value) if isinstance(value, int | float) else 0.0
    return [(hours, busy / seconds if seconds else None) for hours, busy, seconds in found.values() if hours > 0]


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
