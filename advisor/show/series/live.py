"""One node's newest seconds from its database, for whoever looks on while the agent writes.

Each look opens the file anew, reads in short transactions and lets go of it, so that nobody waits for it and a file
that vanished, grew or was replaced is simply what the next look finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ....rules.base.errors import SkuwiseError, StoreError
from ...telemetry.sqlite.database import DatabaseReader, open_database
from .device_series import (
    GPU_GAUGES,
    HOST,
    HOST_GAUGES,
    MOMENTS,
    PORT_GAUGES,
    DeviceAbout,
    NodeSeries,
    devices_of,
    gpu_name,
    gpu_tops,
    port_known,
)

# The agent writes once a second (`Writer`). What is shown is so much older than now that the next seconds are there
# when their turn comes, and a live view moves evenly.
BEHIND_SECONDS = 3.0
# A node that was heard less long ago than this is live: several writings must have failed before.
LIVE_SECONDS = 60.0
_HELD_SECONDS = 60.0
_ABOUT_PORTS = ("role", "link_layer", "state", "line_rate_bytes_per_second")
_DEVICES = (
    "SELECT gpu_uuid, gpu_index, sku, mig_profile, parent_uuid, mem_total_bytes, power_limit_watts,"
    " nvlink_bytes_per_second FROM gpus WHERE node = :node AND valid_to IS NULL ORDER BY gpu_index, gpu_uuid"
)
_WORK = (
    "SELECT u.gpu_uuid, u.workload_id, w.name FROM workload_gpus u JOIN workloads w ON w.workload_id = u.workload_id"
    " WHERE u.node = :node AND u.ts_end > :start ORDER BY u.ts_end DESC, u.ts_start DESC"
)
_NODE = "SELECT last_seen FROM nodes WHERE node = :node"


def _newest(view: str, device: str, columns: Iterable[str]) -> str:
    """One node's samples: what names the device, ts and `columns`."""
    selected = ", ".join((device, "ts", *columns))
    return f"SELECT {selected} FROM {view} WHERE ts > :start AND ts <= :end AND node = :node"  # noqa: S608 - constants


def holding(paths: Iterable[str | Path], node: str) -> Path | None:
    """The database that heard of a node last; one that cannot be read is passed over. None: no one knows it."""
    newest: tuple[float, Path] | None = None
    for path in map(Path, paths):
        try:
            with open_database(path) as reader:
                seen = _last_seen(reader, node)
        except SkuwiseError:
            continue
        if seen is not None and (newest is None or seen > newest[0]):
            newest = (seen, path)
    return newest[1] if newest is not None else None


def read_live(path: Path, node: str, now: float) -> NodeSeries:
    """The newest `MOMENTS` seconds of a node; of one that is live, up to `BEHIND_SECONDS` before `now`.

    Without any sample left in that time there are no moments. Raises SkuwiseError where the file cannot be read or does
    not know the node.
    """
    with open_database(path) as reader:
        seen = _last_seen(reader, node)
        if seen is None:
            raise StoreError(f"No node {node} in {path}.", "Press r to read the source again.")
        end = min(seen, now - BEHIND_SECONDS) if now - seen < LIVE_SECONDS else seen
        span = {"node": node, "start": end - MOMENTS, "end": end}
        gpu = reader.fetch(_newest("gpu_samples", "gpu_uuid", GPU_GAUGES), span)
        port = reader.fetch(_newest("fabric_samples", "device || '/' || port", [*PORT_GAUGES, *_ABOUT_PORTS]), span)
        host = reader.fetch(_newest("host_samples", "''", HOST_GAUGES), span)
        gpus = reader.fetch(_DEVICES, {"node": node})
        held = reader.fetch(_WORK, {"node": node, "start": end - _HELD_SECONDS})
    ends = sorted({row[1] for rows in (gpu, port, host) for row in rows if isinstance(row[1], float)})
    return NodeSeries(
        node, tuple(ends), ends[-1] - ends[-2] if len(ends) > 1 else 0.0,
        (
            *devices_of("gpu", gpu, _gpus(gpus, held), list(GPU_GAUGES), ends),
            *devices_of("port", (row[:-4] for row in port), _ports(port), list(PORT_GAUGES), ends),
            *devices_of("host", host, {"": HOST}, list(HOST_GAUGES), ends),
        ),
    )  # fmt: skip


def _last_seen(reader: DatabaseReader, node: str) -> float | None:
    rows = reader.fetch(_NODE, {"node": node})
    return rows[0][0] if rows and isinstance(rows[0][0], float) else None


def _gpus(rows: Sequence[Sequence[object]], held: Sequence[Sequence[object]]) -> dict[str, DeviceAbout]:
    work: dict[str, tuple[tuple[str, str], ...]] = {}
    for uuid, workload, name in held:
        there, one = work.get(str(uuid), ()), (str(workload), str(name))
        work[str(uuid)] = there if one in there else (*there, one)
    parents = {row[4] for row in rows}
    told: dict[str, DeviceAbout] = {}
    for uuid, index, sku, profile, _, memory, power, nvlink in rows:
        if uuid not in parents:
            about = " ".join(str(part) for part in (sku, profile) if part)
            tops = gpu_tops(_number(memory), _number(power), _number(nvlink))
            told[str(uuid)] = DeviceAbout(
                gpu_name(index if isinstance(index, int) else None), about, tops, work.get(str(uuid), ())
            )
    return told


def _ports(rows: Sequence[Sequence[object]]) -> dict[str, DeviceAbout]:
    """What each port is by its newest row; a state other than ACTIVE is told."""
    newest: dict[str, tuple[object, DeviceAbout]] = {}
    for row in rows:
        key, (role, layer, state, rate) = str(row[0]), row[-4:]
        about = f"{role} {layer}" + (f", {state}" if state != "ACTIVE" else "")
        newest[key] = (row[1], port_known(key, about, _number(rate)))
    return {key: known for key, (_, known) in sorted(newest.items())}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
