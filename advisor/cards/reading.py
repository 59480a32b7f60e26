"""Cards from a source of telemetry: of one job, of which only its own life is read, or of all jobs of a window."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...rules.base.errors import NothingToDo, SkuwiseError
from ..classify.judge import judge
from ..core.advice_types import Fleet
from ..core.card_types import Card, Course
from ..core.fleet_identity import fleet_of
from ..core.frame import Frame, Window
from ..core.ids import AmbiguousError, matching, unknown
from ..core.scalars import known, records, text
from ..rulebook import Rulebook
from ..state.cards import spellings
from ..telemetry.job_table import job_names
from ..telemetry.source import Databases, Source
from ..telemetry.sqlite.database import database_files, open_database
from ..telemetry.sqlite.reader import file_spans
from .build import Earlier, Run, card_of, course_of, earlier_in, frame_parts, judged_at, workload_of

_JOB = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?")
_NOTHING = "Use a Slurm job ID, a workload ID (w-...), a pod name, NAMESPACE/POD or a workload name."
_COLUMNS = (
    "workload_id", "series_id", "name", "scheduler", "job_id", "array_job_id", "array_task_id", "namespace", "pod",
    "first_seen", "last_seen",
)  # fmt: skip
_MATCHED, _NEAR = 5000, 500  # runs read of one file, and names compared with a name that matches nothing


def find_runs(files: Sequence[Path], asked: str | None, say: Callable[[str], None]) -> list[Run]:
    """The runs in node databases that `asked` may name in any of its ways; None: the newest ones. A file that cannot be
    read is reported and left out; raises SkuwiseError where none can be."""
    where = "" if asked is None else (
        "WHERE :word IN (workload_id, job_id, name, pod, namespace || '/' || pod) OR name = :name"
        " OR :job IN (job_id, array_job_id, array_job_id || '_' || array_task_id)"
        " OR workload_id BETWEEN :begin AND :after"
    )  # fmt: skip
    sql = (
        f"SELECT DISTINCT w.*, u.node, n.cluster, n.last_seen FROM (SELECT {', '.join(_COLUMNS)} FROM workloads {where}"  # noqa: S608
        " ORDER BY last_seen DESC LIMIT :most) w LEFT JOIN workload_gpus u ON u.workload_id = w.workload_id"
        " LEFT JOIN nodes n ON n.node = u.node"
    )
    most = _NEAR if asked is None else _MATCHED
    return _runs_of(_fetched(files, sql, {**spellings(asked or ""), "most": most}, say))


def runs_in(frame: Frame) -> list[Run]:
    """The runs of a frame, as they are listed before one is chosen."""
    held, end = frame.uses.groupby("workload_id", sort=False)["node"].unique(), frame.window.end
    nodes = {row["node"]: (row["cluster"], min(known(row["last_seen"]) or end, end)) for row in records(frame.nodes)}
    return _runs_of(
        (*(row[name] for name in _COLUMNS), node, *nodes.get(node, (None, end)), None)
        for row in records(frame.workloads)
        for node in (*held.get(row["workload_id"], ()),) or ("",)
    )


def _runs_of(parts: Iterable[tuple[Any, ...]]) -> list[Run]:
    runs: dict[str, Run] = {}
    for *cells, node, cluster, newest, place in parts:
        row: dict[str, Any] = dict(zip(_COLUMNS, cells, strict=True))
        start, end = row["first_seen"], row["last_seen"]
        if not all(isinstance(ts, int | float) and math.isfinite(ts) for ts in (start, end)):
            continue
        part = Run(
            row["workload_id"], row["series_id"], text(row["name"]) or "", start, end, text(row["scheduler"]) or "",
            tuple(job_names(row)), text(row["array_job_id"]), text(cluster), text(row["namespace"]), text(row["pod"]),
        )  # fmt: skip
        run = runs.get(part.id, part)
        runs[part.id] = replace(
            run,
            start=min(run.start, start), end=max(run.end, start, end), cluster=run.cluster or part.cluster,
            seen_until=max(run.seen_until, newest or 0.0), nodes=tuple(sorted({*run.nodes, *filter(None, [node])})),
            places=tuple(dict.fromkeys((*run.places, *filter(None, [place])))),
        )  # fmt: skip
    return list(runs.values())


def named_run(
    asked: str, runs: Sequence[Run], command: Callable[[str], str], near: Callable[[], Sequence[Run]] = tuple
) -> tuple[Run, tuple[Run, ...]]:
    """The run that `asked` names (of a job that was requeued the newest), and others of the same job, newest first.
    `near`: more runs, for suggestions. Raises AmbiguousError for several jobs, NothingToDo for none."""
    word = asked.strip()
    by_id = {run.id: run for run in runs}
    # A number is a job's, and the beginning of no id.
    every = [run.named() for run in runs if _JOB.fullmatch(word) is None or word in run.jobs]
    matches = [name for name in matching(word, every) if word not in name.nodes]
    matches = matches or [run.named() for run in runs if run.array_job_id == word]
    if not matches:
        error = unknown(word, [run.named() for run in (*runs, *near())], "among the jobs of this source", _NOTHING)
        raise NothingToDo(error.message, error.remedy)
    chosen = sorted((by_id[name.id] for name in matches), key=lambda run: run.start, reverse=True)
    if len({(run.cluster, run.scheduler, run.shown_job or run.id) for run in chosen}) > 1:
        raise AmbiguousError(asked, sorted(matches, key=lambda name: name.when, reverse=True), command)
    return chosen[0], tuple(chosen[1:])


def named_card(asked: str, cards: Iterable[Card], command: Callable[[str], str]) -> Card:
    """The kept card that `asked` names. Raises as `named_run`."""
    by_id = {card.id: card for card in cards}
    runs = [
        Run(
            card.id, card.series_id, card.name, card.start, card.end, card.scheduler,
            (card.job_id,) if card.job_id else (), (card.job_id or "").partition("_")[0] or None, card.cluster,
            card.namespace, card.pod, card.nodes,
        )
        for card in by_id.values()
    ]  # fmt: skip
    return by_id[named_run(asked, runs, command)[0].id]


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
        source, earlier, course = self.source, None, None
        if isinstance(source, Databases):
            files = database_files(source.paths)
            runs = find_runs(files, asked, self.say)
            run, others = named_run(asked, runs, self.command, lambda: find_runs(files, None, self.say))
            places = tuple(Path(place) for place in run.places)
            earlier, course = earlier_runs(run, files if len(files) <= _FILES_SEARCHED else places), fine_course(run)
            spans, _, _ = file_spans(places)
            span = life_window(run, min((start for start, _ in spans.values()), default=None))
            life = self._frame(replace(source, paths=places), span.seconds, span.end)
            fleet = _whole_fleet(life, files)
        else:
            life = self._frame(source, self.since, self.until)
            run, others = named_run(asked, runs_in(life), self.command)
            span, fleet = life_window(run), fleet_of(life)
            begin = max(span.start, life.window.start)
            if span.end - begin < life.window.seconds / 2:
                workloads = judge(life, self.book).workloads
                whole = workload_of(run, workloads)
                earlier = earlier_in(workloads, whole) if whole is not None else None
                life = self._frame(source, span.end - begin, span.end)
        reasoned = judged_at(self.now, life, self.book)
        w = workload_of(run, reasoned.advice.workloads)
        if w is None:
            what = f"No GPU data of {run.name or run.id}: nothing was observed while it ran."
            raise NothingToDo(what, "Check that the agent ran on its nodes.")
        return CardsRead((card_of(life, reasoned, w, run, earlier=earlier, course=course),), fleet, others)

    def cards(self, wanted: Callable[[Card], bool]) -> CardsRead:
        """The cards of all workloads of the window that are `wanted`."""
        frame = self._frame(self.source, self.since, self.until)
        reasoned = judged_at(self.now, frame, self.book)
        runs = {run.id: run for run in runs_in(frame)}
        part_of = frame_parts(frame)
        cards = (card_of(part_of(w), reasoned, w, runs.get(w.id)) for w in reasoned.advice.workloads)
        return CardsRead(tuple(filter(wanted, cards)), fleet_of(frame))

    def _frame(self, source: Source, since: float, until: float | None) -> Frame:
        return source.read(self.book.catalog, since=since, until=until, now=self.now)


def life_window(run: Run, begin: float | None = None) -> Window:
    """The window of a run's life, in whole hours, as the past is kept; up to the newest data where it runs on, and from
    where data `begin`."""
    newest = math.ceil(max(run.seen_until, run.end) / 60.0) * 60.0
    stop = min(math.ceil(run.end / _HOUR) * _HOUR, newest)
    first = run.start if begin is None else max(run.start, min(begin, stop - _HOUR))
    return Window(math.floor(first / _HOUR) * _HOUR, stop)


def fine_course(run: Run) -> Course | None:
    """SM and tensor activity of a run by its minutes; None: none of its beginning, or its life is too long for them."""
    if run.end - run.start > _BY_MINUTES_SECONDS:
        return None
    sql = (
        "SELECT m.ts, 60.0, m.sm_active_mean, m.tensor_active_mean FROM gpu_minutes m JOIN (SELECT node, gpu_uuid,"
        " min(ts_start) AS a, max(ts_end) AS b FROM workload_gpus WHERE workload_id = :id GROUP BY node, gpu_uuid) u"
        " ON u.gpu_uuid = m.gpu_uuid AND u.node = m.node"
        " WHERE m.ts > :start AND m.ts <= :end + 59.0 AND m.ts > u.a AND m.ts <= u.b + 59.0"
    )
    rows = _fetched([Path(place) for place in run.places], sql, {"start": run.start, "end": run.end, "id": run.id})
    table = pd.DataFrame([row[:4] for row in rows], columns=["ts", "seconds", "sm", "c"], dtype=float)
    course = course_of(run.start, run.end, table)
    # Minutes of its beginning may be gone: hours are kept for longer.
    return None if all(level is None for level in course.sm_active[:2]) else course


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
    for workload, *values, _ in _fetched(files, sql, {"series": run.series_id, "id": run.id, "start": run.start}):
        by_run[workload] = by_run.get(workload, 0.0) + np.array([value or 0.0 for value in values])
    sums = [values.tolist() for values in by_run.values()]
    return [(hours, busy / seconds if seconds else None) for hours, busy, seconds in sums if hours > 0]


def _fetched(
    files: Sequence[Path], sql: str, parameters: Mapping[str, object], say: Callable[[str], None] | None = None
) -> list[Any]:
    """The rows of all databases that can be read, each with its file. `say`: reports the others; all is an error."""
    fetched: list[Any] = []
    problems: list[SkuwiseError] = []
    for path in files:
        try:
            with open_database(path) as reader:
                fetched += [(*row, str(path)) for row in reader.fetch(sql, parameters)]
        except SkuwiseError as error:
            problems.append(error)
            if say is not None:
                say(f"Ignored: {error}")
    if say is not None and problems and len(problems) == len(files):
        raise problems[0]
    return fetched


def _whole_fleet(frame: Frame, files: Sequence[Path]) -> Fleet:
    columns = {"nodes": ["node", "cluster", "machine_id"], "gpus": ["gpu_uuid", "parent_uuid", "node", "gpu_index"]}
    tables = {
        table: pd.DataFrame(_fetched(files, f"SELECT {', '.join(names)} FROM {table}", {}), columns=[*names, "file"])  # noqa: S608
        for table, names in columns.items()
    }
    return fleet_of(replace(frame, source={**frame.source, "databases": files}, **tables))
