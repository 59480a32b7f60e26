"""Answers that are kept: for the same question alone, and whatever has become of the file."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    for left in ("of-before.npz", ".answer.of-a-killed-run"):
        (tmp_path / "c" / left).touch()
        os.utime(tmp_path / "c" / left, (0, 0))
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
    b"", b"PK\x03\x04 not an archive", b"skuwise-answer-3\n", b"skuwise-answer-3\n" + bytes(32) + b"no zlib",
    form_of(b""), form_of(b"\xff" * 8), form_of(bytes(200 * 1024 * 1024)), form_of(content_of(b"[]", b""), b"other"),
    form_of(content_of(b"[{}]", b"")), form_of(content_of(b"[7]", bytes(32))), form_of(content_of(b"[", bytes(32))),
    form_of(content_of(b'[{"a":1}]', bytes(32))), form_of(content_of(b'[{"a":"\\u001b[31m"}]', bytes(32))),
    form_of(content_of(b'[{"\\u001b":"1"}]', bytes(32))), form_of(content_of(b"[" * 3_000_000, bytes(32))),
    form_of(content_of(b'[{"a":"1"}]', np.full(4, np.inf).tobytes())), form_of(content_of(b"{}", bytes(32))) + b"more",
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


def test_what_is_no_ordinary_file_is_no_kept_answer_and_is_not_waited_for(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "s")
    cache.put("q", GRID, ("a",), SeriesAnswer(({"a": "1"},), np.ones((1, GRID.count))))
    assert cache.told_before("q", {60.0: "a"}) == {}
    kept, told = next(tmp_path.glob("*.answer")), next(tmp_path.glob("*.json"))
    kinds: tuple[Callable[[Path], object], ...] = (
        os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.touch() or os.truncate(path, 1 << 40),
    )  # fmt: skip
    for make in kinds:
        for file in (kept, told):
            file.unlink(missing_ok=True)
            make(file)
        assert cache.get("q", GRID, ("a",)) is None
        assert Cache(tmp_path, "s").told_before("q", {60.0: "b"}) == {}
    assert Cache(tmp_path, "s").told_before("q", {60.0: "c"}) == {60.0: "b"}, "in its place stands what is true now"


_FULL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np
from skuwise.advisor.telemetry.prometheus.client.response import Grid, SeriesAnswer
from skuwise.advisor.telemetry.prometheus.client.cache import Cache

grid, folder = Grid(3600.0, 4 * 3600.0, 3600.0), Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
cache = Cache(folder, "s")
cache.put("q", grid, ("a",), SeriesAnswer(tuple({"a": str(n)} for n in range(1000)), np.random.rand(1000, grid.count)))
assert not cache.used and cache.get("q", grid, ("a",)) is None
cache.prune()
assert not list(folder.iterdir()), "nothing half-written is left"
"""


def test_a_full_disk_under_the_cache_costs_only_time(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_two_processes_may_use_one_cache(tmp_path: Path) -> None:
    first, second = Cache(tmp_path, "s"), Cache(tmp_path, "s")
    for number in range(30):
        (first if number % 2 else second).put(
            f"q{number}", GRID, (), SeriesAnswer(({},), np.full((1, GRID.count), number))
        )
    with ThreadPoolExecutor() as pool:
        told = list(pool.map(lambda n: (first.prune(0), second.prune(0), first.get(f"q{n}", GRID, ())), range(30)))
    assert first.used and second.used and not list(tmp_path.iterdir())
    assert all(one is None or one.values[0, 0] == n for n, (_, _, one) in enumerate(told))


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
