"""A machine to test on: a Debian tree that systemd boots in a container, and the agent installed in it.

Needs root, debootstrap and systemd-nspawn, a package mirror (or a minimal Debian tree with systemd, python3 and rpm
that ``DEBIAN_ROOT`` names; it is copied), and an index for pip. Skipped, with the reason, where one is missing.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from skuwise.tests.nvmlstub import StubBuildError, build
from skuwise.tests.support.shared_artifacts import PROJECT, once, wheel
from skuwise.tests.support.stored_rows import rows

PYTHON = "/opt/skuwise/bin/python"
STATE = "/var/lib/skuwise"
BOOT = ("debootstrap", "systemd-nspawn", "nsenter")
DATABASE = f"{STATE}/skuwise.db"


def must(*command: str | Path, skip: str = "") -> str:
    """What the command printed. Where it fails the test does too, or is skipped with `skip` as the reason."""
    done = subprocess.run([str(entry) for entry in command], capture_output=True, text=True, check=False)
    if done.returncode != 0 and skip:
        pytest.skip(f"{skip}: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def until(true: Callable[[], bool], seconds: float = 60, what: str = "it") -> None:
    """Wait for what must come about."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, f"{what} did not come about"
        time.sleep(0.3)


def skip_without(*tools: str) -> None:
    """Skip where this side cannot make a container with these tools."""
    if os.geteuid() != 0:
        pytest.skip("a container needs root")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


class Cgroups:
    """Cgroups of a container alone in hierarchies of version 1: what boots in them takes them for the roots."""

    def __init__(self, name: str, controllers: Sequence[str]) -> None:
        self.folders = tuple(self._own(controller) / name for controller in controllers)
        for folder in self.folders:
            folder.mkdir()

    @staticmethod
    def has(controller: str) -> bool:
        """Whether the hierarchy is mounted here in its version 1."""
        return Path("/sys/fs/cgroup", controller, "cgroup.procs").exists()

    @staticmethod
    def _own(controller: str) -> Path:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if controller in (name.removeprefix("name=") for name in names.split(",")) or (
                controller == "unified" and not names
            ):
                return Path("/sys/fs/cgroup", controller, path.strip("/"))
        pytest.skip(f"this process is in no cgroup of {controller}")

    def entered(self) -> list[str]:
        """What to put before a command, so that it runs in them."""
        into = "".join(f"echo $$ > {shlex.quote(str(folder))}/cgroup.procs; " for folder in self.folders)
        return ["sh", "-ec", f'{into}exec "$@"', "sh"]

    def remove(self) -> None:
        """When nothing runs in them any more."""
        for folder in self.folders:
            for path, _, _ in os.walk(folder, topdown=False):
                with contextlib.suppress(OSError):
                    Path(path).rmdir()


class Machine:
    """A booted container. `run` runs a command inside."""

    def __init__(
        self, root: Path, log: Path, cgroups: Cgroups, options: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.root, self.log, self.cgroups = root, log, cgroups
        command = ["systemd-nspawn", "--boot", "--register=no", "--keep-unit", "--machine=gpunode", "-D", str(root)]
        command, environment = [*cgroups.entered(), *command, *options], {**os.environ, **environment}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )

    def wait_for_login(self) -> None:
        """Until systemd has booted; skipped where it does not."""
        until(lambda: self.process.poll() is not None or "login:" in self.log.read_text(errors="replace"))
        if self.process.poll() is not None:
            pytest.skip(f"systemd-nspawn does not boot here: {self.log.read_text(errors='replace')[-500:]}")

    @property
    def leader(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def run(self, *command: str, check: bool = True, seconds: float = 120) -> str:
        inside = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-C", "--", *command]
        done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=seconds)
        if check:
            assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout.strip()

    def inside(self, path: str) -> Path:
        """A path of the container's disk as this side opens it; what is mounted inside is not there."""
        return self.root / path.lstrip("/")

    def shows(self, name: str) -> str:
        return self.run("systemctl", "show", "-P", name, "skuwise-agent.service")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return rows(self.inside(DATABASE), sql)

    def stop(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(OSError, IndexError):
                os.kill(self.leader, 9)
            self.process.wait(timeout=30)
        self.cgroups.remove()


@contextlib.contextmanager
def booted(factory: pytest.TempPathFactory, prepare: Callable[[Path], None]) -> Iterator[Machine]:
    """A copy of the minimal Debian with what `prepare` puts into it, booted; everyone may read its ``/opt``."""
    skip_without(*BOOT)
    folder = factory.mktemp("system")
    root = folder / "root"
    must("cp", "-a", minimal_debian(factory), root)
    prepare(root)
    must("chmod", "-R", "a+rX", root / "opt")
    # Which devices a unit may open is enforced in cgroups of version 2, by BPF programs.
    part = [name for name in ("systemd", "unified") if Cgroups.has(name)]
    cgroups = Cgroups(f"skuwise-{folder.name}-{os.getpid()}", part)
    options = ["--capability=all", "--system-call-filter=bpf"]
    machine = Machine(root, folder / "boot.log", cgroups, options, {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
    try:
        machine.wait_for_login()
        yield machine
    finally:
        machine.stop()
        shutil.rmtree(root)  # some 400 MB


def minimal_debian(factory: pytest.TempPathFactory) -> Path:
    """A tree that boots, made once a run. Do not change it: copy it."""
    values = os.environ.get("DEBIAN_ROOT")
    return Path(values) if values else once(factory, "debian", _debootstrap) / "root"


def _debootstrap(folder: Path) -> None:
    packages = "--include=systemd,systemd-sysv,dbus,python3,procps,rpm"
    command = ("debootstrap", "--variant=minbase", packages, "bookworm", folder / "root")
    must(*command, skip="debootstrap cannot make a root")


def put_agent(root: Path, factory: pytest.TempPathFactory) -> None:
    """This tree's wheel in an environment of the root's own, and the stub driver."""
    must("chroot", root, "/usr/bin/python3", "-m", "venv", "--without-pip", "/opt/skuwise")
    (packages,) = (root / "opt/skuwise/lib").glob("python3*/site-packages")
    version = packages.parent.name.removeprefix("python")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--python-version", version]
    pip += ["--target", packages]
    locked = ("--require-hashes", "-r", PROJECT / "requirements/agent.lock")
    must(*pip, *locked, skip="pip cannot fetch what the wheel needs")
    must(*pip, "--no-index", "--no-deps", wheel(factory))
    put_driver(root)


def put_driver(root: Path) -> None:
    """The stub driver in ``/opt/nvml``."""
    nvml = root / "opt/nvml"
    nvml.mkdir()
    shutil.copy(stub_library(), nvml)


def stub_library() -> Path:
    """The driver's library, the stub's; the test is skipped where it cannot be built."""
    try:
        return build() / "libnvidia-ml.so.1"
    except StubBuildError as error:
        pytest.skip(str(error))
