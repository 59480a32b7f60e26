"""What takes long to make and is the same for all tests of a run: made once, whichever worker needs it first."""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder of this run that `make` has filled. All workers of a parallel run have it together."""
    base = factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    place.mkdir(exist_ok=True)
    made, done = place / "made", place / "done"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(made, ignore_errors=True)  # what a failed attempt left
            made.mkdir()
            make(made)
            done.touch()
    return made


def wheel(factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, from its source distribution: the build folder of the checkout is not used.

    Made by the locked build backend of this environment: another would be fetched without a hash.
    """
    (path,) = once(factory, "wheel", _build).glob("*.whl")
    return path


def standalone(factory: pytest.TempPathFactory) -> Path:
    """A folder with the archive of the self-contained agent, what lies beside it, and `log`, what the build printed."""
    return once(factory, "standalone", _freeze)


def _freeze(folder: Path) -> None:
    command = [sys.executable, str(PROJECT / "deploy/standalone/build.py"), "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "log").write_text(done.stdout)


def _build(folder: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(PROJECT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def locked_environment(folder: Path, lock: Path) -> Path:
    """The programs of a new environment with a lock's packages; the test is skipped where they cannot be fetched."""
    venv.create(folder / "venv", with_pip=True)
    command = [folder / "venv/bin/python", "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary=:all:"]
    done = subprocess.run([*command, "-r", lock], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{lock.name} cannot be fetched: {done.stderr.strip()[-300:]}")
    return folder / "venv/bin"
