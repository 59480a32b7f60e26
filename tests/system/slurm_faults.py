"""Prolog and epilog under faults: ``slurm_faults.py SEED COUNT``, as root inside the booted node.

Prints JSON: the status that each of COUNT runs under a fault drawn by SEED ended with, and how long each of 100 runs
without a fault took. The faults are real: disks without room, refused forks, missing and failing programs, closed
files.
"""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

SCRIPTS = {"prolog": "/etc/skuwise/slurm/prolog.sh", "epilog": "/etc/skuwise/slurm/epilog.sh"}
FOLDER = Path("/run/skuwise-slurm")
CGROUPS = Path("/sys/fs/cgroup")
PIDS = CGROUPS / "pids" if (CGROUPS / "pids").is_dir() else CGROUPS
TIMED = 100
# As a real slurmd of 22.05 has it, without the variables that name no job.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "0", "PWD": "/var/log/slurm", "SLURMD_NODENAME": "gpunode", "SLURM_CLUSTER_NAME": "lab",
    "SLURM_CONF": "/etc/slurm/slurm.conf", "SLURM_JOBID": "900", "SLURM_JOB_ACCOUNT": "vision", "SLURM_JOB_GID": "1000",
    "SLURM_JOB_GPUS": "0", "SLURM_JOB_ID": "900", "SLURM_JOB_PARTITION": "main", "SLURM_JOB_RESTART_COUNT": "0",
    "SLURM_JOB_UID": "1000", "SLURM_JOB_USER": "alice", "SLURM_JOB_WORK_DIR": "/home/alice", "SLURM_UID": "1000",
    "SLURM_NODELIST": "gpunode", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd",
}  # fmt: skip
HOSTILE = (
    "x\nversion=2\njob_id=1",
    "%s%n%s",
    "$(touch /hostile)",
    "../../etc/passwd",
    "\x1b[31m",
    "a" * 100_000,
    "",
    "-",
)
# Changed variables, what the process does before it becomes the script, and what stands before the script's name.
Start = tuple[dict[str, str], Callable[[], object] | None, list[str]]
Fault = Callable[[random.Random, ExitStack], Start]


@contextmanager
def mounted(options: str) -> Iterator[Path]:
    """A small disk of its own, and on it the folder."""
    place = Path("/run/faults")
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def full(draw: random.Random, stack: ExitStack) -> Start:
    place = stack.enter_context(mounted("size=64k,mode=0755"))
    stray = draw.choice([0, 1, 4096])  # as many bytes are left
    with (place / "fill").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
        file.truncate(max(0, file.tell() - stray))
    return {"SKUWISE_ALLOCATIONS": str(place)}, None, []


def no_inode(draw: random.Random, stack: ExitStack) -> Start:
    place = stack.enter_context(mounted(f"nr_inodes={draw.randint(1, 3)},mode=0755"))
    return {"SKUWISE_ALLOCATIONS": str(place / draw.choice(["", "below"]))}, None, []


def read_only(draw: random.Random, stack: ExitStack) -> Start:
    place = stack.enter_context(mounted("ro,mode=0755"))
    return {"SKUWISE_ALLOCATIONS": str(place / draw.choice(["", "below"]))}, None, []


def odd_folder(draw: random.Random, stack: ExitStack) -> Start:
    place = stack.enter_context(mounted("size=1m,mode=0755")) / "folder"
    kind = draw.choice(["missing", "file", "dangling", "link", "foreign", "closed", "deep", "endless", "fifo"])
    if kind == "file":
        place.write_text("")
    elif kind in ("dangling", "link", "endless"):
        place.symlink_to({"dangling": "/nowhere", "link": "/etc", "endless": "folder"}[kind])
    elif kind in ("foreign", "closed"):
        place.mkdir(mode=0o755 if kind == "foreign" else 0)
        os.chown(place, 1000 if kind == "foreign" else 0, 0)
    elif kind == "fifo":
        place.mkdir()
        for name in ("900-0.job", "900-0.end"):
            (place / name).mkdir()  # what is to be a file is none
    return {"SKUWISE_ALLOCATIONS": str(place / "a/b/c") if kind == "deep" else str(place)}, None, []


def no_fork(draw: random.Random, stack: ExitStack) -> Start:
    """The shell itself is the first of so many processes."""
    group = PIDS / "faults"
    group.mkdir()
    stack.callback(group.rmdir)
    (group / "pids.max").write_text(str(draw.randint(1, 3)))
    environment = {} if draw.random() < 0.5 else {"SKUWISE_ALLOCATIONS": "/run/faults/missing"}
    return environment, lambda: (group / "cgroup.procs").write_text(str(os.getpid())), []


def no_tools(draw: random.Random, stack: ExitStack) -> Start:
    """In a mount name space where the programs' folder has a shell and nothing else, or programs that fail."""
    place = stack.enter_context(mounted("size=8m,mode=0755"))
    tools = place / "bin"
    tools.mkdir()
    shutil.copy("/usr/bin/dash", tools / "sh")
    if draw.random() < 0.5:
        for name in ("mkdir", "mv", "mktemp", "find", "rm", "date", "cut", "tr", "chmod", "basename", "touch"):
            (tools / name).write_text("#!/bin/sh\nexit 3\n")
            (tools / name).chmod(0o755)
    missing = {} if draw.random() < 0.5 else {"SKUWISE_ALLOCATIONS": str(place / "missing")}
    before = ["unshare", "-m", "sh", "-c", f'mount --bind {tools} /usr/bin && exec "$0"']
    return missing, None, before


def limits(draw: random.Random, _: ExitStack) -> Start:
    # A shell needs a descriptor above 10 for the script itself.
    known = ((resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_FSIZE, 20), (resource.RLIMIT_NOFILE, draw.randint(11, 13)))
    which, value = draw.choice(known)
    return {}, lambda: resource.setrlimit(which, (value, value)), []


def closed(draw: random.Random, _: ExitStack) -> Start:
    which = draw.choice([[0], [1], [2], [0, 1, 2]])

    def close() -> None:
        for descriptor in which:
            os.close(descriptor)

    return {}, close, []


def hostile(draw: random.Random, _: ExitStack) -> Start:
    names = (*draw.sample(sorted(ENVIRONMENT), 3), "SLURM_JOB_NAME", "SLURM_JOB_COMMENT", "IFS", "ENV", "PS4")
    return {name: draw.choice(HOSTILE) for name in names}, None, []


def twice(draw: random.Random, _: ExitStack) -> Start:
    for name in draw.choices(sorted(SCRIPTS), k=draw.randint(1, 3)):
        subprocess.run([SCRIPTS[name]], env=ENVIRONMENT, check=True)
    return {}, None, []


FAULTS: tuple[Fault, ...] = (full, no_inode, read_only, odd_folder, no_fork, no_tools, limits, closed, hostile, twice)


def main() -> None:
    draw = random.Random(int(sys.argv[1]))
    enabled = CGROUPS / "cgroup.subtree_control"  # of version 2
    can_limit = PIDS != CGROUPS or "pids" in enabled.read_text().split()
    faults = [fault for fault in FAULTS if fault is not no_fork or can_limit]
    ended: list[tuple[str, str, int]] = []
    for number in range(int(sys.argv[2])):
        fault, name = faults[number % len(faults)], draw.choice(sorted(SCRIPTS))
        with ExitStack() as stack:
            changed, before_exec, before = fault(draw, stack)
            environment = {} if fault is hostile and draw.random() < 0.1 else {**ENVIRONMENT, **changed}
            environment = {name: value for name, value in environment.items() if "\0" not in value}
            done = subprocess.run(
                [*before, SCRIPTS[name]],
                env=environment,
                preexec_fn=before_exec,
                capture_output=True,
                cwd="/",
                check=False,
            )
            ended.append((fault.__name__, name, done.returncode))
    times: dict[str, list[float]] = {name: [] for name in SCRIPTS}
    for number in range(TIMED):
        for name in ("prolog", "epilog"):
            environment = {**ENVIRONMENT, "SLURM_JOB_ID": str(1000 + number)}
            began = time.perf_counter()
            subprocess.run([SCRIPTS[name]], env=environment, check=True)
            times[name].append(time.perf_counter() - began)
    for path in FOLDER.glob("*-*.*"):
        if path.name.split("-")[0] == "900" or int(path.name.split("-")[0]) >= 1000:
            path.unlink()
    print(json.dumps({"ended": ended, "seconds": times}))  # noqa: T201


if __name__ == "__main__":
    main()
