"""The fuzz harness can fail: readers that are broken on purpose are caught. The same seed gives the same bytes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.benchmarks.fuzzing import supervise  # pyright: ignore[reportMissingImports] - not in the wheel
from skuwise.benchmarks.fuzzing.documents import by_json  # pyright: ignore[reportMissingImports]
from skuwise.benchmarks.fuzzing.lines import by_cells, by_lines  # pyright: ignore[reportMissingImports]
from skuwise.benchmarks.fuzzing.spoil import by_bytes  # pyright: ignore[reportMissingImports]
from skuwise.benchmarks.fuzzing.supervise import keep, run_target  # pyright: ignore[reportMissingImports]
from skuwise.benchmarks.fuzzing.target import (  # pyright: ignore[reportMissingImports]
    BrokenPromiseError,
    Prepared,
    Seed,
    Target,
    mutation,
)
from skuwise.benchmarks.fuzzing.verdict import finite, unfit  # pyright: ignore[reportMissingImports]
from skuwise.rules.errors import UsageError

HONEST = b'{"name": "n1", "value": 1.5, "list": [1, 2, 3]}\n'


def target_of(read: Callable[[str, bytes], object]) -> Target:
    """A reader of its own: the honest input is always read."""

    def prepare(_: Path) -> Prepared:
        return Prepared([Seed("s", HONEST)], lambda name, data: data == HONEST or read(name, data), by_json())

    return Target("broken", "a reader broken on purpose", prepare)


def test_what_is_read_or_refused_in_a_sentence_is_good() -> None:
    def read(_: str, data: bytes) -> None:
        if len(data) % 2:
            raise UsageError("It is odd.", "Make it even.")

    report = run_target(target_of(read), 60, seed=1)
    assert report.good
    assert report.mutations == 60 == report.read + report.refused
    assert min(report.read, report.refused) > 0


@pytest.mark.parametrize(
    ("read", "signature"),
    [
        (lambda _, data: data.missing, "AttributeError"),
        (lambda _, data: (_ for _ in ()).throw(UsageError("Bad\x1b[2J.", "")), "sentence is not printable"),
        (lambda _, data: (_ for _ in ()).throw(UsageError(f"It is {'x' * 9000}.", "")), "sentence is 90"),
        (lambda _, data: (_ for _ in ()).throw(UsageError("It raised ValueError('x').", "")), "sentence speaks Python"),
        (lambda _, data: finite({"a": [1.0, float("nan")]}, "a row"), "BrokenPromiseError a row is nan"),
    ],
)
def test_what_else_a_reader_does_is_a_failure(
    read: Callable[[str, bytes], object], signature: str, tmp_path: Path
) -> None:
    report = run_target(target_of(read), 20, seed=1)
    assert (report.failures, report.hangs) == (20, 0)
    assert not report.good
    ((told, count),) = report.kinds()
    assert told.startswith(signature)
    assert count == 20
    kept = keep(report, tmp_path / "kept", seed=1)
    assert len(kept) == 3, "some of each origin"
    assert "replay broken 1 0" in kept[0].read_text()
    # What is kept is what was read, and what the same numbers give again.
    prepared = target_of(read).prepare(tmp_path)
    assert kept[0].with_suffix(".bin").read_bytes() == mutation(prepared, "broken", 1, 0)[1]


def test_a_reader_that_stands_still_is_killed_and_the_rest_is_read_on() -> None:
    def read(_: str, data: bytes) -> None:
        if data.count(b"1") > 3:
            while True:
                time.sleep(1)

    report = run_target(target_of(read), 25, seed=3, hang_seconds=0.3)
    assert 0 < report.hangs < 25
    assert report.failures == 0
    assert report.mutations == 25 == report.read + report.hangs
    assert not report.good


def test_a_reader_that_ends_its_process_is_told() -> None:
    import os
    import signal

    report = run_target(target_of(lambda _, data: os.kill(os.getpid(), signal.SIGSEGV)), 3, seed=1)
    assert (report.mutations, report.failures) == (3, 3)
    assert report.kinds() == [(f"killed by signal {int(signal.SIGSEGV)}", 3)]


def test_memory_beyond_the_limit_is_a_failure() -> None:
    report = run_target(target_of(lambda _, data: len(bytearray(3 << 30))), 3, seed=1)
    assert report.failures == 3
    assert report.kinds()[0][0].startswith("MemoryError")


def test_memory_that_is_kept_is_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []
    report = run_target(target_of(lambda _, data: kept.append(random.randbytes(1 << 18))), 200, seed=1)
    assert report.growth_bytes > 30 << 20
    assert supervise.GROWTH_BYTES > report.growth_bytes, "as little as this is not told yet"
    assert supervise.Report("x", growth_bytes=supervise.GROWTH_BYTES + 1).grew


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
    for python in ("'NoneType' object has no attribute 'x'.", "unexpected TypeError: x.", "'utf-8' codec can't decode."):
        assert unfit(UsageError(python, "")).startswith("speaks Python"), python


def test_a_promise_is_looked_for_however_deep() -> None:
    finite({"a": [(1.0, "text", None, {"b"})]})
    for value in ({"a": [float("inf")]}, [{"\x00": 1}], ("a\x1bb",)):
        with pytest.raises(BrokenPromiseError):
            finite(value)
    finite(["a\nb"], texts=False)
