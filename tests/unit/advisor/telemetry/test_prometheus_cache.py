"""Answers that are kept: for the same question alone, and whatever has become of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.cache_folder import cache_folder
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.response import Grid, SeriesAnswer

HOUR, DAY = 3600.0, 86400.0
GRID = Grid(DAY + HOUR, 2 * DAY, HOUR)
ANSWER = SeriesAnswer(({"a": "1"},), np.array([[1.0, np.nan, *range(22)]]))


def test_answers_are_kept_for_the_same_question_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", "http://one")
    cache.put("q", GRID, ("a",), ANSWER)
    again = cache.get("q", GRID, ("a",))
    assert again is not None and again.labels == ANSWER.labels
    assert np.array_equal(again.values, ANSWER.values, equal_nan=True)
    assert cache.get("other", GRID, ("a",)) is None and cache.get("q", GRID, ("b",)) is None
    assert Cache(tmp_path / "c", "http://two").get("q", GRID, ("a",)) is None
    (file,) = (tmp_path / "c").glob("*.answer")
    assert (tmp_path / "c").stat().st_mode & 0o077 == 0
    cache.prune()
    assert list((tmp_path / "c").iterdir()) == [file]
    cache.prune(0)
    assert not list((tmp_path / "c").iterdir())


@pytest.mark.parametrize(
    "grid",
    [
        Grid(DAY + 2 * HOUR, 2 * DAY, HOUR), Grid(DAY + HOUR, 2 * DAY - HOUR, HOUR), Grid(DAY + HOUR, 3 * DAY, HOUR),
        Grid(2 * HOUR, DAY + HOUR, HOUR),
    ],
)  # fmt: skip
def test_only_whole_utc_days_are_kept(tmp_path: Path, grid: Grid) -> None:
    Cache(tmp_path / "c", "s").put("q", grid, (), SeriesAnswer.nothing(grid.count))
    assert not (tmp_path / "c").exists()


def test_a_day_is_kept_under_what_the_server_held_at_its_ends(tmp_path: Path) -> None:
    def marked(held: dict[float, str], labels: dict[str, str]) -> Cache:
        cache = Cache(tmp_path / "c", "s")
        cache.mark_days(held, labels)
        return cache

    marked({}, {}).put("q", GRID, ("a",), ANSWER)
    assert not (tmp_path / "c").exists()
    marked({DAY: "x", 2 * DAY: "y"}, {"cluster": "eu"}).put("q", GRID, ("a",), ANSWER)
    found = [
        marked(held, {"cluster": cluster}).get("q", GRID, ("a",)) is not None
        for held in ({DAY: "x", 2 * DAY: "y", 3 * DAY: "z"}, {DAY: "x", 2 * DAY: "other"}, {DAY: "x"})
        for cluster in ("eu", "us")
    ]
    assert found == [True, False, False, False, False, False]


def test_a_file_that_does_not_read_back_is_asked_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "s")
    cache.put("q", GRID, ("a",), ANSWER)
    (file,) = tmp_path.glob("*.answer")
    good = file.read_bytes()
    for damage in (b"", b"PK", good[:-1], good[:60], good + b"\0", good[:40] + bytes([good[40] ^ 1]) + good[41:]):
        file.write_bytes(damage)
        assert cache.get("q", GRID, ("a",)) is None
    file.write_bytes(good)
    assert cache.get("q", GRID, ("a",)) is not None


def test_answers_that_others_could_have_written_are_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    mine = Cache(folder, "s")
    mine.put("q", GRID, ("a",), ANSWER)
    assert mine.get("q", GRID, ("a",)) is not None and not mine.refused
    folder.chmod(0o777)
    theirs = Cache(folder, "s")
    assert theirs.get("q", GRID, ("a",)) is None and "other users" in theirs.refused


def test_a_cache_without_a_place_keeps_nothing() -> None:
    cache = Cache(None, "")
    cache.put("q", GRID, (), ANSWER)
    assert cache.get("q", GRID, ()) is None
    assert cache_folder("", {"HOME": "/h"}, "prometheus") is None and cache_folder(None, {}, "prometheus") is None
    assert cache_folder(None, {"HOME": "/h"}, "prometheus") == Path("/h/.cache/skuwise/prometheus")
