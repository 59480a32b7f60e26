"""Answers that are kept: for the same question alone, and whatever has become of the file."""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.telemetry.cache_folder import cache_folder
from skuwise.advisor.telemetry.prometheus.client.cache import Cache
from skuwise.advisor.telemetry.prometheus.client.response import Grid, SeriesAnswer

HOUR = 3600.0
GRID = Grid(HOUR, 4 * HOUR, HOUR)
nan = float("nan")


def test_answers_are_kept_for_the_same_question_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", "http://one")
    answer = SeriesAnswer(({"a": "1"},), np.array([[1.0, nan, 3.0, 4.0]]))
    cache.put("q", GRID, ("a",), answer)
    again = cache.get("q", GRID, ("a",))
    assert again is not None and again.labels == answer.labels
    assert np.array_equal(again.values, answer.values, equal_nan=True)
    assert cache.get("other", GRID, ("a",)) is None and cache.get("q", GRID, ("b",)) is None
    assert Cache(tmp_path / "c", "http://two").get("q", GRID, ("a",)) is None
    (file,) = (tmp_path / "c").glob("*.answer")
    assert (tmp_path / "c").stat().st_mode & 0o077 == 0
    (tmp_path / "c" / ".answer.of-a-killed-run").touch()
    os.utime(tmp_path / "c" / ".answer.of-a-killed-run", (0, 0))
    cache.prune()
    assert list((tmp_path / "c").iterdir()) == [file]
    cache.prune(0)
    assert not list((tmp_path / "c").iterdir())


def form_of(content: bytes, told: bytes | None = None) -> bytes:
    """A kept answer of this content, with the digest of it or of `told`."""
    digest = hashlib.sha256(content if told is None else told).digest()
    return b"skuwise-answer-3\n" + digest + zlib.compress(content)


def content_of(labels: bytes, values: bytes) -> bytes:
    return len(labels).to_bytes(8, "little") + labels + values


@pytest.mark.parametrize("damage", [
    b"", b"skuwise-answer-3\n" + bytes(32) + b"no zlib", form_of(b""), form_of(content_of(b"[]", b""), b"other"),
    form_of(content_of(b"[{}]", b"")), form_of(content_of(b"[", bytes(32))),
    form_of(content_of(b'[{"a":1}]', bytes(32))), form_of(content_of(b'[{"a":"1"}]', np.full(4, np.inf).tobytes())),
], ids=lambda _: "")  # fmt: skip
def test_a_kept_answer_that_is_not_as_it_was_written_is_asked_again(tmp_path: Path, damage: bytes) -> None:
    cache = Cache(tmp_path, "s")
    cache.put("q", GRID, ("a",), SeriesAnswer(({"a": "1"},), np.ones((1, GRID.count))))
    (file,) = tmp_path.glob("*.answer")
    good = file.read_bytes()
    assert cache.get("q", GRID, ("a",)) is not None
    file.write_bytes(damage)
    assert cache.get("q", GRID, ("a",)) is None
    for cut in (good[:-1], good[:60], good + b"\0", good[:40] + bytes([good[40] ^ 1]) + good[41:]):
        file.write_bytes(cut)
        assert cache.get("q", GRID, ("a",)) is None


def test_answers_that_others_could_have_written_are_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    mine = Cache(folder, "s")
    mine.put("q", GRID, ("a",), SeriesAnswer(({"a": "1"},), np.ones((1, GRID.count))))
    assert mine.get("q", GRID, ("a",)) is not None and not mine.refused
    folder.chmod(0o777)
    theirs = Cache(folder, "s")
    assert theirs.get("q", GRID, ("a",)) is None and "other users" in theirs.refused


def test_a_cache_without_a_place_keeps_nothing() -> None:
    cache = Cache(None, "")
    cache.put("q", GRID, (), SeriesAnswer.nothing(4))
    assert cache.get("q", GRID, ()) is None
    assert cache_folder("", {"HOME": "/h"}, "prometheus") is None and cache_folder(None, {}, "prometheus") is None
    assert cache_folder(None, {"HOME": "/h"}, "prometheus") == Path("/h/.cache/skuwise/prometheus")
