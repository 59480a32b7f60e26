"""What holds for every test: nobody's own files count, and the quick suite always draws the same cases."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from skuwise.tests.support import seeds as draws

# No test asserts a time, so neither does Hypothesis: a loaded machine is slow at drawing and at running.
_PATIENT = hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.register_profile("same", _PATIENT, derandomize=True)
hypothesis_settings.register_profile("random", _PATIENT, derandomize=False, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-seed", type=int, metavar="N", help="draw the cases of the run that printed this seed")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis' own, which reads the seed
def pytest_configure(config: pytest.Config) -> None:
    """Where slow tests are left out every run draws the same cases; else they are drawn anew, and a failure prints what
    repeats it. HYPOTHESIS_PROFILE (same, random) or --hypothesis-profile overrides."""
    config.addinivalue_line("markers", "property: claims something of drawn cases (set by itself)")
    hypothesis_settings.load_profile(draws.profile_of(config))
    draws.settle(config)


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_configure_node(node: Any) -> None:
    draws.tell_worker(node.workerinput, node.config)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if draws.is_drawn(item):
            item.add_marker("property")


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Also where -q leaves out the header: a run that is cut off has no summary."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and (line := draws.told(session.config)):
        reporter.write_line(line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if line := draws.told(config):
        terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and draws.is_drawn(item) and (line := draws.told(item.config)):
        report.sections.append(("Drawn cases", line))
    return report


@pytest.fixture(scope="session")
def seed_of(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """Seeds of a property test's cases: ``seed_of(3)`` is 3 in the quick suite, else another number in every run."""
    return draws.seeds(request.config)


@pytest.fixture(scope="session", autouse=True)
def _no_files_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither the settings nor the ledger nor the cache of whoever runs the tests."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
