"""Fixtures of every test: files of the user are ignored, and `make test` always draws the same cases."""

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

# No test asserts a time, so neither does Hypothesis: a loaded machine is slow at drawing and at running.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", _PATIENT, derandomize=True, max_examples=20)
settings.register_profile("new", _PATIENT, derandomize=False, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-seed", type=int, metavar="N", help="draw other cases of the property tests, from this seed")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis' own, which reads the seed
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "property: claims something of drawn cases (set by itself)")
    seed = config.getoption("run_seed")
    settings.load_profile("same" if seed is None else "new")
    if seed is not None:
        config.option.hypothesis_seed = seed


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        by_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if by_hypothesis or "seed_of" in getattr(item, "fixturenames", ()):
            item.add_marker("property")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if (seed := config.getoption("run_seed")) is not None:
        terminalreporter.write_line(f"drawn with --run-seed {seed}")


@pytest.fixture(scope="session")
def seed_of(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """Seeds of a property test's cases: `seed_of(3)` is 3, and another number in every run with `--run-seed`."""
    seed = request.config.getoption("run_seed")
    return lambda number: number if seed is None else random.Random(f"{seed}/{number}").randrange(2**32)


@pytest.fixture(scope="session", autouse=True)
def _no_files_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ignore settings, ledger and cache of the user."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
