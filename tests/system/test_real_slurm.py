"""Whose work it is on a real Slurm: jobs of every kind on a booted node, and skuwise's rows beside Slurm's own record.

Three ways to list GPUs in gres.conf, each on a machine of its own; they run at the same time. What is right is never
what our code says: GPUs are those that the kernel let the job's own processes open, all else is Slurm's accounting.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from skuwise.tests.system.machine import skip_without, until
from skuwise.tests.system.slurm_machine import (
    PAYLOAD,
    USERS,
    AccountedJob,
    Layout,
    SlurmMachine,
    booted,
    minor_of,
    slurm_root,
)

pytestmark = [pytest.mark.slow, pytest.mark.system]

LAYOUTS = (
    Layout("all", "Name=gpu File=/dev/nvidia[0-7]\n", "gpu:8", tuple(range(8))),
    Layout("last four", "Name=gpu File=/dev/nvidia[4-7]\n", "gpu:4", (4, 5, 6, 7), "v1, devices denied"),
    # slurmd puts the types in the order in which slurm.conf has them.
    Layout(
        "typed",
        "Name=gpu Type=h100 File=/dev/nvidia[4-7]\nName=gpu Type=a100 File=/dev/nvidia[2,0-1,3]\n",
        "gpu:h100:4,gpu:a100:4",
        (4, 5, 6, 7, 2, 0, 1, 3),
        "v2",
    ),
)
WITHOUT_CGROUPS = Layout("all, linuxproc", LAYOUTS[0].gres_conf, "gpu:8", LAYOUTS[0].order, proctrack="linuxproc")
# What the issue allows between a stamp of ours and Slurm's own record, which is in whole seconds.
TOLERANCE_SECONDS = 2.0
# The agent looks at processes every 10 s; two looks and the flush, so that what ended is written.
SETTLED_SECONDS = 25.0
COLUMNS = ("GPUs", "name", "user", "account", "partition", "start", "end")


@dataclass(slots=True)
class Seen:
    """What came of one machine: which job was which case, and what each side says."""

    layout: Layout
    cases: dict[str, str] = field(default_factory=dict)  # the job's name -> case
    accounted: Sequence[AccountedJob] = ()
    truth: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    rows: Sequence[tuple[object, ...]] = ()
    foreign: Sequence[object] = ()
    node_states: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: one run of a job. `cells`: what skuwise says; `wrong`: column -> what Slurm says."""

    layout: str
    case: str
    job: str
    cells: Mapping[str, str]
    wrong: Mapping[str, str]


def run_cases(machine: SlurmMachine, seen: Seen) -> None:
    """Every case of the table on one machine."""
    cases = seen.cases

    def batch(case: str, user: str, name: str, gpus: int, script: str, *options: str) -> str:
        cases[name] = case
        return machine.batch(user, name, gpus, script, *options)

    # A job is there before the agent, as after a reboot.
    boot = batch("boot order", "alice", "boot-order", 1, f"{PAYLOAD} 18")
    machine.wait_running(boot)
    time.sleep(2)
    machine.run("systemctl", "start", "skuwise-agent.service")

    cancelled = batch("cancel", "alice", "to cancel | here", 1, f"exec {PAYLOAD} 60")
    requeued = batch("requeue", "bob", "again", 1, f"exec {PAYLOAD} 7", "--requeue", "-p", "debug")
    batch("1 GPU", "alice", "one", 1, f"exec {PAYLOAD} 12", "--qos=high")
    batch("two jobs on the node", "bob", "other", 1, f"exec {PAYLOAD} 12")
    machine.wait_running(cancelled)
    machine.wait_running(requeued)
    batch("4 GPUs", "bob", "four", 4, f"exec {PAYLOAD} 12")
    batch("array", "alice", "sweep", 1, f"exec {PAYLOAD} 6", "--array=3-4", "-p", "debug")
    batch("fail", "bob", "<b>broken</b>", 1, f"{PAYLOAD} 3 7")
    steps = f"srun -n1 --gres=gpu:1 --exact {PAYLOAD} 11 & srun -n1 --gres=gpu:1 --exact {PAYLOAD} 11 & wait"
    batch("srun steps", "alice", "steps", 2, steps, "-n", "2")
    cases |= {"interactive": "srun", "session": "salloc"}
    machine.background("bob", "srun", "-J", "interactive", "--gres=gpu:1", PAYLOAD, "11")
    held = f"sleep 2; srun {PAYLOAD} 10"
    machine.background("alice", "salloc", "-J", "session", "--gres=gpu:1", "sh", "-c", held)
    time.sleep(3)
    machine.run("scancel", cancelled)
    machine.run("scontrol", "requeue", requeued)
    until(lambda: machine.job_state(requeued) == "PENDING", what="the requeued job")
    time.sleep(2)  # slurmd refuses a run, and runs no prolog, in the second in which it ended the one before
    machine.run("scontrol", "update", f"jobid={requeued}", "StartTime=now")
    machine.wait_empty()
    seen.node_states.append(machine.node_state())

    # Three jobs run while both daemons are started anew and the node is drained.
    names = ("agent restart", "slurmd restart", "drained node")
    for job in [batch(name, "bob", name, 1, f"exec {PAYLOAD} 18") for name in names]:
        machine.wait_running(job)
    time.sleep(5)
    machine.run("systemctl", "restart", "skuwise-agent.service")
    machine.run("systemctl", "restart", "slurmd")
    machine.run("scontrol", "update", "nodename=gpunode", "state=drain", "reason=maintenance")
    machine.run("/etc/skuwise/slurm/drained.sh", "maintenance")
    machine.wait_empty()
    machine.wait_for_node("drained")
    machine.run("scontrol", "update", "nodename=gpunode", "state=resume")
    machine.run("/etc/skuwise/slurm/drained.sh", "--clear")
    machine.wait_for_node()


def collect(machine: SlurmMachine, seen: Seen) -> None:
    """Once the agent has written what ended, what each side says."""
    time.sleep(SETTLED_SECONDS)
    seen.accounted = [one for one in machine.accounting() if one.name in seen.cases]
    mine = {one.job_id for one in seen.accounted}
    seen.truth = machine.truth()
    found = machine.rows(
        "SELECT w.job_id, w.workload_id, w.name, w.user, w.account, w.partition, u.gpu_uuid, u.ts_start, u.ts_end,"
        " u.basis, u.shared FROM workloads w JOIN workload_gpus u USING (workload_id)"
    )
    seen.rows = [row for row in found if row[0] in mine]
    seen.foreign = sorted({f"{row[2]} ({row[0]})" for row in found if row[0] not in mine})
    seen.node_states.append(machine.node_state())


def lines_of(seen: Seen) -> list[Line]:
    """The table's lines of one machine."""
    lines: list[Line] = []
    assert {one.name for one in seen.accounted} == set(seen.cases)
    for job_id, name in dict.fromkeys((one.job_id, one.name) for one in seen.accounted):
        case = seen.cases[name]
        runs = sorted((one for one in seen.accounted if one.job_id == job_id), key=lambda one: one.start)
        workloads: dict[object, list[tuple[object, ...]]] = {}
        for row in sorted((row for row in seen.rows if row[0] == job_id), key=lambda row: float(str(row[7]))):
            workloads.setdefault(row[1], []).append(row)
        found = list(workloads.values())
        for position in range(max(len(runs), len(found), 1)):
            run = runs[position] if position < len(runs) else None
            rows = found[position] if position < len(found) else []
            lines.append(_line(seen, case, job_id, run, rows))
    return lines


def _line(seen: Seen, case: str, job_id: str, run: AccountedJob | None, rows: list[tuple[object, ...]]) -> Line:
    where = seen.layout.name
    if run is None:
        return Line(where, case, job_id, {}, {"run": "Slurm knows no such run"})
    if not rows or run.end is None:
        return Line(where, case, run.job, {}, {"run": f"{run.state}, and skuwise has {len(rows)} rows"})
    records = [
        one
        for one in seen.truth.get(job_id, ())
        if run.start - 1 <= float(str(one["started"])) <= run.end + 1 and isinstance(one["gpus"], list)
    ]
    gpus = {int(minor) for one in records for minor in one["gpus"]}  # type: ignore[attr-defined]
    ours = {minor_of(str(row[6])) for row in rows}
    start = min(float(str(row[7])) for row in rows)
    ends = [row[8] for row in rows]
    end = None if None in ends else max(float(str(one)) for one in ends)
    first = rows[0]
    cells = {
        "GPUs": _some(ours) + (" shared" if any(row[10] for row in rows) else ""),
        **{column: str(first[at]) for column, at in (("name", 2), ("user", 3), ("account", 4), ("partition", 5))},
        "start": f"{start - run.start:+.1f} s",
        "end": "open" if end is None else f"{end - run.end:+.1f} s",
    }
    right = {"GPUs": _some(gpus), "user": run.user, "account": run.account, "partition": run.partition}
    wrong = {column: value for column, value in right.items() if cells[column] != value}
    if cells["name"] not in (run.name, f"job {job_id}"):
        wrong["name"] = run.name
    if abs(start - run.start) > TOLERANCE_SECONDS:
        wrong["start"] = "0 s"
    if end is None or abs(end - run.end) > TOLERANCE_SECONDS:
        wrong["end"] = "0 s"
    return Line(where, case, run.job, cells, wrong)


def _some(minors: set[int]) -> str:
    return ",".join(map(str, sorted(minors))) or "none"


def table(lines: Sequence[Line]) -> str:
    """As people read it; what is wrong carries what Slurm says behind it."""
    head = ("gres.conf", "case", "job", *COLUMNS)
    texts = [head]
    for line in lines:
        cells = [
            line.cells.get(column, "") + (f" [{line.wrong[column]}]" if column in line.wrong else "")
            for column in COLUMNS
        ]
        texts.append((line.layout, line.case, line.job, *cells[:-1], cells[-1] + line.wrong.get("run", "")))
    widths = [max(len(row[at]) for row in texts) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts
    )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Seen]]:
    skip_without("mount", "cc")
    folder = tmp_path_factory.mktemp("slurm")
    root = slurm_root(folder, tmp_path_factory)

    def on(layout: Layout) -> list[Seen]:
        name = layout.name.replace(" ", "-")
        with booted(root, folder / name, layout) as machine:
            try:
                found = [Seen(layout)]
                run_cases(machine, found[0])
                collect(machine, found[0])
                return found
            except BaseException:
                (folder / f"{name}.slurm").write_text(machine.logs())
                raise

    try:
        with ThreadPoolExecutor(len(LAYOUTS)) as pool:
            found = [one for several in pool.map(on, LAYOUTS) for one in several]
        yield {one.layout.name: one for one in found}
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(root)  # some 900 MB


@pytest.mark.parametrize("name", [layout.name for layout in LAYOUTS])
def test_every_case_has_the_right_gpus_job_owner_and_times(
    seen: Mapping[str, Seen], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = seen[name]
    lines = lines_of(one)
    shown = table(lines)
    with capsys.disabled():
        print(f"\n{shown}")  # noqa: T201
    assert {job.user for job in one.accounted} == set(USERS)
    assert not one.foreign, one.foreign
    assert not [line for line in lines if line.wrong], shown
    assert [state.rstrip("*") for state in one.node_states] == ["idle"] * len(one.node_states)


def test_the_folders_are_left_as_they_were(tmp_path: Path) -> None:
    """A container that is gone leaves no cgroup behind."""
    assert not list(Path("/sys/fs/cgroup").glob("*/skuwise-*")), tmp_path
