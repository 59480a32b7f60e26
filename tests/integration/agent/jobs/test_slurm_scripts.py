"""Slurm's prolog and epilog: they end with 0 whatever happens, and leave whole files or none; the environ helper."""

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from skuwise.agent.jobs.environ_helper import HelperVariables, listen, serve
from skuwise.agent.jobs.scheduler_claims import DeviceClaim
from skuwise.agent.jobs.slurm import read_job_files
from skuwise.tests.support.sysfs_trees import Procfs
from skuwise.tests.unit.agent.jobs.test_command_line import SLURM, proc

SCRIPTS = Path(__file__).parents[4] / "systemd/slurm"
TRUSTED = frozenset({0, os.getuid()})
SHELLS = [shell for shell in ("/bin/dash", "/bin/bash") if Path(shell).exists()] or ["/bin/sh"]
# As a real 22.05 calls it: no PATH, no HOME, no name of the job.
JOB = {
    "SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0,1", "SLURM_JOB_UID": "1000", "SLURM_JOB_USER": "ada",
    "SLURM_JOB_ACCOUNT": "nlp", "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_RESTART_COUNT": "0",
    "SLURM_CLUSTER_NAME": "lab", "SLURMD_NODENAME": "n1", "SLURM_CONF": "/etc/slurm/slurm.conf",
}  # fmt: skip


def run(
    name: str,
    folder: Path,
    environ: Mapping[str, str] = JOB,
    *,
    shell: str = SHELLS[0],
    before: Callable[[], None] | None = None,
    scripts: Path = SCRIPTS,
) -> int:
    variables = {"SKUWISE_ALLOCATIONS": str(folder), **environ}
    command = [shell, str(scripts / name)]
    for _ in range(100):
        # A machine that is short of processes may refuse to start the shell itself, which is not the script's fault.
        with contextlib.suppress(BlockingIOError):
            return subprocess.run(command, env=variables, check=False, timeout=60, preexec_fn=before).returncode
        time.sleep(0.1)
    raise BlockingIOError(f"{shell} could not be started")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_run_has_its_start_and_its_end(tmp_path: Path, shell: str) -> None:
    before = time.time()
    assert run("prolog.sh", tmp_path, shell=shell) == 0
    (job,) = read_job_files(tmp_path, TRUSTED).jobs
    assert job.until is None and job.since is not None and before - 1 < job.since <= time.time()
    assert job == DeviceClaim(
        job_id="42", devices=("0", "1"), user="ada", account="nlp", partition="gpu", node="n1", restarts=0, uid=1000,
        conf="/etc/slurm/slurm.conf", since=job.since,
    )  # fmt: skip
    assert run("epilog.sh", tmp_path, shell=shell) == 0
    (over,) = read_job_files(tmp_path, TRUSTED).jobs
    assert over.until is not None and job.since <= over.until <= time.time()
    assert run("epilog.sh", tmp_path, shell=shell) == 0
    again, other = read_job_files(tmp_path, TRUSTED).jobs
    assert again == over and other.since is None  # it could be of a run without a prolog, and its begin is unknown


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
    job_file, two = read_job_files(tmp_path, TRUSTED).jobs
    assert job_file == first and two.until is not None and job_file.until is not None and two.until >= job_file.until


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
    for job_id in ("", "../x", "1;id", "-1", "4 2"):
        assert run("prolog.sh", tmp_path / "folder", JOB | {"SLURM_JOB_ID": job_id}) == 0
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_where_no_fork_is_left_the_run_is_recorded_all_the_same(shell: str) -> None:
    uid = os.getuid() or 65534
    # Pytest's folders and the checkout need not be open to every user.
    with tempfile.TemporaryDirectory(prefix="skuwise-scripts-") as place:
        folder, scripts = Path(place, "folder"), Path(place, "scripts")
        shutil.copytree(SCRIPTS, scripts)
        folder.mkdir()
        for path in (Path(place), folder):
            path.chmod(0o755)

        def before() -> None:
            if os.getuid() == 0:  # the limit does not hold for root
                os.chown(folder, uid, uid)
                os.setgid(uid)
                os.setuid(uid)
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

        for name in ("prolog.sh", "epilog.sh"):
            assert run(name, folder, shell=shell, before=before, scripts=scripts) == 0
        (job,) = read_job_files(folder, frozenset({uid})).jobs
    assert job.devices == ("0", "1") and job.until is not None


def test_names_chosen_by_users_do_not_reach_past_their_line(tmp_path: Path) -> None:
    run("prolog.sh", tmp_path, JOB | {"SLURM_JOB_GPUS": "0,$(id)", "SLURM_JOB_ACCOUNT": "../../etc"})
    assert read_job_files(tmp_path, TRUSTED).refused == (("42-0.job", "a line that the prolog does not write: gpus"),)
    hostile = "\x1b[31m`id`$(id)%s%n\\n" + "x" * 5000 + "\ngpus=0-7\ncomplete=1"
    run("prolog.sh", tmp_path, JOB | {"SLURM_JOB_ACCOUNT": hostile, "SLURM_JOB_PARTITION": "\ngpus=0-7"})
    (job,) = read_job_files(tmp_path, TRUSTED).jobs
    assert (job.devices, job.partition) == (("0", "1"), None)
    assert job.account is not None and job.account.startswith("[31m`id`$(id)%s%n\\nxxx") and len(job.account) <= 64


def test_the_scripts_write_nowhere_that_a_link_leads_to(tmp_path: Path) -> None:
    elsewhere, folder, marker = tmp_path / "elsewhere", tmp_path / "folder", tmp_path / "drained"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    marker.symlink_to(elsewhere)
    run("prolog.sh", folder)
    drained = {"SKUWISE_DRAINED_MARKER": str(marker)}
    subprocess.run(["/bin/sh", str(SCRIPTS / "drained.sh"), "bad", "DIMM"], env=drained, check=True, timeout=60)
    assert list(elsewhere.iterdir()) == [] and elsewhere.stat().st_mode & 0o777 == 0o700
    assert not marker.is_symlink() and marker.read_text() == "bad DIMM\n"
    subprocess.run(["/bin/sh", str(SCRIPTS / "drained.sh"), "--clear"], env=drained, check=True, timeout=60)
    assert not marker.exists()


@contextmanager
def served(where: Path, procfs: Path, uids: frozenset[int]) -> Iterator[None]:
    """A helper at `where` that answers processes of these users."""
    with listen(where) as listener:
        thread = threading.Thread(target=serve, args=(listener, procfs, uids))
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert not thread.is_alive()


def test_the_agent_asks_only_where_it_may_not_read_itself_and_another_user_is_told_nothing(
    tmp_path: Path, proc: Procfs
) -> None:
    blind, path = Procfs(tmp_path / "blind"), tmp_path / "environ.sock"
    blind.process(700, cgroup=SLURM)
    with served(path, proc.root, frozenset({os.getuid()})):
        variables = HelperVariables(blind.root, path)
        assert variables(700) == {"SLURM_JOB_ID": "42", "SLURM_JOB_NAME": "a[31m b"}
        assert variables(701) == {} and path.stat().st_mode & 0o777 == 0o600
    with served(path, proc.root, frozenset({65533})):
        assert HelperVariables(blind.root, path)(700) == {}


__all__ = ["proc"]
