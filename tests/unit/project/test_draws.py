"""The seed of a run: the same cases in the quick suite, others in every other run, and the same ones again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import pytest
from hypothesis import given, strategies as st

FOUND = []

@given(st.integers(0, 2**62))
def test_by_hypothesis(number):
    FOUND.append(number)

def test_by_the_fixture(seed_of):
    FOUND.append((seed_of(1), seed_of(2)))
    assert seed_of(1) != seed_of(2) and seed_of(1) == seed_of(1)

def test_that_shows(seed_of, tmp_path_factory):
    print("cases", sorted(set(map(str, FOUND)))[:30], "own", seed_of(5))
    assert not FAIL

def test_without_a_draw():
    pass
"""


def ran(folder: Path, *options: str, fails: bool = False) -> str:
    """What a run of the cases prints, under this project's own conftest."""
    here = Path(__file__).parents[2]
    (folder / "conftest.py").write_text(
        f"exec(compile(open({str(here / 'conftest.py')!r}).read(), 'conftest', 'exec'))\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: long\n")
    (folder / "test_cases.py").write_text(f"FAIL = {fails}\n{CASES}")
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "HYPOTHESIS"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *options, "."]
    done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == fails, done.stdout + done.stderr
    return done.stdout


def seed_in(text: str) -> str:
    """The one seed that a run prints, at its begin and at its end."""
    (seed,) = set(re.findall(r"drawn with seed (\d+): --run-seed \1 draws the same again", text))
    return str(seed)


def cases_in(text: str) -> str:
    (line,) = set(re.findall(r"cases .* own \d+", text))
    return str(line)


@pytest.mark.slow
def test_the_quick_suite_draws_the_same_and_prints_no_seed(tmp_path: Path) -> None:
    one, other = (ran(tmp_path, "-s", "-m", "not slow") for _ in range(2))
    assert cases_in(one) == cases_in(other) and cases_in(one).endswith("own 5")
    assert "drawn with seed" not in one


@pytest.mark.slow
def test_every_other_run_draws_anew_and_its_seed_repeats_it(tmp_path: Path) -> None:
    one, other = (ran(tmp_path, "-s") for _ in range(2))
    assert seed_in(one) != seed_in(other) and cases_in(one) != cases_in(other)
    again = ran(tmp_path, "-s", "--run-seed", seed_in(one))
    assert (seed_in(again), cases_in(again)) == (seed_in(one), cases_in(one))


@pytest.mark.slow
def test_workers_of_a_parallel_run_draw_with_its_seed_and_a_failure_names_it(tmp_path: Path) -> None:
    failed = ran(tmp_path, "-n", "2", "--dist", "loadfile", fails=True)
    seed = seed_in(failed)
    assert (
        "Drawn cases" in failed and failed.count(f"--run-seed {seed}") == 3
    )  # at the begin, with the failure, at the end
    assert cases_in(ran(tmp_path, "--run-seed", seed, fails=True)) == cases_in(failed)


@pytest.mark.slow
def test_property_selects_what_draws_its_cases(tmp_path: Path) -> None:
    assert "3 passed, 1 deselected" in ran(tmp_path, "-m", "(slow or property)")
