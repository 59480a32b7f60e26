"""What holds for every test: nobody's own files count, and the quick suite always draws the same cases."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

# No test asserts a time, so neither does Hypothesis: a loaded machine is slow at drawing and at running.
_PATIENT = hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.register_profile("same", _PATIENT, derandomize=True)
hypothesis_settings.register_profile("random", _PATIENT, derandomize=False, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    """Where slow tests are left out every run draws the same cases; else they are drawn anew, and a failure prints what
    repeats it. HYPOTHESIS_PROFILE (same, random) or --hypothesis-profile overrides."""
    if config.getoption("hypothesis_profile", None) is None:
        quick = "not slow" in str(config.getoption("markexpr"))
        hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("same" if quick else "random"))


@pytest.fixture(scope="session", autouse=True)
def _no_files_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither the settings nor the ledger of whoever runs the tests."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
