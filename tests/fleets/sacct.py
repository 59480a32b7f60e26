"""The job table of a fleet as `sacct --parsable2` prints it.

Rests on: sacct's manual page (slurm.schedmd.com/sacct.html): fields and their order as asked for with --format, "|"
between them and none at the end (--parsable2), JobID of an array's task as ARRAY_TASK with its own JobIDRaw, steps as
JOBID.batch, JOBID.extern and JOBID.0 with a name of their own and without user, partition and QOS; End "Unknown" while
a job runs; states RUNNING, COMPLETED, FAILED, "CANCELLED by UID"; times in the cluster's local time, here UTC; node
lists as Slurm compresses them (gpu-[001-002]); TRES as in AllocTRES of its example (billing=, cpu=, gres/gpu=, mem=,
node=).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from .description import Fleet, Workload

COLUMNS = (
    "JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End",
    "NodeList", "AllocTRES", "ReqTRES", "Restarts",
)  # fmt: skip
_USERS = ("aylin", "benoit", "chidi", "dana", "emeka")


def job_table(fleet: Fleet) -> str:
    """All jobs with an id, a line each, their steps, and jobs of other partitions between them."""
    lines = ["|".join(COLUMNS)]
    works = sorted((one for one in fleet.workloads if one.hpc_job), key=lambda one: int(one.hpc_job))
    for number, one in enumerate(works):
        lines += _job(fleet, one, _USERS[number % len(_USERS)])
        if number % 3 == 1:
            lines += _on_processors(fleet, int(one.hpc_job) + 50_000)
    return "\n".join(lines) + "\n"


def account(work: Workload) -> str:
    return work.team or "research"


def user_of(fleet: Fleet, work: Workload) -> str:
    """The user that the table names for a job."""
    works = sorted((one for one in fleet.workloads if one.hpc_job), key=lambda one: int(one.hpc_job))
    return _USERS[works.index(work) % len(_USERS)]


def _job(fleet: Fleet, work: Workload, user: str) -> Iterator[str]:
    start, end = fleet.at(work.begin_day), fleet.at(work.end_day)
    running = work.end_day is None or end >= fleet.end
    nodes = sorted({hold.node for hold in work.holds})
    sku = fleet.node(nodes[0]).gpu.sku.split("-")[0].lower()
    count = len(work.holds)
    wanted = f"billing=96,cpu={12 * count},gres/gpu={count},mem={128 * count}G,node={len(nodes)}"
    given = wanted.replace(",mem=", f",gres/gpu:{sku}={count},mem=")
    times = [_time(start - 95), _time(start), "Unknown" if running else _time(end)]
    state = "RUNNING" if running else "COMPLETED"
    name, where = work.name, compressed(nodes)
    yield "|".join((work.hpc_job, work.hpc_job, name, user, account(work), "gpu", "normal", state, *times, where, given,
                    wanted, "0"))  # fmt: skip
    for step in ("batch", "extern", "0"):
        own = f"{work.hpc_job}.{step}"
        title = "python" if step == "0" else step
        yield "|".join((own, own, title, "", account(work), "", "", state, times[1], times[1], times[2],
                        where if step != "batch" else nodes[0], given, "", ""))  # fmt: skip


def _on_processors(fleet: Fleet, number: int) -> Iterator[str]:
    start = fleet.start + number % 7200
    times = [_time(start - 5), _time(start), _time(start + 1800)]
    tres = "billing=4,cpu=4,mem=16G,node=1"
    yield "|".join((str(number), str(number), "prepare", "fatima", "data", "cpu", "normal", "COMPLETED", *times,
                    "cpu-07", tres, tres, "0"))  # fmt: skip


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def compressed(nodes: Iterable[str]) -> str:
    """Names with a common beginning as Slurm writes them: gpu-[001-002,005]."""
    groups: dict[str, list[str]] = {}
    alone: list[str] = []
    for name in sorted(nodes):
        split = re.fullmatch(r"(.*?)(\d+)", name)
        if split is None:
            alone.append(name)
        else:
            groups.setdefault(split[1], []).append(split[2])
    found = []
    for base, tails in groups.items():
        spans: list[list[str]] = []
        for tail in tails:
            if spans and int(tail) == int(spans[-1][-1]) + 1 and len(tail) == len(spans[-1][-1]):
                spans[-1] = [spans[-1][0], tail]
            else:
                spans.append([tail])
        text = ",".join("-".join(span) for span in spans)
        found.append(f"{base}{text}" if len(tails) == 1 else f"{base}[{text}]")
    return ",".join([*found, *alone])
