"""A bare Debian 12 with the packages of the documentation: the first commands of a new user, and what may go wrong.

The root is made by debootstrap and entered by chroot; pip reaches the index that this side's pip is set to. Times of
the demo are printed (``-s``), none is asserted. Python 3.10 and 3.13, which Debian 12 has not, are in
``tests/integration/project/test_setup.py``, as scripts that answer as they would.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from skuwise.tests.support.shared_artifacts import PROJECT, once
from skuwise.tests.system.machine import must, skip_without

pytestmark = [pytest.mark.system]

APT = re.search(r"^sudo apt-get install (git .*)$", (PROJECT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
CERTIFICATES = "/opt/index.crt"
USER = "someone"
# OR-tools, which makes plans, is 78 of them.
MEGABYTES = 500
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Settings of pip that name files of this side would lead nowhere inside.
INDEX = ("PIP_INDEX_URL", "PIP_PROXY", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy")


def _make(folder: Path) -> None:
    root = folder / "root"
    must("debootstrap", "--variant=minbase", "bookworm", root, skip="debootstrap cannot make a root")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    assert APT is not None
    install = f"apt-get -qq update && apt-get -qq install --no-install-recommends -y {APT[1]}"
    must("chroot", root, "env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "sh", "-c", install, skip="no mirror")
    must("chroot", root, "useradd", "--create-home", USER)
    bundle = os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt")
    if Path(bundle).exists():
        shutil.copy(bundle, root / CERTIFICATES.lstrip("/"))
    must("git", "clone", "--quiet", PROJECT, root / "src/skuwise")
    # What is not committed yet is tested as well.
    changed = must("git", "-C", PROJECT, "diff", "HEAD", "--binary")
    if changed:
        subprocess.run(["git", "-C", root / "src/skuwise", "apply"], input=changed, text=True, check=True)


class Debian:
    """The root with a checkout that belongs to one user, changed in a layer that goes with the test."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, command: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        home = "/root" if user == "root" else f"/home/{user}"
        environment = [f"{name}={os.environ[name]}" for name in INDEX if name in os.environ]
        if (self.root / CERTIFICATES.lstrip("/")).exists():
            environment.append(f"PIP_CERT={CERTIFICATES}")
        inside = ["/usr/bin/env", "-i", f"HOME={home}", f"PATH={PATH}", "LC_ALL=C", *environment, "sh", "-c"]
        words = ["chroot", f"--userspec={user}", self.root, *inside, f"cd /src/skuwise && {command}"]
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def left(self) -> list[str]:
        return sorted(path.name for path in (self.root / "src/skuwise").glob(".venv*"))


@pytest.fixture
def debian(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    skip_without("debootstrap", "chroot", "mount")
    lower = once(tmp_path_factory, "bare-debian", _make) / "root"
    root = tmp_path / "root"
    for name in ("upper", "work", "root"):
        (tmp_path / name).mkdir()
    layers = f"lowerdir={lower},upperdir={tmp_path / 'upper'},workdir={tmp_path / 'work'}"
    must("mount", "-t", "overlay", "overlay", "-o", layers, root, skip="no overlay can be mounted here")
    try:
        must("mount", "-t", "proc", "proc", root / "proc")
        must("mount", "--bind", "/dev", root / "dev")
        yield Debian(root)
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", root], check=False)


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode != 0, done.stdout
    answer = [line for line in done.stderr.splitlines() if line.startswith("skuwise: ")]
    assert len(answer) == 1 and "Traceback" not in done.stderr, done.stderr
    return answer[0]


def test_the_demo_runs_and_so_does_what_it_prints(debian: Debian) -> None:
    debian.run(f"chown -R {USER} /src")
    began = time.monotonic()
    done = debian.run("make demo", USER)
    print(f"make demo as {USER}: {time.monotonic() - began:.0f} s")  # noqa: T201 - what a person wants to have it
    assert done.returncode == 0, done.stderr
    assert "fetched 50 of" in done.stderr and "installing" in done.stderr
    assert debian.left() == [".venv-run"]
    size = int(must("du", "-sm", debian.root / "src/skuwise/.venv-run").split()[0])
    assert size < MEGABYTES
    after = done.stdout.split("\nNext\n")[1].splitlines()
    shown = [line.strip() for line in after if line.strip() and not line.strip().startswith("#")]
    assert len(shown) >= 4
    for line in shown:
        pasted = debian.run(line, USER)
        if " tui " in line:
            assert "needs a terminal" in pasted.stderr
            continue
        assert pasted.returncode == 0 or "agent doctor" in line, f"{line}: {pasted.stderr}"
        assert "not found" not in pasted.stderr
    again = debian.run("make install", USER)
    assert again.returncode == 0 and again.stderr == "" and "bin/skuwise" in again.stdout


def test_on_a_read_only_checkout(debian: Debian) -> None:
    checkout = debian.root / "src/skuwise"
    must("mount", "--bind", checkout, checkout)
    must("mount", "-o", "remount,bind,ro", checkout)
    answer = sentence(debian.run("make demo"))
    (remedy,) = re.findall(r"elsewhere: (make demo .*)$", answer)
    done = debian.run(remedy)
    assert done.returncode == 0, done.stderr
    assert "/root/.cache/skuwise/run/bin/skuwise advise" in done.stdout
    assert "not writable" in sentence(debian.run("make test"))
