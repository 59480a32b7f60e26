"""Slurm's prolog and epilog under faults: they end with 0 whatever happens, and leave whole files or none.

A prolog that fails drains the node, so nothing that can go wrong on one may show in the exit status: no disk, no fork,
no descriptor, no tool, no folder, a signal at any moment, and any environment.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from skuwise.agent.inventory.slurm.job_files import JobFile, parse_job_file, read_job_files

SCRIPTS = Path(__file__).parents[4] / "systemd/slurm"
TRUSTED = frozenset({0, os.getuid()})
SHELLS = [shell for shell in ("/bin/dash", "/bin/bash") if Path(shell).exists()] or ["/bin/sh"]
# As a real 22.05 calls it: no PATH, no HOME, no name of the job.
JOB = {
    "SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0,1", "SLURM_JOB_UID": "1000", "SLURM_JOB_USER": "ada",
    "SLURM_JOB_ACCOUNT": "nlp", "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_RESTART_COUNT": "0",
    "SLURM_CLUSTER_NAME": "lab", "SLURMD_NODENAME": "n1", "SLURM_CONF": "/etc/slurm/slurm.conf",
}  # fmt: skip
# A shell needs a dozen descriptors to open its script at all.
_FEWEST_DESCRIPTORS = 12


def run(
    name: str,
    folder: Path,
    environ: Mapping[str, str] = JOB,
    *,
    shell: str = SHELLS[0],
    before: Callable[[], None] | None = None,
    scripts: Path = SCRIPTS,
) -> int:
    told = {"SKUWISE_ALLOCATIONS": str(folder), **environ}
    command = [shell, str(scripts / name)]
    for _ in range(100):
        # A machine that is short of processes may refuse to start the shell itself, which is not the script's fault.
        with contextlib.suppress(BlockingIOError):
            done = subprocess.run(command, env=told, check=False, timeout=60, preexec_fn=before, capture_output=True)
            return done.returncode
        time.sleep(0.1)
    raise BlockingIOError(f"{shell} could not be started")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder with the scripts that every user may reach: neither pytest's folders nor the checkout need be."""
    place = Path(tempfile.mkdtemp(prefix="skuwise-scripts-"))
    place.chmod(0o755)
    shutil.copytree(SCRIPTS, place / "scripts")
    try:
        yield place
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_run_has_its_start_and_its_end(tmp_path: Path, shell: str) -> None:
    before = time.time()
    assert run("prolog.sh", tmp_path, shell=shell) == 0
    (job,) = read_job_files(tmp_path, TRUSTED).jobs
    assert job.until is None and job.since is not None and before - 1 < job.since <= time.time()
    assert job == JobFile(
        "42", ("0", "1"), user="ada", account="nlp", partition="gpu", cluster="lab", node="n1", restarts=0, uid=1000,
        conf="/etc/slurm/slurm.conf", since=job.since,
    )  # fmt: skip
    assert run("epilog.sh", tmp_path, shell=shell) == 0
    (over,) = read_job_files(tmp_path, TRUSTED).jobs
    assert over.until is not None and job.since <= over.until <= time.time()
    assert run("epilog.sh", tmp_path, shell=shell) == 0
    again, other = read_job_files(tmp_path, TRUSTED).jobs
    assert again == over and other.since is None  # it could be of a run without a prolog, and nobody saw it begin


@pytest.mark.parametrize("shell", SHELLS)
def test_called_twice_the_first_start_stands_and_another_run_is_another(tmp_path: Path, shell: str) -> None:
    run("prolog.sh", tmp_path, shell=shell)
    (first,) = read_job_files(tmp_path, TRUSTED).jobs
    os.utime(tmp_path / "42-0.job", (1e9, 1e9))
    run("prolog.sh", tmp_path, shell=shell)
    (again,) = read_job_files(tmp_path, TRUSTED).jobs
    assert again.since == 1e9 and again.devices == first.devices
    # The id came back for another job, while nobody had told of the end of the first.
    run("prolog.sh", tmp_path, JOB | {"SLURM_JOB_GPUS": "7"}, shell=shell)
    (other,) = read_job_files(tmp_path, TRUSTED).jobs
    assert other.devices == ("7",) and other.since is not None and other.since > 1e9


@pytest.mark.parametrize("shell", SHELLS)
def test_a_requeued_run_is_ended_although_its_epilog_is_told_the_next_count(tmp_path: Path, shell: str) -> None:
    run("prolog.sh", tmp_path, shell=shell)
    again = JOB | {"SLURM_JOB_RESTART_COUNT": "1"}
    run("epilog.sh", tmp_path, again, shell=shell)
    run("prolog.sh", tmp_path, again, shell=shell)
    first, second = read_job_files(tmp_path, TRUSTED).jobs
    assert (first.restarts, second.restarts, second.until) == (0, 1, None)
    assert first.until is not None
    run("epilog.sh", tmp_path, again, shell=shell)
    one, two = read_job_files(tmp_path, TRUSTED).jobs
    assert one == first and two.until is not None and one.until is not None and two.until >= one.until


@pytest.mark.parametrize("shell", SHELLS)
def test_the_epilog_writes_what_no_prolog_wrote(tmp_path: Path, shell: str) -> None:
    """As slurmd 22.05 does for most runs of a requeued job: an epilog, told the count of this run, and no prolog."""
    run("prolog.sh", tmp_path, shell=shell)
    again = JOB | {"SLURM_JOB_RESTART_COUNT": "1", "SLURM_JOB_GPUS": "7", "SLURM_JOB_ACCOUNT": "a\nb%s"}
    run("epilog.sh", tmp_path, again, shell=shell)
    run("epilog.sh", tmp_path, again, shell=shell)
    first, second = read_job_files(tmp_path, TRUSTED).jobs
    assert (first.without_prolog, first.restarts, first.devices) == (False, 0, ("0", "1"))
    assert (second.without_prolog, second.restarts, second.devices) == (True, 1, ("7",))
    assert (second.since, second.account, second.node) == (None, "a", "n1")
    assert second.until is not None and first.until is not None and second.until >= first.until
    (tmp_path / "42-1.end").unlink()
    assert read_job_files(tmp_path, TRUSTED).jobs == (first,)  # the epilog is just writing


def test_what_ended_is_tidied_away_and_what_runs_stays(tmp_path: Path) -> None:
    for number in range(30):
        run("prolog.sh", tmp_path, JOB | {"SLURM_JOB_ID": str(number)})
        os.utime(tmp_path / f"{number}-0.job", (1e9, 1e9))
        if number < 20:
            run("epilog.sh", tmp_path, JOB | {"SLURM_JOB_ID": str(number)})
    for number in range(15):
        os.utime(tmp_path / f"{number}-0.end", (1e9, 1e9))
    run("epilog.sh", tmp_path, JOB | {"SLURM_JOB_ID": "29"})
    assert {job.job_id for job in read_job_files(tmp_path, TRUSTED).jobs} == {str(n) for n in range(15, 30)}
    assert len(list(tmp_path.iterdir())) == 15 + 6


def test_neither_script_starts_a_program_on_an_ordinary_node(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    for name in ("prolog.sh", "epilog.sh"):
        log = tmp_path / f"{name}.log"
        command = ["strace", "-f", "-e", "trace=process", "-o", str(log), SHELLS[0], str(SCRIPTS / name)]
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        done = subprocess.run(command, env=JOB | {"SKUWISE_ALLOCATIONS": str(folder)}, check=False, timeout=60)
        if done.returncode != 0:
            pytest.skip("strace may not trace here")
        calls = [line.split(maxsplit=1)[1] for line in log.read_text().splitlines()]
        assert any(call.startswith("execve(") for call in calls)
        assert not [call for call in calls if call.startswith(("clone", "fork", "vfork"))]


@pytest.mark.parametrize("shell", SHELLS)
def test_where_no_fork_is_left_the_run_is_recorded_all_the_same(open_place: Path, shell: str) -> None:
    uid = os.getuid() or 65534
    folder = open_place / "folder"
    folder.mkdir()
    if os.getuid() == 0:
        os.chown(folder, uid, uid)

    def before() -> None:
        if os.getuid() == 0:  # the limit does not hold for root
            os.setgid(uid)
            os.setuid(uid)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

    for name in ("prolog.sh", "epilog.sh"):
        assert run(name, folder, shell=shell, before=before, scripts=open_place / "scripts") == 0
    (job,) = read_job_files(folder, frozenset({uid})).jobs
    assert job.devices == ("0", "1") and job.until is not None


# Faults. Each returns what to do in the child before the script begins; None: the fault lies elsewhere.


class Faults:
    """Breaks one thing or several around the folder, by chance."""

    def __init__(self, root: Path, disk: Path | None, rng: random.Random) -> None:
        self.root = root
        self.disk = disk
        self.rng = rng

    def folder(self) -> Path:
        """A folder in one of many states."""
        place = self.root / f"f{self.rng.getrandbits(48):012x}"
        kind = self.rng.choice(
            ["there", "there", "missing", "link", "dangling", "file", "closed", "deep", "full", "odd", "loop"]
        )
        if kind == "full" and self.disk is not None:
            return self.disk
        if kind == "link":
            (self.root / "elsewhere").mkdir(exist_ok=True)
            place.symlink_to(self.root / "elsewhere")
        elif kind == "dangling":
            place.symlink_to(self.root / "nowhere/at/all")
        elif kind == "loop":
            place.symlink_to(place)
        elif kind == "file":
            place.write_text("x")
        elif kind == "closed":
            place.mkdir(mode=0o555)
        elif kind == "deep":
            return place / "a" / "b"
        elif kind == "odd":
            place = place / "a b\n*?[x]$(id)"
            place.mkdir(parents=True)
        elif kind != "missing":
            place.mkdir()
            self._litter(place)
        return place

    def _litter(self, place: Path) -> None:
        for name in ("42-0.job", "42-0.end", "42-1.job"):
            what = self.rng.choice(["", "", "file", "folder", "link", "fifo-less"])
            if what == "file":
                (place / name).write_bytes(self.rng.randbytes(self.rng.choice([0, 10, 5000])))
            elif what == "folder":
                (place / name).mkdir()
            elif what == "link":
                (place / name).symlink_to(self.root / "nowhere")

    def environ(self) -> dict[str, str]:
        """Slurm's variables, some of them missing, and some as a hostile user would like them."""
        # One long value: the kernel starts nothing where all take more than a quarter of the stack (execve(2)).
        long = "x" * 100_000
        odd = ["", long, "a\nb=c\ncomplete=1", "$(touch /x)`id`", "%s%n%d", "-n", "*", "\x1b[2J", "'\"\\", "٣"]
        chosen = dict(JOB)
        for name in (*JOB, "IFS", "PATH", "LC_ALL", "ENV", "BASH_ENV", "PS4", "CDPATH", "SLURM_JOB_NAME", "HOME"):
            if self.rng.random() < 0.15:
                chosen[name] = self.rng.choice(odd)
                if chosen[name] is long:
                    odd.remove(long)
            elif self.rng.random() < 0.1:
                chosen.pop(name, None)
        return chosen

    def limits(self, shell: str) -> Callable[[], None]:
        """What the child is refused: forks, descriptors, file sizes, memory, open standard streams."""
        rng = self.rng
        kinds = ["none", "fork", "fork", "size", "descriptors", "streams", "memory", "several"]
        if "bash" in shell:  # it asks for a fork again and again for 15 s, and then ends with 0 as well
            kinds = [kind for kind in kinds if kind not in ("fork", "several")]
        kind = rng.choice(kinds)
        size, descriptors = rng.choice([0, 1, 100, 200]), rng.randint(_FEWEST_DESCRIPTORS, 20)
        streams = rng.choice([(0,), (1,), (2,), (0, 1, 2)])

        def before() -> None:
            if kind in ("size", "several"):
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            if kind in ("descriptors", "several"):
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
            if kind == "memory":
                resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))
            if kind == "streams":
                for stream in streams:
                    os.close(stream)
            if kind in ("fork", "several"):
                if os.geteuid() == 0:  # the limit does not hold for root
                    os.setgid(65534)
                    os.setuid(65534)
                resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

        return before


@contextlib.contextmanager
def full_disk(root: Path) -> Iterator[Path | None]:
    """A small file system without room; None where mounting is not allowed."""
    place = root / "disk"
    place.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=16k,nr_inodes=8", "tmpfs", str(place)]
    done = subprocess.run(options, check=False, capture_output=True)
    if done.returncode != 0:
        yield None
        return
    try:
        with contextlib.suppress(OSError):
            (place / "fill").write_bytes(b"x" * (64 << 10))
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
def test_200_faults_end_with_0_and_leave_whole_files_or_none(open_place: Path, seed_of: Callable[[int], int]) -> None:
    rng = random.Random(seed_of(13))
    ended: dict[tuple[str, int], int] = {}
    with full_disk(open_place) as disk:
        faults = Faults(open_place, disk, rng)
        for _ in range(200):
            folder, environ, shell = faults.folder(), faults.environ(), rng.choice(SHELLS)
            for name in rng.choice([("prolog.sh",), ("prolog.sh", "epilog.sh"), ("prolog.sh", "prolog.sh")]):
                status = run(
                    name, folder, environ, shell=shell, before=faults.limits(shell), scripts=open_place / "scripts"
                )
                ended[name, status] = ended.get((name, status), 0) + 1
            for job in read_job_files(folder, TRUSTED | {65534}).jobs:
                assert job.devices is not None and (job.since is not None or job.without_prolog)
    assert {status for _, status in ended} == {0}
    assert sum(ended.values()) >= 200


def test_a_signal_at_any_moment_ends_with_0_and_a_killed_prolog_leaves_no_half_file(
    tmp_path: Path, seed_of: Callable[[int], int]
) -> None:
    rng = random.Random(seed_of(7))
    ends = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL)
    for turn in range(40):
        number, name = ends[turn % len(ends)], rng.choice(["prolog.sh", "epilog.sh"])
        environ = JOB | {"SLURM_JOB_ID": str(turn), "SKUWISE_ALLOCATIONS": str(tmp_path)}
        with subprocess.Popen([SHELLS[0], str(SCRIPTS / name)], env=environ) as child:
            time.sleep(rng.random() * 0.004)
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)
            status = child.wait(timeout=60)
        # The script's second line sets the trap; a signal before it meets the shell alone.
        assert status in (0, -number.value)
    for path in tmp_path.glob("*.job"):
        assert isinstance(parse_job_file(path.read_bytes(), path.name.partition("-")[0]), JobFile | None)
