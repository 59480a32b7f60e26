"""What a machine may lack before `make demo` and `make test`: one sentence with its remedy, and nothing half-made.

The programs of a bare machine are links in a folder of their own; its Pythons are scripts that answer as one would.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOLS = (
    *("sh", "awk", "cat", "cp", "cut", "df", "dirname", "find", "grep", "head", "id", "ls", "mkdir", "mktemp", "mv"),
    *("rm", "sed", "sha256sum", "sort", "tail", "tar", "tee", "tr", "uname", "xargs"),
)
# A Python of some version: {venv} 0 where it can make environments, {pip} what pip prints, {status} how that ends.
PYTHON = """#!/bin/sh
case "$*" in
*'"%d.%d"'*) echo {version} ;;
*'import venv, ensurepip'*) exit {venv} ;;
--version) echo 'Python {version}.0' ;;
'-m venv '*) mkdir -p "$3/bin" "$3/lib" && cp "$0" "$3/bin/python" ;;
*install*--require-hashes*) printf '%s\\n' '{pip}'; exit {status} ;;
esac
"""
NO_NETWORK = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by NewConnectionError: [Errno -3] Temporary failure in "
    "name resolution: /simple/numpy/\nERROR: No matching distribution found for numpy==2.4.6"
)
DISK_FULL = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
CHANGED = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."


@dataclass(frozen=True)
class Bare:
    """A machine with few programs, and a checkout on it."""

    bin: Path
    checkout: Path

    def has_python(
        self, name: str = "python3", version: str = "3.11", *, venv: int = 0, pip: str = "", status: int = 0
    ) -> Bare:
        (self.bin / name).write_text(PYTHON.format(version=version, venv=venv, pip=pip, status=status))
        (self.bin / name).chmod(0o755)
        return self

    def sets_up(self, kind: str = "tool", given: str = "") -> subprocess.CompletedProcess[str]:
        place = given or f".venv-{kind}"
        command = ["/bin/sh", "deploy/setup/environment.sh", kind, "demo", "requirements/run.lock", place, given]
        environment = {"PATH": str(self.bin), "LC_ALL": "C", "HOME": str(self.bin.parent)}
        return subprocess.run(
            command, cwd=self.checkout, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    def left(self) -> list[str]:
        return sorted(path.name for path in self.checkout.iterdir() if path.name.startswith(".venv"))


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    machine = Bare(tmp_path / "bin", tmp_path / "checkout")
    machine.bin.mkdir()
    shutil.copytree(ROOT / "deploy/setup", machine.checkout / "deploy/setup")
    (machine.checkout / "requirements").mkdir()
    shutil.copy(ROOT / "requirements/run.lock", machine.checkout / "requirements")
    for program in TOOLS:
        path = shutil.which(program)
        if path is None:
            pytest.skip(f"{program} is not installed")
        (machine.bin / program).symlink_to(path)
    return machine


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The last line, the error: all others are progress."""
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.isascii() and "Traceback" not in done.stderr
    error = [line for line in done.stderr.splitlines() if line.startswith("skuwise: ")]
    assert error == [done.stderr.splitlines()[-1]], done.stderr
    return error[0]


@pytest.mark.parametrize(
    ("name", "version", "venv", "kind", "says", "remedy"),
    [
        ("python3", "3.10", 0, "tool", "Python 3.11 or newer is required, but python3 is Python 3.10.",
         "apt-get install python3.11 python3.11-venv"),
        ("python3", "3.12", 1, "tool", "Not installed: the venv module of python3.", "install python3-venv"),
        ("python3.13", "3.13", 1, "tool", "Not installed: the venv module of python3.13.", "install python3.13-venv"),
        ("python3", "3.11", 1, "dev", "", "apt-get install python3-venv git"),  # all that is missing, at once
    ],
)  # fmt: skip
def test_what_is_missing_is_named(
    bare: Bare, name: str, version: str, venv: int, kind: str, says: str, remedy: str
) -> None:
    error = sentence(bare.has_python(name, version, venv=venv).sets_up(kind))
    assert error.startswith(f"skuwise: {says}") and remedy in error
    assert error.endswith(remedy) or "PYTHON=" in error
    assert bare.left() == []


@pytest.mark.parametrize(
    ("pip", "words"),
    [
        (NO_NETWORK, "pip cannot reach its package index. Check the network"),
        (DISK_FULL, "is full: setting up needs"),
        (CHANGED, "A downloaded package is not the locked one"),
    ],
)
def test_what_fails_half_way_leaves_nothing_and_the_next_run_starts_anew(bare: Bare, pip: str, words: str) -> None:
    assert words in sentence(bare.has_python(pip=pip, status=1).sets_up())
    assert bare.left() == []
    assert bare.has_python().sets_up().returncode == 0
    assert (bare.checkout / ".venv-tool/.installed").exists()


def test_a_folder_that_make_did_not_make_is_not_touched(bare: Bare, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.mkdir()
    (path / "thesis").touch()
    assert "make did not create it" in sentence(bare.has_python().sets_up(given=str(path)))
    assert (path / "thesis").exists()


@pytest.mark.parametrize(("engine", "words"), [("absent", "is not installed"), ("false", "does not answer")])
def test_a_release_without_a_container_engine_names_the_way_without(bare: Bare, engine: str, words: str) -> None:
    done = subprocess.run(["sh", ROOT / "deploy/setup/engine.sh", engine], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and words in done.stderr and "IMAGE=no" in done.stderr
    assert len(done.stderr.splitlines()) == 1
