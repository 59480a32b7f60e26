"""The NVML stub for tests: a process started with `stub_env` finds a driver that answers from a scenario."""

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from .build import LIBRARY, StubBuildError, build

__all__ = ["LIBRARY", "StubBuildError", "StubClock", "build", "drive", "read_calls", "stub_env"]


class StubClock:
    """The second in which the stub's node stands, shared with running processes through a file of one double."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            self.set(0.0)

    def set(self, seconds: float) -> None:
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.write(struct.pack("=d", seconds))


def stub_env(
    folder: Path,
    scenario: str,
    *,
    stepped: bool = False,
    missing: Sequence[str] = (),
    base: dict[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a process that shall see the scenario's GPUs.

    `folder` (a test's tmp_path) takes the scenario, the call counts and, where `stepped`, the clock file that
    `StubClock(folder / "nvml.clock")` sets; otherwise the scenario runs in real time from init. `missing` are functions
    the driver shall lack. glibc reads LD_LIBRARY_PATH at start, so this works for a new process only.
    """
    if "PYTEST_CURRENT_TEST" in os.environ and shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("the NVML stub needs a C compiler")
    environment = dict(os.environ if base is None else base)
    path = folder / "nvml.scenario"
    path.write_text(scenario)
    libraries = [str(build(missing)), environment.get("LD_LIBRARY_PATH", "")]
    environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
    environment["SKUWISE_NVML_SCENARIO"] = str(path)
    environment["SKUWISE_NVML_CALLS"] = str(folder / "nvml.calls")
    environment.pop("SKUWISE_NVML_CLOCK", None)
    if stepped:
        environment["SKUWISE_NVML_CLOCK"] = str(StubClock(folder / "nvml.clock").path)
    return environment


def read_calls(folder: Path) -> dict[str, float]:
    """How often each NVML function was called, as the stub wrote it when its process closed it or ended."""
    lines = (folder / "nvml.calls").read_text().splitlines()
    return {name: float(count) for name, count in (line.split() for line in lines)}


def drive(folder: Path, scenario: str, steps: Sequence[Sequence[object]], missing: Sequence[str] = ()) -> list[Any]:
    """What each step of `tests/nvmlstub/drive.py` printed, in its own process at the scenario's seconds."""
    done = subprocess.run(
        [sys.executable, "-m", "skuwise.tests.nvmlstub.drive"],
        env=stub_env(folder, scenario, stepped=True, missing=missing),
        input=json.dumps(steps),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"drive.py failed:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]
