"""Whose work it is on a real Slurm: jobs of every kind on a booted node, and skuwise's rows beside Slurm's own record.

Three ways to list GPUs in gres.conf, each on a machine of its own; they run at the same time. What is right is never
what our code says: GPUs are those that the kernel let the job's own processes open, all else is Slurm's accounting.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from skuwise.advisor.telemetry.job_table import with_jobs
from skuwise.advisor.telemetry.sqlite import read_frame
from skuwise.tests.system.machine import PYTHON, skip_without, until
from skuwise.tests.system.slurm_machine import (
    FAULTS,
    PAYLOAD,
    PROLOG,
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
        "gpu:a100:4,gpu:h100:4",
        (2, 0, 1, 3, 4, 5, 6, 7),
        "v2",
    ),
)
LINUXPROC = Layout("all, linuxproc", LAYOUTS[0].gres_conf, "gpu:8", LAYOUTS[0].order, proctrack="linuxproc")
# What the issue allows between a stamp of ours and Slurm's own record, which is in whole seconds.
TOLERANCE_SECONDS = 2.0
# The agent looks at processes every 10 s; two looks and the flush, so that what ended is written.
SETTLED_SECONDS = 25.0
FAULT_COUNT = 200
COLUMNS = ("GPUs", "name", "user", "account", "partition", "QOS", "array", "start", "end")
# What is known of a job before its name is asked of Slurm's accounting.
RECORDED = ("GPUs", "user", "account", "partition", "start", "end")
Row = Mapping[str, Any]


@dataclass(slots=True)
class Seen:
    """What came of one layout: which job was which case, and what each side says. Rows are a workload's on a GPU."""

    layout: Layout
    cases: dict[str, str] = field(default_factory=dict)  # the job's name -> case
    accounted: Sequence[AccountedJob] = ()
    truth: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    recorded: Sequence[Row] = ()  # as the agent wrote them
    imported: Sequence[Row] = ()  # as advice reads them when Slurm's job table is there
    node_states: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Faults:
    """How prolog and epilog ended under faults, and the jobs whose prolog and epilog met one."""

    seed: int
    ended: Sequence[tuple[str, str, int]] = ()
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)  # fault -> what became of the job
    node_states: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: one run of a job. `cells`: what skuwise says; `wrong`: column -> what Slurm says."""

    layout: str
    case: str
    job: str
    cells: Mapping[str, str]
    wrong: Mapping[str, str]


class Runner:
    """Submits the cases of one layout."""

    def __init__(self, machine: SlurmMachine, seen: Seen) -> None:
        self.machine = machine
        self.seen = seen

    def batch(self, case: str, user: str, name: str, gpus: int, script: str, *options: str) -> str:
        self.seen.cases[name] = case
        return self.machine.batch(user, name, gpus, script, *options)

    def kinds(self) -> None:
        """Jobs of every kind, the first of them before the agent is there, as after a reboot."""
        machine = self.machine
        machine.wait_running(self.batch("boot order", "alice", "boot-order", 1, f"{PAYLOAD} 18"))
        time.sleep(2)
        machine.run("systemctl", "start", "skuwise-agent.service")
        cancelled = self.batch("cancel", "alice", "to cancel; here", 1, f"exec {PAYLOAD} 60")
        requeued = self.batch("requeue", "bob", "again", 1, f"exec {PAYLOAD} 12", "--requeue", "-p", "debug")
        self.batch("1 GPU", "alice", "one", 1, f"exec {PAYLOAD} 12", "--qos=high")
        self.batch("two jobs on the node", "bob", "other", 1, f"exec {PAYLOAD} 12")
        machine.wait_running(cancelled)
        machine.wait_running(requeued)
        self.batch("4 GPUs", "bob", "four", 4, f"exec {PAYLOAD} 12")
        self.batch("array", "alice", "sweep", 1, f"exec {PAYLOAD} 6", "--array=3-4", "-p", "debug")
        self.batch("fail", "bob", "<b>broken</b>", 1, f"{PAYLOAD} 3 7")
        self.steps("steps")
        self.seen.cases |= {"interactive": "srun", "session": "salloc"}
        machine.background("bob", "srun", "-J", "interactive", "--gres=gpu:1", PAYLOAD, "11")
        held = f"sleep 2; srun {PAYLOAD} 10"
        machine.background("alice", "salloc", "-J", "session", "--gres=gpu:1", "sh", "-c", held)
        time.sleep(3)
        machine.run("scancel", cancelled)
        machine.run("scontrol", "requeue", requeued)
        until(lambda: machine.job_state(requeued) == "PENDING", what="the requeued job")
        time.sleep(2)  # slurmd refuses a run in the second in which it ended the one before
        machine.run("scontrol", "update", f"jobid={requeued}", "StartTime=now")
        self.end()

    def steps(self, name: str) -> None:
        steps = f"srun -n1 --gres=gpu:1 --exact {PAYLOAD} 11 & srun -n1 --gres=gpu:1 --exact {PAYLOAD} 11 & wait"
        self.batch("srun steps", "alice", name, 2, steps, "-n", "2")

    def restarts(self) -> None:
        """Three jobs run while both daemons are started anew and the node is drained."""
        machine = self.machine
        names = ("agent restart", "slurmd restart", "drained node")
        for job in [self.batch(name, "bob", name, 1, f"exec {PAYLOAD} 18") for name in names]:
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

    def without_cgroups(self) -> None:
        """Where slurmd follows processes by their parents, no cgroup tells whose they are."""
        machine = self.machine
        machine.reconfigure(self.seen.layout)
        self.batch("1 GPU", "alice", "lone", 1, f"exec {PAYLOAD} 12")
        self.batch("4 GPUs", "bob", "lone four", 4, f"{PAYLOAD} 12")
        self.steps("lone steps")
        self.end()

    def end(self) -> None:
        self.machine.wait_empty()
        self.seen.node_states.append(self.machine.node_state())


def collect(machine: SlurmMachine, found: Sequence[Seen], copy: Path) -> None:
    """Once the agent has written what ended, what each side says."""
    time.sleep(SETTLED_SECONDS)
    accounted, truth = machine.accounting(), machine.truth()
    machine.import_jobs(copy)
    columns = ("job_id", "workload_id", "scheduler", "user", "account", "partition", "name")
    used = ("gpu_uuid", "ts_start", "ts_end", "shared")
    sql = f"SELECT {', '.join((*columns, *used))} FROM workloads JOIN workload_gpus USING (workload_id)"
    recorded: list[dict[str, Any]] = [dict(zip((*columns, *used), row, strict=True)) for row in machine.rows(sql)]
    frame = with_jobs(read_frame([copy]))
    imported = frame.uses.merge(frame.workloads, on="workload_id")
    imported = imported.astype(object).where(imported.notna(), None).to_dict("records")
    for seen in found:
        seen.accounted = [one for one in accounted if one.name in seen.cases]
        mine = {one.job_id for one in seen.accounted}
        seen.truth = {job: records for job, records in truth.items() if job in mine}
        seen.recorded = [row for row in recorded if row["job_id"] in mine]
        seen.imported = [{str(key): value for key, value in row.items()} for row in imported if row["job_id"] in mine]
        recorded = [row for row in recorded if row["job_id"] not in mine]
    assert not recorded, f"not of any job that ran: {recorded}"


def meet_faults(machine: SlurmMachine) -> Faults:
    """Prolog and epilog by hand under many faults, and by slurmd under those that a whole node can have."""
    seed = random.SystemRandom().randrange(10**6)
    told = json.loads(machine.run("python3", FAULTS, str(seed), str(FAULT_COUNT), seconds=300))
    faults = Faults(seed, [tuple(one) for one in told["ended"]], told["seconds"])
    folder = "/run/skuwise-slurm"
    on_nodes = {
        "full disk": (
            f"mount -t tmpfs -o size=16k,mode=0755 tmpfs {folder}; cat /dev/zero > {folder}/fill; true",
            f"umount {folder}",
        ),
        "read-only disk": (f"mount -t tmpfs -o ro,mode=0755 tmpfs {folder}", f"umount {folder}"),
        "no folder": (f"mv {folder} {folder}.away", f"rm -rf {folder}; mv {folder}.away {folder}"),
        "a file for a folder": (
            f"mv {folder} {folder}.away; : > {folder}",
            f"rm -rf {folder}; mv {folder}.away {folder}",
        ),
    }
    for name, (before, after) in on_nodes.items():
        machine.run("sh", "-c", before)
        job = machine.batch("alice", name, 1, "true")
        machine.wait_empty()
        faults.jobs[name] = machine.job_state(job)
        faults.node_states.append(machine.node_state())
        machine.run("sh", "-c", after)
    return faults


# What is wrong with the node, and the reason by which doctor names it.
WRONG = {
    "no Prolog": ("sed -i /^Prolog=/d /etc/slurm/slurm.conf; scontrol reconfigure", "prolog-not-configured"),
    "no Epilog": ("sed -i /^Epilog=/d /etc/slurm/slurm.conf; scontrol reconfigure", "epilog-not-configured"),
    "no flags": ("sed -i /^PrologFlags=/d /etc/slurm/slurm.conf; scontrol reconfigure", "prolog-flags"),
    "no File": ("echo Name=gpu Count=8 > /etc/slurm/gres.conf", "indices-unknown"),
    "not executable": (f"chmod 0644 {PROLOG}", "prolog-not-executable"),
    "another's folder": ("chown alice /run/skuwise-slurm", "folder-not-roots"),
    "no folder": ("mv /run/skuwise-slurm /run/away", "folder-missing"),
}


def ask_doctor(machine: SlurmMachine) -> dict[str, str]:
    """What doctor says of Slurm on the node as it is (under ""), and with each thing in turn that is wrong."""

    def said() -> str:
        stub = ("env", "LD_LIBRARY_PATH=/opt/nvml", "SKUWISE_NVML_SCENARIO=/opt/nvml/scenario")
        return machine.run(*stub, PYTHON, "-m", "skuwise", "agent", "doctor", check=False)

    found = {"": said()}
    for name, (command, _) in WRONG.items():
        machine.run("sh", "-c", command)
        found[name] = said()
        machine.configure(machine.layout)
        mend = (
            f"[ ! -d /run/away ] || mv /run/away /run/skuwise-slurm; chown root /run/skuwise-slurm; chmod 0755 {PROLOG}"
        )
        machine.run("sh", "-c", f"{mend}; scontrol reconfigure")
    return found


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
    """As people read it; what is wrong has behind it what Slurm says."""
    texts: list[tuple[str, ...]] = [("gres.conf", "case", "job", *COLUMNS)]
    for line in lines:
        cells = [f"{line.cells.get(c, '')}{f' [{line.wrong[c]}]' if c in line.wrong else ''}" for c in COLUMNS]
        texts.append((line.layout, line.case, line.job, *cells[:-1], cells[-1] + line.wrong.get("run", "")))
    widths = [max(len(row[at]) for row in texts) for at in range(len(texts[0]))]
    rows = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in texts)
    return "\n".join(row.rstrip() for row in rows)


def both(recorded: Sequence[Line], imported: Sequence[Line]) -> list[Line]:
    """What the agent recorded by itself, the times too, and of the import what only that can know."""
    late = {(line.case, line.job, at): line for at, line in enumerate(imported)}
    found: list[Line] = []
    for at, line in enumerate(recorded):
        other = late.get((line.case, line.job, at))
        cells, wrong = (other.cells, other.wrong) if other is not None else ({}, {})
        asked = {column: cell for column, cell in cells.items() if column not in RECORDED}
        unlike = {column: right for column, right in wrong.items() if column not in RECORDED}
        found.append(Line(line.layout, line.case, line.job, {**line.cells, **asked}, {**line.wrong, **unlike}))
    return found


@dataclass(frozen=True, slots=True)
class Came:
    """All that came of the machines."""

    seen: Mapping[str, Seen]
    faults: Faults | None
    doctor: Mapping[str, str]


def on_machine(root: Path, folder: Path, layout: Layout) -> Came:
    """One machine from boot to end. The first layout's also meets faults, and what doctor is for."""
    name = layout.name.replace(" ", "-")
    with booted(root, folder / name, layout) as machine:
        try:
            found = [Seen(layout)]
            runner = Runner(machine, found[0])
            runner.kinds()
            runner.restarts()
            is_first = layout is LAYOUTS[0]
            if is_first:
                found.append(Seen(LINUXPROC))
                Runner(machine, found[1]).without_cgroups()
            collect(machine, found, folder / f"{name}.db")
            doctor = ask_doctor(machine) if is_first else {}
            faults = meet_faults(machine) if is_first else None
            return Came({one.layout.name: one for one in found}, faults, doctor)
        except BaseException as error:
            with contextlib.suppress(Exception):
                error.add_note(machine.logs())
            raise


@pytest.fixture(scope="module")
def came(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Came]:
    skip_without("mount", "cc")
    folder = tmp_path_factory.mktemp("slurm")
    root = slurm_root(folder, tmp_path_factory)
    try:
        with ThreadPoolExecutor(len(LAYOUTS)) as pool:
            results = list(pool.map(lambda layout: on_machine(root, folder, layout), LAYOUTS))
        yield Came({k: v for one in results for k, v in one.seen.items()}, results[0].faults, results[0].doctor)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(root)  # some 900 MB


@pytest.mark.parametrize("name", [layout.name for layout in (*LAYOUTS, LINUXPROC)])
def test_every_case_has_the_right_gpus_job_owner_and_times(
    came: Came, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = came.seen[name]
    recorded = lines_of(seen, seen.recorded, RECORDED)
    imported = lines_of(seen, seen.imported, COLUMNS)
    with capsys.disabled():
        print(f"\n{table(both(recorded, imported))}")  # noqa: T201
    assert {job.user for job in seen.accounted} == set(USERS)
    assert not [line for line in recorded if line.wrong], f"before the import:\n{table(recorded)}"
    assert not [line for line in imported if line.wrong], f"after the import:\n{table(imported)}"
    assert set(seen.node_states) == {"idle"}


def test_prolog_and_epilog_end_with_0_under_every_fault_and_drain_no_node(
    came: Came, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = came.faults
    assert faults is not None
    with capsys.disabled():
        print(f"\nfaults of seed {faults.seed}: {dict(Counter(kind for kind, _, _ in faults.ended))}")  # noqa: T201
        for name, seconds in faults.seconds.items():
            tenths = statistics.quantiles(seconds, n=20)
            print(f"{name}: median {1e3 * statistics.median(seconds):.1f} ms, p95 {1e3 * tenths[-1]:.1f} ms")  # noqa: T201
    assert len(faults.ended) == FAULT_COUNT
    assert not [one for one in faults.ended if one[2] != 0], faults.seed
    assert set(faults.jobs.values()) == {"COMPLETED"}, faults.jobs
    assert set(faults.node_states) == {"idle"}


def test_doctor_finds_nothing_wrong_with_slurm_until_something_is(came: Came) -> None:
    assert "absent  slurm" not in came.doctor[""] and "prolog.sh" in came.doctor[""], came.doctor[""]
    assert "7 is GPU 7" in came.doctor[""], came.doctor[""]
    assert not {
        name: came.doctor[name] for name, (_, reason) in WRONG.items() if f"({reason})" not in came.doctor[name]
    }


def test_a_container_that_is_gone_leaves_no_cgroup_behind(came: Came) -> None:
    assert came
    assert not list(Path("/sys/fs/cgroup").glob("*/skuwise-*"))
