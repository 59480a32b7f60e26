"""A labelled recording: what one node's telemetry looked like while known work ran.

A file is gzip'd JSON Lines (``.jsonl.gz``): a header (schema ``skuwise.recording/1``) with the label, the truth and how
it was made, then one line a tick. Values are in the base units of `agent.model`; a missing value is left out.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import cattrs
from skuwise.agent.metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS
from skuwise.agent.model import FabricPort, Gpu, Node, Scope, Tick
from skuwise.rules.base.errors import SourceError
from skuwise.rules.base.sanitize import clean
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel

SCHEMA = "skuwise.recording/1"
# What may stand under `truth`: known without asking the GPU's counters. Absent: the work has no such figure.
TRUTH: Mapping[str, str] = {
    "seconds": "time the counted work took, monotonic",
    "started_at": "Unix time at which the counted work began",
    "ended_at": "Unix time at which the counted work ended",
    "iterations": "how often the work's step ran",
    "flops": "floating-point operations of all matrix products, counted from the shapes; a multiply-add is two",
    "tensor_flops": "the part of flops that runs on the tensor pipe",
    "bytes_read": "bytes that every step must read from device memory, summed",
    "bytes_written": "bytes that every step must write to device memory, summed",
    "host_to_device_bytes": "bytes copied from the host",
    "device_to_device_bytes": "bytes copied to another GPU",
    "held_bytes": "bytes of device memory allocated and left alone",
    "gpu_busy_seconds": "time between CUDA events around the GPU's part of every step, summed",
}
_GPU, _FABRIC = ({metric.name for metric in metrics} for metrics in (GPU_METRICS, FABRIC_METRICS))
# The host's memory size rides with its samples; a GPU's is a fact of the device.
_HOST = {metric.name for metric in HOST_METRICS} | {"mem_total_bytes"}
_REMEDY = "Make it again with tests/hardware/record.py, or name another file."


@dataclass(frozen=True, slots=True)
class Label:
    """What the recording shows, by construction of the work. `work` names what ran."""

    kind: KindLabel
    bottleneck: BottleneckLabel
    work: str


@dataclass(frozen=True, slots=True)
class Made:
    """How the recording came to be: `how` is the command, `at` the time (RFC 3339, UTC)."""

    method: Literal["hardware", "stub", "simulated"]
    how: str
    at: str


@dataclass(frozen=True, slots=True)
class RecordedAbsence:
    """An `Absence` and the time it held: Unix seconds; `until` None: to the end of the recording."""

    scope: Scope
    subject: str
    metric: str
    reason: str
    since: float
    detail: str = ""
    remedy: str = ""
    until: float | None = None


@dataclass(frozen=True, slots=True)
class RecordingHeader:
    """All about a recording but its ticks. `interval_seconds` is the one asked for; each tick keeps its own.

    `truth`: keys of `TRUTH`. `versions`: name -> version of what took part (skuwise, driver, torch, ...).
    """

    label: Label
    made: Made
    node: Node
    gpus: tuple[Gpu, ...]
    interval_seconds: float
    ports: tuple[FabricPort, ...] = ()
    truth: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    absences: tuple[RecordedAbsence, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """A header and its ticks, oldest first; at least one."""

    header: RecordingHeader
    ticks: tuple[Tick, ...]

    @property
    def start(self) -> float:
        """Unix time at which the first tick's interval began."""
        return self.ticks[0].ts - self.ticks[0].interval_seconds


def write_recording(path: Path, header: RecordingHeader, ticks: Iterable[Tick]) -> None:
    """Write a recording; the same content gives the same bytes. Raises `SourceError` for what a reader would refuse."""
    lines = [{"schema": SCHEMA, **_present(header)}, *(_present(tick) for tick in ticks)]
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines)
    _decode(path, text)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_recording(path: Path) -> Recording:
    """The recording in `path`. Raises `SourceError`."""
    try:
        text = gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, ValueError) as error:
        raise SourceError(f"The recording {path} cannot be read: {error}.", _REMEDY) from error
    return _decode(path, text)


def _decode(path: Path, text: str) -> Recording:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=False)
    converter.register_structure_hook(float, lambda value, _: _number(value))
    number = 1
    try:
        first, *rest = text.splitlines()
        data: dict[str, Any] = json.loads(first)
        if (schema := data.pop("schema", None)) != SCHEMA:
            raise ValueError(f"its schema is {schema!r}, not {SCHEMA}")
        header = converter.structure(data, RecordingHeader)
        _known(header.truth, set(TRUTH), "truth")
        ticks: list[Tick] = []
        for number, line in enumerate(rest, start=2):  # noqa: B007 - named in the error below
            ticks.append(_checked(converter.structure(json.loads(line), Tick), header, ticks[-1].ts if ticks else 0.0))
        if not ticks:
            raise ValueError("no tick follows it")
    except Exception as error:  # cattrs raises plain ones, too
        raise SourceError(f"Line {number} of the recording {path} is wrong: {clean(error)[:400]}.", _REMEDY) from error
    return Recording(header, tuple(ticks))


def _checked(tick: Tick, header: RecordingHeader, after: float) -> Tick:
    if tick.ts <= after or tick.interval_seconds <= 0:
        raise ValueError(f"ts {tick.ts} after {after}, an interval of {tick.interval_seconds} s")
    ports = {port.key for port in header.ports}
    _known(tick.port_states, ports, "port_states")
    for where, devices, names, metrics in (
        ("gpus", tick.gpus, {gpu.uuid for gpu in header.gpus}, _GPU),
        ("fabric", tick.fabric, ports, _FABRIC),
        ("host", {"": tick.host}, {""}, _HOST),
    ):
        _known(devices, names, where)
        for values in devices.values():
            _known(values, metrics, where)
    return tick


def _known(data: Mapping[str, object], known: set[str], where: str) -> None:
    if unknown := sorted(data.keys() - known):
        raise ValueError(f"{where} names {unknown[0]!r}, which is unknown")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no finite number")
    return float(value)


def _present(value: Any) -> dict[str, Any]:
    """A header or a tick as JSON has it: what is missing is left out."""

    def of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: part for name, part in pairs if part is not None and part != {}}

    return asdict(value, dict_factory=of)
