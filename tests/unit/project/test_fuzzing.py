"""The fuzz harness can fail: readers that are broken on purpose are caught. The same seed gives the same bytes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from skuwise.benchmarks.fuzzing.documents import by_json
from skuwise.benchmarks.fuzzing.lines import by_cells, by_lines
from skuwise.benchmarks.fuzzing.spoil import by_bytes
from skuwise.benchmarks.fuzzing.supervise import (
    GROWTH_BYTES,
    Report,
    keep,
    run_target,
)
from skuwise.benchmarks.fuzzing.target import (
    BrokenPromiseError,
    Prepared,
    Seed,
    Target,
    mutation,
)
from skuwise.benchmarks.fuzzing.verdict import finite, unfit
from skuwise.rules.base.errors import UsageError
from skuwise.tests.support.forked import alone

HONEST = b'{"name": "n1", "value": 1.5, "list": [1, 2, 3]}\n'


def _odd(_: str, data: bytes) -> None:
    if len(data) % 2:
        raise UsageError("It is odd.", "Make it even.")


def _say(text: str) -> None:
    raise UsageError(text, "")


def _stand_still(_: str, data: bytes) -> None:
    while data.count(b"1") > 3:
        time.sleep(1)


KEPT: list[bytes] = []
READERS: Mapping[str, tuple[Callable[[str, bytes], object], int]] = {
    "good": (_odd, 60),
    "raises": (lambda _, data: data.missing, 20),  # type: ignore[attr-defined]
    "escapes": (lambda _, data: _say("Bad\x1b[2J."), 20),
    "goes on": (lambda _, data: _say(f"It is {'x' * 9000}."), 20),
    "speaks Python": (lambda _, data: _say("It raised ValueError('x')."), 20),
    "gives NaN": (lambda _, data: finite({"a": [1.0, float("nan")]}, "a row"), 20),
    "stands still": (_stand_still, 25),
    "ends": (lambda _, data: os.kill(os.getpid(), signal.SIGSEGV), 3),
    "takes 3 GiB": (lambda _, data: len(bytearray(3 << 30)), 3),
    "keeps": (lambda _, data: KEPT.append(random.randbytes(1 << 18)), 200),
}


def target_of(name: str) -> Target:
    """A reader of which the honest input is always read."""
    read, _ = READERS[name]

    def prepare(_: Path) -> Prepared:
        return Prepared([Seed("s", HONEST)], lambda name, data: data == HONEST or read(name, data), by_json())

    return Target("broken", "a reader broken on purpose", prepare)


def run_all() -> dict[str, Report]:
    return {name: run_target(target_of(name), count, 3, 1, 0.4) for name, (_, count) in READERS.items()}


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return alone(run_all)


def test_what_is_read_or_refused_in_a_sentence_is_good(reports: dict[str, Report]) -> None:
    report = reports["good"]
    assert report.good
    assert report.mutations == 60 == report.read + report.refused
    assert min(report.read, report.refused) > 0


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("raises", "AttributeError at "),
        ("escapes", "sentence is not printable"),
        ("goes on", "sentence is 90"),
        ("speaks Python", "sentence speaks Python"),
        ("gives NaN", "BrokenPromiseError a row is nan"),
    ],
)
def test_what_else_a_reader_does_is_a_failure(
    reports: dict[str, Report], name: str, signature: str, tmp_path: Path
) -> None:
    report = reports[name]
    assert (report.mutations, report.hangs) == (20, 0)
    assert report.failures == 20 - report.read > 15
    assert not report.good
    ((told, count),) = report.kinds()
    assert told.startswith(signature)
    assert count == report.failures
    kept = keep(report, tmp_path / "kept", seed=3)
    assert len(kept) == 3, "some of each origin"
    number = int(kept[0].stem.rpartition("-")[2])
    assert f"replay broken 3 {number}" in kept[0].read_text()
    # What is kept is what was read, and what the same numbers give again.
    prepared = target_of(name).prepare(tmp_path)
    assert kept[0].with_suffix(".bin").read_bytes() == mutation(prepared, "broken", 3, number)[1]


def test_a_reader_that_stands_still_is_killed_and_the_rest_is_read_on(reports: dict[str, Report]) -> None:
    report = reports["stands still"]
    assert 0 < report.hangs < 25
    assert report.failures == 0
    assert report.mutations == 25 == report.read + report.hangs
    assert not report.good


def test_a_reader_that_ends_its_process_is_told(reports: dict[str, Report]) -> None:
    report = reports["ends"]
    assert (report.mutations, report.failures) == (3, 3)
    assert report.kinds() == [(f"killed by signal {int(signal.SIGSEGV)}", 3)]


def test_memory_beyond_the_limit_is_a_failure(reports: dict[str, Report]) -> None:
    assert reports["takes 3 GiB"].failures == 3
    assert reports["takes 3 GiB"].kinds()[0][0].startswith("MemoryError")


@pytest.mark.slow
def test_memory_that_is_kept_is_growth(reports: dict[str, Report]) -> None:
    assert 30 << 20 < reports["keeps"].growth_bytes < GROWTH_BYTES, "as little as this is not told yet"
    assert reports["good"].growth_bytes < 10 << 20
    assert Report("x", growth_bytes=GROWTH_BYTES + 1).grew
    assert not Report("x", growth_bytes=GROWTH_BYTES + 1).good


@pytest.mark.parametrize("mutate", [by_bytes(b"word"), by_lines(b"word"), by_cells(b",", b"word"), by_json(b"word")])
def test_the_same_numbers_give_the_same_bytes_and_others_others(mutate) -> None:
    prepared = Prepared([Seed("a", HONEST), Seed("b", HONEST * 1)], lambda name, data: None, mutate)
    first = [mutation(prepared, "t", 7, n)[1] for n in range(120)]
    assert first == [mutation(prepared, "t", 7, n)[1] for n in range(120)]
    assert len(set(first)) > 60
    assert first != [mutation(prepared, "t", 8, n)[1] for n in range(120)]


def test_what_a_sentence_may_be() -> None:
    assert unfit(UsageError("The file x cannot be read: no such file.", "Name another.")) == ""
    assert unfit(UsageError("", "Name another.")) == "says nothing"
    assert unfit(UsageError("No end", "")) == "does not end as a sentence does"
    for python in (
        "'NoneType' object has no attribute 'x'.",
        "unexpected TypeError: x.",
        "'utf-8' codec can't decode.",
    ):
        assert unfit(UsageError(python, "")).startswith("speaks Python"), python


def test_a_promise_is_looked_for_however_deep() -> None:
    finite({"a": [(1.0, "text", None, {"b"})]})
    for value in ({"a": [float("inf")]}, [{"\x00": 1}], ("a\x1bb",)):
        with pytest.raises(BrokenPromiseError):
            finite(value)
    finite(["a\nb"], texts=False)
