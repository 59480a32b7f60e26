"""Hours kept for the next look: what is read is the same with and without them, whatever became of the files."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.telemetry.cache_folder import CacheFolder, cache_folder
from skuwise.advisor.telemetry.sqlite.database import HOURS
from skuwise.advisor.telemetry.sqlite.kept_hours import DAY, SUFFIX, KeptHours
from skuwise.advisor.telemetry.sqlite.opening import open_database
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.agent.model import FabricPort, Gpu, Node, Workload
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import NothingToDo

HOUR = 3600.0
T0 = 1_790_035_200.0  # a midnight, UTC
GPU_COLUMNS = ("ts", "device", "observed_seconds", "gpu_util_mean", "sm_active_mean", "power_watts_mean")
PORT_COLUMNS = ("ts", "device", "observed_seconds", "util_mean", "util_max")
assert T0 % DAY == 0


def put(path: Path, hours: range, level: float = 0.5, node: str = "n1") -> Path:
    """Hours of a node with two GPUs and a port."""
    gpus = [f"GPU-{node}-{n}" for n in range(2)]
    with Writer.open(path, now=lambda: T0) as writer:
        about = Node(node, "c", machine_id=f"m-{node}", gpu_count=2)
        own = writer.for_node(about, T0)
        own.set_gpus([Gpu(one, n, "NVIDIA H100 80GB HBM3", mem_total_bytes=80 << 30) for n, one in enumerate(gpus)], T0)
        own.set_ports([FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9)], T0)
        ends = [T0 + (hour + 1) * HOUR for hour in hours]
        own.put_rollups(
            "gpu_hour", GPU_COLUMNS, [(ts, one, HOUR, level, level / 2, 300.0) for ts in ends for one in gpus]
        )
        own.put_rollups("fabric_hour", PORT_COLUMNS, [(ts, "mlx5_0/1", HOUR, 0.1, 0.4) for ts in ends])
        own.put_workload_use(Workload("w", "s", "train", "slurm"), gpus[0], T0, ends[-1], "allocation")
        own.set_node(about, ends[-1])
    return path


def both(path: Path, kept: Path) -> tuple[Frame, Frame]:
    """What is read with what is kept, and without."""
    return read_frame([path], kept=kept), read_frame([path])


def same(mine: Frame, theirs: Frame) -> None:
    assert mine.notes == theirs.notes
    for name in ("gpu", "fabric", "host", "uses", "nodes"):
        pd.testing.assert_frame_equal(getattr(mine, name), getattr(theirs, name), check_exact=True)


def good_days(path: Path, kept: Path, end: float) -> tuple[int, ...]:
    """Of which days of a file what is kept still holds."""
    with open_database(path) as reader:
        look = KeptHours.at(kept, HOURS).look(reader, (T0, end))
    return () if look is None else tuple(sorted(day - int(T0 // DAY) for day in look.good))


def kept_file(kept: Path) -> Path:
    (one,) = kept.glob(f"*{SUFFIX}")
    return one


def test_days_that_are_over_are_read_once(tmp_path: Path) -> None:
    path, kept = put(tmp_path / "n.db", range(60)), tmp_path / "kept"
    same(*both(path, kept))
    assert good_days(path, kept, T0 + 60 * HOUR) == (0, 1)
    same(*both(path, kept))
    put(path, range(60, 75))  # an hour later, and the third day is over
    same(*both(path, kept))
    assert good_days(path, kept, T0 + 75 * HOUR) == (0, 1, 2)


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("UPDATE gpu_hour SET gpu_util_mean = gpu_util_mean + 1 WHERE id = (SELECT min(id) FROM gpu_hour)", (1,)),
        ("UPDATE fabric_hour SET unobserved_seconds = 9 WHERE id = (SELECT min(id) FROM fabric_hour)", (1,)),
        ("UPDATE node SET node = 'renamed'", ()),
        ("DELETE FROM gpu_hour", ()),
    ],
)
def test_a_day_that_was_changed_is_read_anew(tmp_path: Path, statement: str, left: tuple[int, ...]) -> None:
    path, kept = put(tmp_path / "n.db", range(50)), tmp_path / "kept"
    read_frame([path], kept=kept)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    assert good_days(path, kept, T0 + 50 * HOUR) == left
    if statement == "DELETE FROM gpu_hour":
        with pytest.raises(NothingToDo):
            read_frame([path], kept=kept)
    else:
        same(*both(path, kept))


def test_another_file_of_the_same_name_is_another(tmp_path: Path) -> None:
    path, kept = put(tmp_path / "n.db", range(50)), tmp_path / "kept"
    read_frame([path], kept=kept)
    put(tmp_path / "other.db", range(50), level=0.7).replace(path)
    assert good_days(path, kept, T0 + 50 * HOUR) == ()
    same(*both(path, kept))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [cut_short, flipped])
def test_what_does_not_read_back_is_nothing(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    path, kept = put(tmp_path / "n.db", range(50)), tmp_path / "kept"
    read_frame([path], kept=kept)
    spoil(kept_file(kept))
    assert good_days(path, kept, T0 + 50 * HOUR) == ()
    same(*both(path, kept))
    assert good_days(path, kept, T0 + 50 * HOUR) == (0, 1)


def test_nothing_is_kept_where_others_could_write(tmp_path: Path) -> None:
    path, kept = put(tmp_path / "n.db", range(50)), tmp_path / "kept"
    kept.mkdir()
    kept.chmod(0o777)
    assert "other users can write" in CacheFolder(kept, SUFFIX).refused
    same(*both(path, kept))
    assert not list(kept.iterdir())


def test_files_that_nobody_used_for_the_longest_go(tmp_path: Path) -> None:
    cache, form = CacheFolder(tmp_path / "kept", SUFFIX), b"form\n"
    for n in range(4):
        cache.write(f"{n}{SUFFIX}", form, bytes(100))
        os.utime(tmp_path / "kept" / f"{n}{SUFFIX}", (T0 + n, T0 + n))
    cache.prune(300)
    assert sorted(one.name for one in (tmp_path / "kept").iterdir()) == [f"2{SUFFIX}", f"3{SUFFIX}"]


@pytest.mark.parametrize(
    ("setting", "environ", "there"),
    [
        (None, {"HOME": "/home/a"}, "/home/a/.cache/skuwise/databases"),
        (None, {"HOME": "/home/a", "XDG_CACHE_HOME": "/c"}, "/c/skuwise/databases"),
        (None, {"HOME": "relative"}, None), (None, {}, None), ("", {"HOME": "/home/a"}, None), ("/own", {}, "/own"),
    ],
)  # fmt: skip
def test_where_hours_are_kept(setting: str | None, environ: dict[str, str], there: str | None) -> None:
    assert cache_folder(setting, environ, "databases") == (None if there is None else Path(there))
