"""Runs of jobs from node databases: found by what names them, with what only a look at their own rows tells.

A card is wanted at once, so each look is one indexed SELECT of the views, before any table is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...rules.base.errors import SkuwiseError
from ..core.card_types import COURSE_SPANS
from ..core.verdict_types import Owner
from ..telemetry.sqlite.open import DatabaseReader, open_database
from .runs import Run, joined

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
