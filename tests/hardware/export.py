"""From a skuwise database to a recording: the views of a window, read-only, without what identifies the machine.

Reads only the views that docs/metrics.md promises, so it works on any database of this major version.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from skuwise.agent.metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS
from skuwise.agent.model import FabricPort, Gpu, Node, Tick
from skuwise.rules.base.errors import SourceError
from skuwise.tests.hardware.recordings import Label, Made, RecordedAbsence, RecordingHeader

_GPU_NAMES = tuple(metric.name for metric in GPU_METRICS)
_FABRIC_NAMES = tuple(metric.name for metric in FABRIC_METRICS)
_HOST_NAMES = (*(metric.name for metric in HOST_METRICS), "mem_total_bytes")
# What a recording needs to know of the node; its name, ids, cluster and place stay at home.
_NODE_NAMES = ("provider", "instance_type", "node_sku", "node_sku_source", "gpu_count", "agent_version")


def export_window(
    database: Path,
    since: float,
    until: float,
    *,
    label: Label,
    made: Made,
    interval_seconds: float,
    truth: Mapping[str, float],
    versions: Mapping[str, str],
) -> tuple[RecordingHeader, list[Tick]]:
    """What `database` holds of intervals that lie wholly in ``(since, until]``. Raises SourceError where that is none.

    GPUs get made-up UUIDs that keep their order, the node is called ``recorded``.
    """
    uri = f"file:{quote(str(database))}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("BEGIN")  # one moment for all the views, while an agent may be writing
            return _export(connection, since, until, label, made, interval_seconds, truth, versions)
    except sqlite3.Error as error:
        raise SourceError(f"{database} cannot be exported: {error}.", "Name a database that skuwise wrote.") from error


def _export(
    connection: sqlite3.Connection,
    since: float,
    until: float,
    label: Label,
    made: Made,
    interval_seconds: float,
    truth: Mapping[str, float],
    versions: Mapping[str, str],
) -> tuple[RecordingHeader, list[Tick]]:
    nodes = _rows(connection, "SELECT * FROM nodes")
    if len(nodes) != 1:
        raise SourceError(f"The database holds {len(nodes)} nodes; a recording is of one.", "Record on one node.")
    # A millisecond is the step in which intervals are stored.
    window = {"since": since - 1e-3, "until": until}
    inside = "ts - interval_seconds >= :since AND ts <= :until ORDER BY ts"
    gpu_rows = _rows(connection, f"SELECT * FROM gpu_samples WHERE {inside}", window)
    fabric_rows = _rows(connection, f"SELECT * FROM fabric_samples WHERE {inside}", window)
    host_rows = _rows(connection, f"SELECT * FROM host_samples WHERE {inside}", window)
    ticks = _ticks(gpu_rows, fabric_rows, host_rows)
    if not ticks:
        raise SourceError("The database holds no tick of that window.", "Record for longer.")
    gpus = _gpus(_rows(connection, "SELECT * FROM gpus WHERE valid_from <= :until ORDER BY valid_from", window))
    names = _made_up(gpus)
    drivers = {gpu.driver_version for gpu in gpus if gpu.driver_version}
    header = RecordingHeader(
        label=label,
        made=made,
        node=Node("recorded", **{name: nodes[0][name] for name in _NODE_NAMES}),
        gpus=tuple(_renamed(gpu, names) for gpu in gpus),
        ports=_ports(fabric_rows),
        interval_seconds=interval_seconds,
        truth=truth,
        versions={**versions, **({"driver": ", ".join(sorted(drivers))} if drivers else {})},
        absences=_absences(_rows(connection, "SELECT * FROM absences ORDER BY since"), ticks, names),
    )
    return header, [_rename_tick(tick, names) for tick in ticks]


def _rows(connection: sqlite3.Connection, sql: str, values: Mapping[str, float] | None = None) -> list[sqlite3.Row]:
    return connection.execute(sql, values or {}).fetchall()


def _values(row: sqlite3.Row, names: Iterable[str]) -> dict[str, float]:
    """The values that are there. Stored integers times a step of 1e-4 or 0.1 show float dust, which nobody measured."""
    found = {name: row[name] for name in names if row[name] is not None}
    return {name: float(f"{v:.12g}") if isinstance(v, float) else v for name, v in found.items()}


def _ticks(gpu: Sequence[sqlite3.Row], fabric: Sequence[sqlite3.Row], host: Sequence[sqlite3.Row]) -> list[Tick]:
    intervals: dict[float, float] = {row["ts"]: round(row["interval_seconds"], 3) for row in (*gpu, *fabric, *host)}
    gpus: defaultdict[float, dict[str, dict[str, float]]] = defaultdict(dict)
    ports: defaultdict[float, dict[str, dict[str, float]]] = defaultdict(dict)
    states: defaultdict[float, dict[str, str]] = defaultdict(dict)
    for row in gpu:
        gpus[row["ts"]][row["gpu_uuid"]] = _values(row, _GPU_NAMES)
    for row in fabric:
        key = f"{row['device']}/{row['port']}"
        if values := _values(row, _FABRIC_NAMES):
            ports[row["ts"]][key] = values
        if row["state"] is not None:
            states[row["ts"]][key] = row["state"]
    hosts = {row["ts"]: _values(row, _HOST_NAMES) for row in host}
    return [
        Tick(ts, intervals[ts], gpus.get(ts, {}), ports.get(ts, {}), states.get(ts, {}), hosts.get(ts, {}))
        for ts in sorted(intervals)
    ]


def _gpus(rows: Sequence[sqlite3.Row]) -> list[Gpu]:
    """Each device once, as it was last known."""
    known: dict[str, Gpu] = {}
    kept = [field.name for field in fields(Gpu) if field.compare and field.name not in ("uuid", "index")]
    for row in rows:
        facts: dict[str, Any] = {name: row[name] for name in kept}
        known[row["gpu_uuid"]] = Gpu(uuid=row["gpu_uuid"], index=row["gpu_index"], **facts)
    return list(known.values())


def _ports(rows: Sequence[sqlite3.Row]) -> tuple[FabricPort, ...]:
    known = {
        (row["device"], row["port"]): FabricPort(
            row["device"], row["port"], row["role"], row["link_layer"], row["line_rate_bytes_per_second"]
        )
        for row in rows
    }
    return tuple(known[key] for key in sorted(known))


def _made_up(gpus: Sequence[Gpu]) -> dict[str, str]:
    """True UUID -> one that only says the device's place among the recorded ones."""
    ordered = sorted(gpus, key=lambda gpu: (gpu.index, gpu.kind, gpu.uuid))
    prefixes = {"gpu": "GPU", "mig": "MIG"}
    return {gpu.uuid: f"{prefixes[gpu.kind]}-00000000-0000-0000-0000-{n:012d}" for n, gpu in enumerate(ordered)}


def _renamed(gpu: Gpu, names: Mapping[str, str]) -> Gpu:
    facts: dict[str, Any] = {f.name: getattr(gpu, f.name) for f in fields(Gpu)}
    parent = None if gpu.parent_uuid is None else names.get(gpu.parent_uuid)
    return Gpu(**{**facts, "uuid": names[gpu.uuid], "parent_uuid": parent})


def _rename_tick(tick: Tick, names: Mapping[str, str]) -> Tick:
    renamed = {names[uuid]: values for uuid, values in tick.gpus.items()}
    return Tick(tick.ts, tick.interval_seconds, renamed, tick.fabric, tick.port_states, tick.host)


def _absences(
    rows: Sequence[sqlite3.Row], ticks: Sequence[Tick], names: Mapping[str, str]
) -> tuple[RecordedAbsence, ...]:
    start, end = ticks[0].ts - ticks[0].interval_seconds, ticks[-1].ts
    pattern = re.compile("|".join(map(re.escape, names)) or r"(?!)")

    def clean(text: str | None) -> str:
        return pattern.sub(lambda found: names[found[0]], text or "")

    return tuple(
        RecordedAbsence(
            scope=row["scope"],
            subject=names.get(row["gpu_uuid"] or "", row["gpu_uuid"] or row["device"] or ""),
            metric=row["metric"],
            reason=row["reason"],
            detail=clean(row["detail"]),
            remedy=clean(row["remedy"]),
            since=max(row["since"], start),
            until=row["until"] if row["until"] is not None and row["until"] <= end else None,
        )
        for row in rows
        if row["since"] <= end and (row["until"] is None or row["until"] > start)
    )
