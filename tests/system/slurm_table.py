"""The table of the Slurm test: each run of a job, what skuwise says of it, and where Slurm's own record differs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skuwise.tests.system.slurm_cases import Row, Seen
from skuwise.tests.system.slurm_machine import AccountedJob, minor_of

# What the issue allows between a stamp of ours and Slurm's own record, which is in whole seconds.
TOLERANCE_SECONDS = 2.0
COLUMNS = ("GPUs", "name", "user", "account", "partition", "QOS", "array", "start", "end")
# What is known of a job before its name is asked of Slurm's accounting.
RECORDED = ("GPUs", "user", "account", "partition", "start", "end")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: one run of a job. `cells`: what skuwise says; `wrong`: column -> what Slurm says."""

    layout: str
    case: str
    job: str
    cells: Mapping[str, str]
    wrong: Mapping[str, str]


def lines_of(seen: Seen, rows: Sequence[Row], columns: Sequence[str]) -> list[Line]:
    """The table's lines of one layout. Only `columns` can be wrong."""
    assert {one.name for one in seen.accounted} == set(seen.cases)
    lines: list[Line] = []
    for job_id, name in dict.fromkeys((one.job_id, one.name) for one in seen.accounted):
        runs = sorted((one for one in seen.accounted if one.job_id == job_id), key=lambda one: one.start)
        workloads: dict[str, list[Row]] = {}
        for row in sorted((row for row in rows if row["job_id"] == job_id), key=lambda row: row["ts_start"]):
            workloads.setdefault(row["workload_id"], []).append(row)
        found = list(workloads.values())
        for position in range(max(len(runs), len(found))):
            run = runs[position] if position < len(runs) else None
            of_run = found[position] if position < len(found) else []
            lines.append(_line(seen, seen.cases[name], run, of_run, columns))
    return lines


def _line(seen: Seen, case: str, run: AccountedJob | None, rows: Sequence[Row], columns: Sequence[str]) -> Line:
    where = seen.layout.name
    if run is None:
        return Line(where, case, rows[0]["job_id"], {}, {"run": "Slurm knows no such run"})
    if not rows or run.end is None:
        return Line(where, case, run.job, {}, {"run": f"{run.state}, and skuwise has {len(rows)} rows"})
    held = [one["gpus"] for one in seen.truth.get(run.job_id, ()) if run.start - 1 <= one["started"] <= run.end + 1]
    first, array = rows[0], run.job if "_" in run.job else "-"
    starts, ends = [row["ts_start"] for row in rows], [row["ts_end"] for row in rows]
    start, end = min(starts) - run.start, None if None in ends else max(ends) - run.end
    shared = " shared" if any(row["shared"] for row in rows) else ""
    ours = {
        "GPUs": _some({minor_of(row["gpu_uuid"]) for row in rows}) + shared,
        **{column: str(first[column]) for column in ("name", "user", "account", "partition")},
        "QOS": str(first.get("qos")),
        "array": f"{first['array_job_id']}_{first['array_task_id']}" if first.get("array_job_id") else "-",
        "start": f"{start:+.1f} s",
        "end": "open" if end is None else f"{end:+.1f} s",
    }
    right = {
        "GPUs": _some({minor for gpus in held for minor in gpus}), "name": run.name, "user": run.user, "array": array,
        "account": run.account, "partition": run.partition, "QOS": run.qos,
    }  # fmt: skip
    wrong = {column: value for column, value in right.items() if ours[column] != value}
    if abs(start) > TOLERANCE_SECONDS:
        wrong["start"] = "0 s"
    if end is None or abs(end) > TOLERANCE_SECONDS:
        wrong["end"] = "0 s"
    return Line(where, case, run.job, ours, {column: value for column, value in wrong.items() if column in columns})


def _some(minors: set[int]) -> str:
    return ",".join(map(str, sorted(minors))) or "none"


def table(lines: Sequence[Line]) -> str:
    """What is wrong, as people read it: behind what skuwise says what Slurm says."""
    told = [(line, column, right) for line in lines for column, right in line.wrong.items()]
    return "\n".join(f"{x.layout}, {x.case}, job {x.job}: {c} {x.cells.get(c, '')} [{right}]" for x, c, right in told)
