"""The cases of the Slurm test: jobs of every kind on one machine, what each side says of them, and what differs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from skuwise.advisor.telemetry.job_table import with_jobs
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.telemetry.waiting import blocked_by
from skuwise.agent.slurm_jobs.queue import read_squeue
from skuwise.tests.system.machine import PYTHON, until
from skuwise.tests.system.slurm_machine import PAYLOAD, TRUTH, AccountedJob, Layout, SlurmMachine, minor_of

# The agent looks at processes every 10 s; two looks and the flush, so that what ended is written.
SETTLED_SECONDS = 25.0
Row = Mapping[str, Any]
Queued = tuple[int, float, int | None, str | None]


@dataclass(slots=True)
class Seen:
    """What came of one layout: which job was which case, and what each side says. Rows are a workload's on a GPU."""

    layout: Layout
    cases: dict[str, str] = field(default_factory=dict)  # the job's name -> case
    accounted: Sequence[AccountedJob] = ()
    truth: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    recorded: Sequence[Row] = ()  # as the agent wrote them
    imported: Sequence[Row] = ()  # as advice reads them when Slurm's job table is there
    faulty_jobs: dict[str, str] = field(default_factory=dict)  # by fault of prolog and epilog, what became of the job
    node_states: list[str] = field(default_factory=list)
    waiting: dict[str | None, Queued] = field(default_factory=dict)  # by name, as of `QUEUED`
    pending_tasks: int = 0  # that want GPUs, as squeue lists each


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
        steps = f"srun -n1 --gres=gpu:1 --exact {PAYLOAD} 11 & srun -n1 --gres=gpu:1 --exact {PAYLOAD} 11 & wait"
        self.batch("srun steps", "alice", "steps", 2, steps, "-n", "2")
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
        machine.wait_empty()
        self.seen.node_states.append(machine.node_state())

    def restarts(self) -> None:
        """Three jobs run while both daemons are started again and the node is drained."""
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


def collect(machine: SlurmMachine, seen: Seen, copy: Path) -> None:
    """Once the agent has written what ended, what each side says."""
    time.sleep(SETTLED_SECONDS)
    seen.accounted, seen.truth = machine.accounting(), machine.truth()
    machine.import_jobs(copy)
    columns = ("job_id", "workload_id", "scheduler", "user", "account", "partition", "name")
    used = ("gpu_uuid", "ts_start", "ts_end", "shared")
    sql = f"SELECT {', '.join((*columns, *used))} FROM workloads JOIN workload_gpus USING (workload_id)"
    seen.recorded = [dict(zip((*columns, *used), row, strict=True)) for row in machine.rows(sql)]
    frame = with_jobs(read_frame([copy]))
    imported = frame.uses.merge(frame.workloads, on="workload_id")
    imported = imported.astype(object).where(imported.notna(), None).to_dict("records")
    seen.imported = [{str(key): value for key, value in row.items()} for row in imported]
    strange = {row["job_id"] for row in seen.recorded} - {job.job_id for job in seen.accounted}
    assert not strange, f"not of any job that ran: {strange}"


# What is submitted behind a job that holds every GPU: options; jobs, GPUs of each, nodes, and what they wait for.
QUEUED: Mapping[str, tuple[tuple[str, ...], Queued]] = {
    "by node": (("--gres=gpu:2",), (1, 2.0, 1, None)),
    "by job": (("--gres=none", "--gpus=3"), (1, 3.0, None, None)),
    "by task": (("--gres=none", "-n", "3", "--gpus-per-task=1"), (1, 3.0, None, None)),
    "limited array": (("--array=3-9%2",), (7, 1.0, 1, None)),
    "long array": (("--array=1-199:2,400",), (101, 1.0, 1, None)),
    "held": (("-H",), (1, 1.0, 1, "held")),
    "later": (("--begin=now+1day",), (1, 1.0, 1, "begin-time")),
    "after": (("-d", "afterok:{first}"), (1, 1.0, 1, "dependency")),
}
_PARTS = """#!/bin/sh
#SBATCH -J parts --gres=gpu:2 -o /dev/null
#SBATCH hetjob
#SBATCH --gres=gpu:1
true
"""


def read_the_queue(machine: SlurmMachine, seen: Seen) -> None:
    """The queue as `skuwise slurm import` writes it, beside Slurm's own list of every task."""
    first = machine.batch("alice", "all", len(seen.layout.minors), "sleep 90")
    machine.wait_running(first)
    machine.batch("bob", "no GPUs", 0, "true", "--gres=none", "-c", "64")
    for name, (options, _) in QUEUED.items():
        machine.batch("bob", name, 1, "true", *(option.format(first=first) for option in options))
    machine.submit("bob", "sh", "-c", 'printf "$1" | sbatch', "sh", _PARTS)
    queue = f"{TRUTH}/queue.json"
    setting = ("env", f"SKUWISE_SLURM_QUEUE={queue}", PYTHON, "-m", "skuwise", "slurm", "import")
    machine.run(*setting, "--output", f"{TRUTH}/jobs.txt", check=False)  # the queue alone counts here
    read = read_squeue(machine.inside(queue))
    seen.waiting = {j.name: (j.jobs, j.gpus, j.nodes, blocked_by(j.reason)) for j in read.jobs}
    ids = machine.run("squeue", "-h", "-r", "-t", "PD", "-o", "%i %j").splitlines()
    seen.pending_tasks = sum("+1" not in line and "no GPUs" not in line for line in ids)
    machine.run("scancel", "-u", "alice", "-u", "bob")
    machine.run("scancel", "--state=PENDING", "-u", "bob")
    machine.wait_empty()


def meet_faults(machine: SlurmMachine, seen: Seen) -> None:
    """What becomes of a job, and of the node, where prolog and epilog meet a fault."""
    folder = "/run/skuwise-slurm"
    back, disk, gone = f"rm -rf {folder}; mv {folder}.away {folder}", "mount -t tmpfs -o mode=0755", f"umount {folder}"
    on_nodes = {
        "full disk": (f"{disk},size=16k tmpfs {folder}; cat /dev/zero > {folder}/fill; true", gone),
        "read-only disk": (f"{disk},ro tmpfs {folder}", gone),
        "no folder": (f"mv {folder} {folder}.away", back),
        "a file for a folder": (f"mv {folder} {folder}.away; : > {folder}", back),
    }
    for name, (before, after) in on_nodes.items():
        machine.run("sh", "-c", before)
        job = machine.batch("alice", name, 1, "true")
        machine.wait_empty()
        seen.faulty_jobs[name] = machine.job_state(job)
        seen.node_states.append(machine.node_state())
        machine.run("sh", "-c", after)


# What the issue allows between a stamp of ours and Slurm's own record, which is in whole seconds.
TOLERANCE_SECONDS = 2.0
COLUMNS = ("GPUs", "name", "user", "account", "partition", "QOS", "array", "start", "end")
# What is known of a job before its name is asked of Slurm's accounting.
RECORDED = ("GPUs", "user", "account", "partition", "start", "end")


def differences(seen: Seen, rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Where `rows` of one layout are not as Slurm's own record has each run of a job. Only `columns` count."""
    assert {job.name for job in seen.accounted} == set(seen.cases)
    result: list[str] = []
    for job_id in dict.fromkeys(job.job_id for job in seen.accounted):
        runs = sorted((job for job in seen.accounted if job.job_id == job_id), key=lambda job: job.start)
        workloads: dict[str, list[Row]] = {}
        for row in sorted((row for row in rows if row["job_id"] == job_id), key=lambda row: row["ts_start"]):
            workloads.setdefault(row["workload_id"], []).append(row)
        for run, of_run in zip_longest(runs, workloads.values()):
            ours, right = _sides(seen, run, of_run or [])
            where = f"{seen.layout.name}, {seen.cases[runs[0].name]}, job {job_id}"
            wrong = [name for name in ("run", *columns) if name in right and ours[name] != right[name]]
            result += [f"{where}: {name} {ours[name]} [{right[name]}]" for name in wrong]
    return result


def _sides(seen: Seen, run: AccountedJob | None, rows: Sequence[Row]) -> tuple[dict[str, str], dict[str, str]]:
    """A run as skuwise has it, and as it is right."""
    if run is None or run.end is None or not rows:
        return {"run": f"{len(rows)} rows"}, {"run": run.state if run else "Slurm knows no such run"}
    entries = [entry for entry in seen.truth.get(run.job_id, ()) if run.start - 1 <= entry["started"] <= run.end + 1]
    first, ends = rows[0], [row["ts_end"] for row in rows]
    start, end = min(row["ts_start"] for row in rows) - run.start, None if None in ends else max(ends) - run.end
    shared = " shared" if any(row["shared"] for row in rows) else ""
    ours = {
        "GPUs": f"{sorted({minor_of(row['gpu_uuid']) for row in rows})}{shared}",
        **{column: str(first[column]) for column in ("name", "user", "account", "partition")},
        "QOS": str(first.get("qos")),
        "array": f"{first['array_job_id']}_{first['array_task_id']}" if first.get("array_job_id") else "-",
        "start": f"{start:+.1f} s",
        "end": "open" if end is None else f"{end:+.1f} s",
    }
    in_time = {"start": abs(start) <= TOLERANCE_SECONDS, "end": end is not None and abs(end) <= TOLERANCE_SECONDS}
    right = {
        "GPUs": str(sorted({minor for entry in entries for minor in entry["gpus"]})), "name": run.name,
        "user": run.user, "array": run.job if "_" in run.job else "-", "account": run.account,
        "partition": run.partition, "QOS": run.qos,
    } | {name: ours[name] if fits else "0 s" for name, fits in in_time.items()}  # fmt: skip
    return ours, right
