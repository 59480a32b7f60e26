"""A real slurmctld with munge on loopback, of nodes that nobody starts: it takes files and commands as any other."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from skuwise.tests.support.prometheus_engines import START_SECONDS, free_port, needed

# Nodes in the cloud are schedulable without a slurmd.
_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
MpiDefault=none
SwitchType=switch/none
TaskPlugin=task/none
PrivateData=cloud
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=3600
ResumeTimeout=3600
"""


@dataclass(frozen=True, slots=True)
class Slurm:
    """A running controller. `conf`: its slurm.conf; `lines`: the part of it that a test gave."""

    folder: Path

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "SLURM_CONF": str(self.conf)}
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, cwd=self.folder)

    def accepts(self, script: str) -> tuple[bool, str]:
        """Whether sbatch would take a script, and what it says."""
        path = self.folder / "job.sh"
        path.write_bytes(script.encode())
        done = self.run("sbatch", "--test-only", str(path))
        return done.returncode == 0, done.stderr


@contextmanager
def slurm(folder: Path, lines: str) -> Iterator[Slurm]:
    """A controller with these nodes and partitions."""
    needed("slurmctld", "scontrol", "sbatch", "munged")
    folder = folder.resolve()
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "munge").chmod(0o700)
    key = folder / "munge/key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    head = _CONF.format(
        host=socket.gethostname().partition(".")[0], user=getpass.getuser(), folder=folder, port=free_port()
    )
    engine = Slurm(folder)
    engine.conf.write_text(head + lines)
    places = [f"--{what}-file={folder}/munge/{what}" for what in ("key", "log", "pid", "seed")]
    munge = [shutil.which("munged") or "munged", "-F", "--force", f"--socket={folder}/munge/socket", *places]
    with _running(munge, folder / "munged.log"):
        _until((folder / "munge/socket").exists, folder / "munged.log")
        with _running(["slurmctld", "-D", "-c", "-i", "-f", str(engine.conf)], folder / "slurmctld.log"):
            _until(lambda: engine.run("scontrol", "ping").returncode == 0, folder / "slurmctld.log")
            yield engine


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            process.kill()


def _until(ready, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.1)
