"""Databases read in a process apart: what it tells, what ends it, and what is believed of its answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import struct
import sys
import threading
from array import array
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.telemetry.sqlite.reading_process import ReadingProcess
from skuwise.advisor.telemetry.tables import to_table
from skuwise.agent.model import FabricPort, Gpu, Node, Tick
from skuwise.agent.store.reading import queries
from skuwise.agent.store.reading.bounds import bounds_of
from skuwise.agent.store.reading.reader import open_reader
from skuwise.agent.store.rollup.rollups import RollupJob
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import NothingToDo, SkuwiseError, StoreError, UsageError
from skuwise.tests.support.hostile_databases import MAKERS

T0 = 1_790_002_800.0
SPAN = {"start": T0, "end": T0 + 7200.0}


def node(path: Path, name: str, start: float = T0) -> Path:
    with Writer.open(path, now=lambda: start) as writer:
        own = writer.for_node(Node(name, machine_id=f"machine of {name}", gpu_count=1), start)
        own.set_gpus([Gpu(f"GPU-{name}", 0, "NVIDIA H100 80GB HBM3", mem_total_bytes=80 << 30)], start)
        own.set_ports([FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9)], start)
        for second in range(90):
            gpu = {"gpu_util": 0.9, "sm_active": 0.5, "power_watts": 300.0}
            traffic = {"tx_bytes_per_second": 1e9, "rx_bytes_per_second": 1e9}
            own.add_tick(Tick(start + second + 1, 1.0, {f"GPU-{name}": gpu}, {"mlx5_0/1": traffic},
                              {"mlx5_0/1": "ACTIVE"}, {"cpu_util": 0.3}))  # fmt: skip
    RollupJob(path).run(start + 7200.0)
    return path


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return node(tmp_path_factory.mktemp("apart") / "n1.db", "n1")


def test_it_tells_what_a_reader_tells(honest: Path) -> None:
    with ReadingProcess() as apart, apart.open(honest) as there, open_reader(honest) as here:
        for query in (queries.GPU_HOURS, queries.GPU_MINUTES, queries.FABRIC_HOURS, queries.GPUS, queries.NODES):
            wanted = SPAN if ":start" in query.sql else {}
            mine = to_table(here.fetch(query.sql, wanted), query)
            assert len(mine)
            pd.testing.assert_frame_equal(there.table(query, wanted), mine)
        odd = "SELECT 1, 1.5, NULL, 'ä', node, CAST(X'61FF62' AS TEXT), 9223372036854775807 FROM nodes"
        assert there.fetch(odd) == [(*here.fetch(odd)[0][:-1], 2.0**63)]


def test_it_tells_why_a_file_cannot_be_read_and_reads_the_next(honest: Path, tmp_path: Path) -> None:
    empty, other = tmp_path / "empty.db", tmp_path / "other.db"
    empty.touch()
    other.write_text("nothing of ours")
    with ReadingProcess() as apart:
        for path, kind in ((tmp_path / "none.db", UsageError), (empty, NothingToDo), (other, StoreError)):
            with pytest.raises(kind) as told, apart.open(path):
                pass
            assert str(path) in str(told.value)
        with apart.open(honest) as reader:
            with pytest.raises(StoreError, match="no such column"):
                reader.fetch("SELECT none FROM nodes")
            assert reader.fetch("SELECT node FROM nodes") == [("n1",)]


QUICK = ("trimming", "sparse", "generated", "flipped", "a_pipe_for_a_log")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in sorted(MAKERS)]
)
def test_a_hostile_file_changes_nothing_of_the_others(name: str, honest: Path, tmp_path: Path) -> None:
    """One process reads them all; whatever the file is, those before and after it are read."""
    bad = tmp_path / "bad.db"
    shutil.copyfile(honest, bad)
    MAKERS[name](bad)
    with ReadingProcess() as apart:
        for path in (honest, bad, honest):
            try:
                with apart.open(path) as reader:
                    hours = reader.table(queries.GPU_HOURS, SPAN)
                    minutes = reader.table(queries.GPU_MINUTES, SPAN)
                    nodes = reader.table(queries.NODES, {})
            except SkuwiseError as error:
                assert path == bad
                assert str(bad) in str(error) and str(error).isprintable() and "unexpected" not in str(error)
            else:
                assert nodes["node"].tolist() == ["n1"]
                assert len(hours) and len(minutes)


def test_what_runs_too_long_is_ended_from_outside(honest: Path, tmp_path: Path) -> None:
    bounds = replace(bounds_of(0), seconds=1.0)
    slow = tmp_path / "slow.db"
    shutil.copyfile(honest, slow)
    with ReadingProcess(lambda _: bounds) as apart:
        with apart.open(honest) as reader:
            assert reader.fetch("SELECT node FROM nodes")
        too_long = "slow.db cannot be read: reading takes longer than 1 s"
        with pytest.raises(StoreError, match=re.escape(too_long)), apart.open(slow) as reader:
            os.kill(_child(apart), signal.SIGSTOP)  # as one long step of SQLite's, which no callback ends
            reader.fetch("SELECT node FROM nodes")
        with pytest.raises(StoreError, match="takes longer"), apart.open(slow):
            pass
        with apart.open(honest) as reader:
            assert reader.fetch("SELECT node FROM nodes")


def test_a_process_that_is_killed_is_named_by_the_file_it_read(honest: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    shutil.copyfile(honest, other)
    with ReadingProcess() as apart:
        ended = "other.db cannot be read: the reading process was ended by SIGKILL"
        with pytest.raises(StoreError, match=re.escape(ended)), apart.open(other) as reader:
            os.kill(_child(apart), signal.SIGKILL)
            reader.fetch("SELECT node FROM nodes")
        with apart.open(honest) as reader:
            assert reader.fetch("SELECT node FROM nodes")


def test_nothing_is_left_running(honest: Path) -> None:
    with ReadingProcess() as apart, apart.open(honest):
        child = _child(apart)
    assert not Path(f"/proc/{child}").exists()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, as in a terminal: Python leaves it ignored where a job in the background did."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_all_at_once(honest: Path) -> None:
    with ReadingProcess(lambda _: replace(bounds_of(0), seconds=600.0)) as apart:
        apart.start()
        child = _child(apart)
        with pytest.raises(KeyboardInterrupt), apart.open(honest) as reader:
            os.kill(child, signal.SIGSTOP)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            reader.fetch("SELECT node FROM nodes")
        assert not Path(f"/proc/{child}").exists()
        with apart.open(honest) as reader:
            assert reader.fetch("SELECT node FROM nodes") == [("n1",)]


def _child(apart: ReadingProcess) -> int:
    process = apart._process
    assert process is not None
    return process.pid


def _frame(head: object, body: bytes = b"") -> bytes:
    told = json.dumps(head).encode()
    return struct.pack("<IQ", len(told), len(body)) + told + body


READY, OPENED = _frame({"ready": 1}), _frame({"version": 1006})
ONE_TEXT = {"rows": 1, "columns": [["a", 1, 2]]}
LIES = {
    "nothing": b"",
    "no frame": b"\xff" * 64,
    "a head of 4 GB": struct.pack("<IQ", 0xFFFFFFFF, 0),
    "a body of 16 EB": struct.pack("<IQ", 2, 2**64 - 1) + b"{}",
    "no JSON": struct.pack("<IQ", 2, 0) + b"{]",
    "nested": struct.pack("<IQ", 200_000, 0) + b"[" * 200_000,
    "no object": _frame([1]),
    "no rows": _frame({"columns": []}),
    "negative rows": _frame({"rows": -1, "columns": []}),
    "rows without columns": _frame({"rows": 10**9, "columns": []}),
    "too short": _frame(ONE_TEXT, b"\x03"),
    "too long": _frame({"rows": 0, "columns": []}, b"more"),
    "a text that is not there": _frame(
        ONE_TEXT, b"\x03" + array("d", [7.0]).tobytes() + array("i", [2]).tobytes() + b"ab"
    ),
    "no place": _frame(
        ONE_TEXT, b"\x03" + array("d", [float("nan")]).tobytes() + array("i", [2]).tobytes() + b"ab"
    ),
    "another kind": _frame(ONE_TEXT, b"\x09" + array("d", [0.0]).tobytes() + array("i", [2]).tobytes() + b"ab"),
    "negative lengths": _frame(
        {"rows": 0, "columns": [["a", 2, 2]]}, array("i", [-2, 4]).tobytes() + b"ab"
    ),
    "an error of another class": _frame({"error": ["SystemExit", "x", "y"]}),
    "an error that is none": _frame({"error": {"x": 1}}),
}  # fmt: skip


@pytest.mark.parametrize("lie", sorted(LIES))
def test_an_answer_that_lies_is_not_believed(lie: str, honest: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.write_bytes(READY + OPENED + LIES[lie])
    script = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read()); sys.stdout.flush(); sys.stdin.readline(); sys.stdin.readline()"  # noqa: E501
    fetched = pytest.raises(StoreError, match=r"n1\.db cannot be read")
    command = (sys.executable, "-S", "-E", "-c", script, str(told))
    with ReadingProcess(command=command) as apart, fetched, apart.open(honest) as reader:
        reader.fetch("SELECT node FROM nodes")


def test_a_process_that_cannot_be_started_is_said(honest: Path) -> None:
    for command in (("/nowhere/python",), (sys.executable, "-c", "")):
        with (
            ReadingProcess(command=command) as apart,
            pytest.raises(StoreError, match="cannot be started"),
            apart.open(honest),
        ):
            pass


@pytest.mark.slow
def test_a_file_that_fails_late_moves_no_window_and_is_no_source(tmp_path: Path) -> None:
    for number in range(2):
        node(tmp_path / f"n{number}.db", f"n{number}")
    alone = read_frame([tmp_path])
    late = node(tmp_path / "late.db", "late", T0 + 86400.0)
    with closing(sqlite3.connect(late)) as connection:  # which its span does not ask for
        connection.execute("UPDATE gpu SET name = replace(hex(zeroblob(200000)), '0', 'x')")
        connection.commit()
    os.mkfifo(tmp_path / "pipe.db")
    (tmp_path / "link.db").symlink_to("nowhere.db")
    beside = read_frame([tmp_path])
    assert beside.window == alone.window
    assert beside.source == alone.source
    pd.testing.assert_frame_equal(alone.gpu, beside.gpu)
    assert [any(f"{name}.db" in note.text for note in beside.notes) for name in ("late", "pipe", "link")] == [True] * 3


@pytest.mark.parametrize("name", ["a_pipe_for_a_journal", pytest.param("huge_schema", marks=pytest.mark.slow)])
def test_a_folder_is_read_on_without_the_hostile_file(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    for number in range(3):
        node(folder / f"n{number}.db", f"n{number}")
    alone = read_frame([folder])
    bad = folder / "bad.db"
    shutil.copyfile(folder / "n0.db", bad)
    if name != "a_pipe_for_a_journal":
        with closing(sqlite3.connect(bad)) as connection:
            connection.execute("DROP TABLE absence")  # so that it cannot be read through our views either
            connection.commit()
    MAKERS[name](bad)
    beside = read_frame([folder])
    assert [note for note in beside.notes if str(bad) in note.text and note.code == "file-left-out"]
    for table in ("gpu", "fabric", "host", "uses", "gpus", "nodes"):
        pd.testing.assert_frame_equal(getattr(alone, table), getattr(beside, table))


@pytest.mark.slow
def test_sorting_beyond_the_limit_of_temporary_files_is_refused(honest: Path) -> None:
    with ReadingProcess(lambda _: replace(bounds_of(0), seconds=60.0)) as apart, apart.open(honest) as reader:
        many = " CROSS JOIN ".join(f"tick AS t{n}" for n in range(5))
        with pytest.raises(StoreError) as told:
            reader.fetch(f"SELECT max(s) FROM (SELECT t0.ts || t1.ts || t2.ts || t3.ts AS s FROM {many} ORDER BY s"
                         " LIMIT -1 OFFSET 1)")  # fmt: skip
    assert "far more work" in str(told.value) or "full" in str(told.value) or "disk" in str(told.value)
