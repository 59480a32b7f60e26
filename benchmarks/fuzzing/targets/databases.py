"""Databases of nodes: the reading of one file as advice does it, and the whole way over a folder with an honest one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..documents import by_json
from ..spoil import spoiled
from ..sqlite import by_sqlite, packed
from ..target import BrokenPromiseError, Prepared, Seed, Target

HOUR = 3600.0
T0 = 1_790_000_000.0 // HOUR * HOUR
HOURS = 30


def honest(path: Path, name: str = "n1") -> None:
    """A small database with something in every table that advice reads."""
    from skuwise.agent.model import Absence, FabricPort, Gpu, Node, Tick, Workload
    from skuwise.agent.store.rollup.rollups import RollupJob
    from skuwise.agent.store.writing.writer import Writer

    columns = ("ts", "device", "observed_seconds", "gpu_util_mean", "gpu_util_p95", "gpu_util_max", "gpu_util_n",
               "sm_active_mean", "tensor_active_mean", "dram_active_mean", "power_watts_mean")  # fmt: skip
    uuid = f"GPU-{name}"
    with Writer.open(path, now=lambda: T0 + HOURS * HOUR) as writer:
        node = writer.for_node(Node(name, "c", machine_id=f"machine of {name}", boot_id="b", gpu_count=1), T0)
        node.set_gpus([Gpu(uuid, 0, "NVIDIA H100 80GB HBM3", sku="H100-SXM5", mem_total_bytes=80 * 2**30)], T0)
        node.set_ports([FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9)], T0)
        rows = [(T0 + (n + 1) * HOUR, uuid, HOUR, 0.9, 0.95, 1.0, 3600, 0.8, 0.5, 0.3, 500.0) for n in range(HOURS)]
        node.put_rollups("gpu_hour", columns, rows)
        node.put_workload_use(
            Workload("w", "s", "train", "slurm", job_id="22", user="ann"), uuid, T0, T0 + HOURS * HOUR, "allocation"
        )
        late = T0 + (HOURS - 1) * HOUR
        for n in range(130):
            node.add_tick(Tick(
                late + n, 1.0, gpus={uuid: {"gpu_util": 0.5, "sm_active": 0.4, "power_watts": 300.0}},
                fabric={"mlx5_0/1": {"tx_bytes_per_second": 1e9, "rx_bytes_per_second": 1e9}},
                port_states={"mlx5_0/1": "ACTIVE"}, host={"cpu_util": 0.25},
            ))  # fmt: skip
        node.set_absences([Absence("gpu", uuid, "fp64_active", "not-supported", "No.", "None.")], late)
        writer.commit()
    RollupJob(path).run(T0 + HOURS * HOUR)


def _seeds(folder: Path) -> list[Seed]:
    path = folder / "honest.db"
    honest(path)
    small = packed(str(path))
    path.unlink()
    return [Seed("database", small)]


_HOSTILE = (
    "SELECT trim(a, b) FROM (SELECT hex(zeroblob(400000)) a, hex(zeroblob(400000)) b)",
    "SELECT count(*) FROM (SELECT a.sql FROM sqlite_master a, sqlite_master b, sqlite_master c, sqlite_master d "
    "ORDER BY 1)",
)


def _place(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    for beside in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + beside).unlink(missing_ok=True)


def _prepare(folder: Path) -> Prepared:
    """What the process that reads databases does, in this one: the same calls, without its limits on the system."""
    import json

    from skuwise.advisor.telemetry.ipc_checks import Unpacked
    from skuwise.agent.store.reading import queries, reading_child
    from skuwise.agent.store.reading.bounds import bounds_of, disk_bytes
    from skuwise.agent.store.reading.packing import FRAME
    from skuwise.rules.base.errors import StoreError

    reading_child._limit = lambda what, value: None  # noqa: ARG005 - they would hold this process
    path = folder / "node.db"
    asked = {name: query for name, query in vars(queries).items() if isinstance(query, queries.Query)}
    parameters = {"start": T0, "end": T0 + HOURS * HOUR, "level": 0.01, "node": "n1", "every": 300.0}

    def answer(served: reading_child.Served, do: Callable[[], Iterable[bytes | memoryview]]) -> tuple[Any, memoryview]:
        try:
            raw = b"".join(bytes(part) for part in do())
        except Exception as error:
            raw = b"".join(bytes(part) for part in served.error(error))
        head_bytes, _ = FRAME.unpack(raw[: FRAME.size])
        head = json.loads(raw[FRAME.size :][:head_bytes])
        if "error" in head:
            _, message, remedy = head["error"]
            raise StoreError(message, remedy)
        return head, memoryview(raw)[FRAME.size + head_bytes :]

    def read(_: str, data: bytes) -> object:
        _place(path, data)
        served = reading_child.Served()
        told: dict[str, int] = {}
        try:
            bounds = asdict(bounds_of(disk_bytes(path)))
            version = answer(served, lambda: served.open(str(path), disk_bytes(path), bounds))[0]["version"]
            for sql in (*queries.data_spans(version), queries.LAST_SEEN, queries.minutes_begin(version)):
                head, body = answer(served, lambda sql=sql: served.fetch(sql, {}, ""))
                Unpacked.of(head, body, "").rows()
            for name, query in asked.items():
                if version < _SINCE.get(name, 0):
                    continue
                forms = "t" * len(query.text) + "n" * len(query.numbers) + "t" * len(query.bins)
                given = {key: value for key, value in parameters.items() if f":{key}" in query.sql}
                head, body = answer(served, lambda q=query, g=given, f=forms: served.fetch(q.sql, g, f))
                told[name] = Unpacked.of(head, body, forms).count
        finally:
            served.close()
        return told

    return Prepared(_seeds(folder), read, by_sqlite(*_HOSTILE))


# Queries that older databases have no tables for.
_SINCE = {"SERVING": 1007, "SLURM_JOBS": 1006, "WORKLOADS": 1005}


def _check(tables: Mapping[str, Any]) -> None:
    import numpy as np

    for name, table in tables.items():
        for column in table.columns:
            if table[column].dtype == np.float64 and np.isinf(table[column].to_numpy()).any():
                raise BrokenPromiseError(f"{name}.{column} holds infinity")


def _prepare_reading(folder: Path) -> Prepared:
    from skuwise.advisor.core.frame import Window
    from skuwise.advisor.telemetry.sqlite.database import Parts, read_each
    from skuwise.advisor.telemetry.sqlite.reading_process import ReadingProcess

    path, apart = folder / "node.db", ReadingProcess()
    window = Window(T0, T0 + HOURS * HOUR)

    def read(_: str, data: bytes) -> object:
        _place(path, data)
        apart.renew()
        found = read_each([path], window, 100, apart)[path]
        if not isinstance(found, Parts):
            raise found
        _check({f"{name} {n}": table for name, tables in found.tables.items() for n, table in enumerate(tables)})
        return found

    return Prepared(_seeds(folder), read, by_sqlite(*_HOSTILE))


def _prepare_whole(folder: Path) -> Prepared:
    from skuwise.advisor.telemetry.sqlite.reader import read_frame

    fleet = folder / "fleet"
    fleet.mkdir()
    (seed,) = _seeds(folder)
    honest(fleet / "a-honest.db", "n0")
    alone = read_frame([fleet])

    def read(_: str, data: bytes) -> object:
        _place(fleet / "b-spoiled.db", data)
        frame = read_frame([fleet], alone.window)
        rows = frame.gpu[frame.gpu["node"] == "n0"]
        if len(rows) < len(alone.gpu):
            raise BrokenPromiseError("rows of the honest node are lost")
        for note in frame.notes:
            if not note.text.isprintable() or len(note.text) > 1500:
                raise BrokenPromiseError("a note is not printable, or very long")
        return frame.notes

    return Prepared([seed], read, by_sqlite(*_HOSTILE))


def _prepare_frames(folder: Path) -> Prepared:  # noqa: ARG001
    """Answers of the process that reads databases, as whoever asked it takes them."""
    import json

    from skuwise.advisor.telemetry.ipc_checks import Unpacked
    from skuwise.advisor.telemetry.tables import columns_to_table
    from skuwise.agent.store.reading import queries
    from skuwise.agent.store.reading.packing import FRAME, PackedColumn, frame

    asked = {"nodes": queries.NODES, "uses": queries.USES, "gpus": queries.GPUS, "workloads": queries.WORKLOADS}

    def forms(name: str) -> str:
        query = asked[name]
        return "t" * len(query.text) + "n" * len(query.numbers) + "t" * len(query.bins)

    def answer(wanted: str) -> bytes:
        columns = [PackedColumn(form) for form in wanted]
        for n, column in enumerate(columns):
            column.add([n, None, 1.5] if column.form == "n" else [b"text", None, b"[1,2]"])
        return b"".join(bytes(part) for part in frame({"rows": 3}, columns))

    def read(name: str, data: bytes) -> object:
        try:
            if len(data) < FRAME.size:
                raise ValueError("too short")
            head_bytes, body_bytes = FRAME.unpack(data[: FRAME.size])
            rest = data[FRAME.size :]
            if head_bytes > len(rest) or body_bytes != len(rest) - head_bytes:
                raise ValueError("another size")
            head = json.loads(rest[:head_bytes])
            if not isinstance(head, dict):
                raise ValueError("no head")
            told = Unpacked.of(head, memoryview(rest)[head_bytes:], forms(name) if name in asked else "")
            return columns_to_table(told, asked[name]) if name in asked else told.rows()
        except (ValueError, IndexError, RecursionError) as error:  # told by `apart.Reading` as what makes no sense
            raise _SenselessError from error

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:
        if draw.random() < 0.2:
            return spoiled(draw, seed.data, seeds)
        head_bytes, _ = FRAME.unpack(seed.data[: FRAME.size])
        head, body = seed.data[FRAME.size :][:head_bytes], seed.data[FRAME.size + head_bytes :]
        if draw.random() < 0.6:
            head = trees(draw, Seed("", head), [Seed("", head)])
        if draw.random() < 0.6:
            body = spoiled(draw, body, [Seed("", body)])
        return FRAME.pack(len(head), len(body)) + head + body

    trees = by_json(b'"rows":3', b'["n",0,0]', b'["t",1,4]', b'["a",1,4]')
    seeds = [*(Seed(name, answer(forms(name))) for name in asked), Seed("anything", answer("aaa"))]
    return Prepared(seeds, read, mutate)


class _SenselessError(Exception):
    """What makes no sense, as whoever asks tells it of the file."""


FRAMES = Target(
    "frames", "what the process that reads databases gives back (advisor/telemetry)", _prepare_frames,
    refusals=(_SenselessError,),
)  # fmt: skip
DATABASE = Target("database", "one node's database: every query, as its process reads it (agent/store)", _prepare)
READING = Target(
    "reading", "one node's database, through a process apart to the tables of advice (advisor/telemetry)",
    _prepare_reading, most=10_000,
)  # fmt: skip
WHOLE = Target(
    "folder", "a folder with an honest database and a spoiled one, read as a whole", _prepare_whole, most=500
)
