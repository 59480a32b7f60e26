"""What the hardware tests share: the GPU or the reason there is none, one watched run per workload."""

import functools
import os
import sys

import pytest
from skuwise.rules.base.errors import NothingToDo
from skuwise.tests.hardware.watched import Watch, Watched, no_gpu_reason, watch_work


@pytest.fixture(scope="session")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """Runs the agent over a workload, once per workload and interval; skips, and says why, where there is no GPU.

    HARDWARE_PYTHON runs the work, else this Python, for HARDWARE_SECONDS: variables of the test run, not of skuwise.
    """
    if reason := no_gpu_reason():
        pytest.skip(f"needs a real GPU: {reason}")
    seconds, python = float(os.environ.get("HARDWARE_SECONDS", "12")), os.environ.get("HARDWARE_PYTHON", sys.executable)

    @functools.cache
    def run(name: str, interval_seconds: float) -> Watched:
        try:
            folder = tmp_path_factory.mktemp(f"{name}-{interval_seconds:g}")
            return watch_work(name, interval_seconds, seconds, python, folder)
        except NothingToDo as reason:
            pytest.skip(str(reason))

    return run
