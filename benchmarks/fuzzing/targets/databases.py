"""Databases of nodes: the reading of one file as advice does it, and the whole way over a folder with an honest one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..sqlite import by_sqlite, packed
from ..target import BrokenPromiseError, Prepared, Seed, Target

HOUR = 3600.0
T0 = 1_790_000_000.0 // HOUR * HOUR
HOURS = 30


def honest(path: Path, name: str = "n1") -> None:
    """A small database with something in every table that advice reads."""
    from skuwise.agent.model import Absence, FabricPort, Gpu, Node, ServingSample, Tick, Workload, WorkloadUse
    from skuwise.agent.store.rollups import RollupJob
    from skuwise.agent.store.writer import Writer

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
        _more(node, writer, late, ServingSample, WorkloadUse, Workload)
        writer.commit()
    RollupJob(path).run(T0 + HOURS * HOUR)


def _more(node: Any, writer: Any, ts: float, sample: Any, use: Any, workload: Any) -> None:
    """What newer databases hold beside."""
    del node, writer, ts, sample, use, workload


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


def _prepare(folder: Path) -> Prepared:
    import numpy as np
    from skuwise.advisor.frame import Window
    from skuwise.advisor.telemetry.database import Parts, read_each

    path = folder / "node.db"
    window = Window(T0, T0 + HOURS * HOUR)

    def read(_: str, data: bytes) -> object:
        path.write_bytes(data)
        for beside in ("-wal", "-shm", "-journal"):
            path.with_name(path.name + beside).unlink(missing_ok=True)
        found = read_each([path], window, 100)[path]
        if not isinstance(found, Parts):
            raise found
        for name, tables in found.tables.items():
            for table in tables:
                for column in table.columns:
                    values = table[column]
                    if values.dtype == np.float64 and np.isinf(values.to_numpy()).any():
                        raise BrokenPromiseError(f"{name}.{column} holds infinity")
        return found

    return Prepared(_seeds(folder), read, by_sqlite(*_HOSTILE))


def _prepare_whole(folder: Path) -> Prepared:
    from skuwise.advisor.advice import advise_on
    from skuwise.advisor.telemetry.sqlite import read_frame

    fleet = folder / "fleet"
    fleet.mkdir()
    (seed,) = _seeds(folder)
    honest(fleet / "a-honest.db", "n0")
    alone = read_frame([fleet])
    del advise_on

    def read(_: str, data: bytes) -> object:
        path = fleet / "b-spoiled.db"
        path.write_bytes(data)
        for beside in ("-wal", "-shm", "-journal"):
            path.with_name(path.name + beside).unlink(missing_ok=True)
        frame = read_frame([fleet], alone.window)
        rows = frame.gpu[frame.gpu["node"] == "n0"]
        if len(rows) < len(alone.gpu):
            raise BrokenPromiseError("rows of the honest node are lost")
        for note in frame.notes:
            if not note.isprintable() or len(note) > 1500:
                raise BrokenPromiseError("a note is not printable, or very long")
        return frame.notes

    return Prepared([seed], read, by_sqlite(*_HOSTILE))


DATABASE = Target("database", "one node's database, as advice reads it (agent/store, advisor/telemetry)", _prepare)
WHOLE = Target(
    "folder", "a folder with an honest database and a spoiled one, read as a whole", _prepare_whole, most=500
)
