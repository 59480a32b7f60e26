"""The lines of a recording, strictly: values in, JSON out, and back. Nothing here touches a file.

A line is refused where it holds a key that the format does not name, a duplicate key, NaN or infinity, a number where
text belongs, a device that the header does not list, or time that does not go forward. Missing is left out, never null.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ....rules.policy.labels import BottleneckLabel, KindLabel
from ...metrics import FABRIC_METRICS, GPU_METRICS, HOST_METRICS
from ...model import Absence, FabricPort, Gpu, Node, Scope, Tick

SCHEMA = "skuwise.recording/1"
MAX_TEXT = 4096

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

_T = TypeVar("_T")
_METRIC_NAMES: Mapping[str, frozenset[str]] = {
    "gpus": frozenset(metric.name for metric in GPU_METRICS),
    "fabric": frozenset(metric.name for metric in FABRIC_METRICS),
    # The host's memory size rides with its samples; a GPU's is a fact of the device.
    "host": frozenset(metric.name for metric in HOST_METRICS) | {"mem_total_bytes"},
}
_SIGNED = frozenset({"temperature_celsius"})


class FormatError(ValueError):
    """What is wrong with a line, as the end of a sentence. The reader adds the file and the line."""


@dataclass(frozen=True, slots=True)
class Label:
    """What the recording shows, by construction of the work. `work` names what ran."""

    kind: KindLabel
    bottleneck: BottleneckLabel
    work: str


@dataclass(frozen=True, slots=True)
class Made:
    """How the recording came to be. `method`: on real hardware, from the NVML test double, or simulated.

    `how` is the command, `at` the time (RFC 3339, UTC).
    """

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

    def at(self, ts: float) -> bool:
        return self.since <= ts and (self.until is None or ts < self.until)

    def absence(self) -> Absence:
        return Absence(self.scope, self.subject, self.metric, self.reason, self.detail, self.remedy)


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


def header_to_json(header: RecordingHeader, tick_count: int) -> str:
    """The first line. `tick_count` lets a reader see that lines are missing."""
    return _dump({"schema": SCHEMA, **_plain(header), "tick_count": tick_count})


def header_from_json(line: str) -> tuple[RecordingHeader, int]:
    """The header and the number of ticks that follow it. Raises `FormatError`."""
    data = dict(_object(_load(line), "the header"))
    schema, count = data.pop("schema", None), data.pop("tick_count", None)
    if schema != SCHEMA:
        raise FormatError(f"its schema is {_show(schema)}, not {SCHEMA}")
    if type(count) is not int or count < 0:
        raise FormatError(f"tick_count is {_show(count)}, not a count")
    header = _decoded(RecordingHeader, data, "")
    _check_time(header.made.at)
    _check_positive(header.interval_seconds, "interval_seconds")
    _check_values(header.truth, frozenset(TRUTH), "truth")
    for where, names in (("gpus", [gpu.uuid for gpu in header.gpus]), ("ports", [port.key for port in header.ports])):
        if len(set(names)) != len(names):
            raise FormatError(f"{where} names a device twice")
    return header, count


def tick_to_json(tick: Tick) -> str:
    """One line. Empty parts are left out."""
    return _dump({name: part for name, part in _plain(tick).items() if part != {}})


def tick_from_json(line: str, header: RecordingHeader, after: float | None) -> Tick:
    """The tick of `line`, whose time must lie after `after`. Raises `FormatError`."""
    tick = _decoded(Tick, _object(_load(line), "the tick"), "")
    _check_positive(tick.ts, "ts")
    _check_positive(tick.interval_seconds, "interval_seconds")
    if after is not None and tick.ts <= after:
        raise FormatError(f"ts {tick.ts} does not come after {after}")
    ports = {port.key for port in header.ports}
    _check_known(tick.port_states, ports, "port_states")
    for where, devices, known in (
        ("gpus", tick.gpus, {gpu.uuid for gpu in header.gpus}),
        ("fabric", tick.fabric, ports),
        ("host", {"": tick.host}, {""}),
    ):
        _check_known(devices, known, where)
        for values in devices.values():
            _check_values(values, _METRIC_NAMES[where], where)
    return tick


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a header or a tick, as JSON has it
    if dataclasses.is_dataclass(value):
        named = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {name: _plain(part) for name, part in named if part is not None}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in sorted(value.items())}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _dump(data: Mapping[str, object]) -> str:
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    except (TypeError, ValueError) as error:
        raise FormatError(f"it holds a value that JSON does not support ({error})") from error


def _load(line: str) -> object:
    def constant(name: str) -> object:
        raise FormatError(f"it holds {name}, which is no value: a missing value is left out")

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(items)
        if len(found) != len(items):
            raise FormatError("it has the same key twice")
        return found

    try:
        return json.loads(line, parse_constant=constant, object_pairs_hook=pairs)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError("it is not JSON") from error


@cache
def _schema(cls: type) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The types of a value's fields by their names, and which of them must be there."""
    missing = dataclasses.MISSING
    fields = dataclasses.fields(cls)
    return get_type_hints(cls), frozenset(f.name for f in fields if f.default is f.default_factory is missing)


def _decoded(cls: type[_T], value: object, where: str) -> _T:
    """A frozen value from an object; the annotations of its fields are the schema."""
    data = _object(value, where)
    hints, required = _schema(cls)
    if unknown := sorted(data.keys() - hints.keys()):
        raise FormatError(f"{where or 'the line'} has the unknown key {_show(unknown[0])}")
    if lacking := sorted(required - data.keys()):
        raise FormatError(f"{where or 'the line'} lacks {lacking[0]}")
    prefix = f"{where}." if where else ""
    return cls(**{name: _typed(item, hints[name], f"{prefix}{name}") for name, item in data.items()})


def _typed(value: object, hint: Any, where: str) -> object:  # noqa: ANN401 - an annotation
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kind = kinds[0]  # of a union the second is None, and null is not written
    parts = get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _decoded(kind, value, where)  # type: ignore[arg-type]
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise FormatError(f"{where} is not a list")
        return tuple(_typed(item, parts[0], where) for item in value)
    if get_origin(kind) is Mapping:
        return {
            _text(key, where): _typed(item, parts[1], f"{where}.{key}") for key, item in _object(value, where).items()
        }
    if kind is str:
        return _text(value, where)
    if kind is float:
        return _number(value, where)
    if (kind is int and type(value) is int and value >= 0) or (isinstance(value, str) and value in parts):
        return value
    raise FormatError(f"{where} is {_show(value)}, which it cannot be")


def _show(value: object) -> str:
    return repr(value)[:80]


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{where} is not an object")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FormatError(f"{where} is {_show(value)}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise FormatError(f"{where} is not finite")
    return number


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise FormatError(f"{where} is {_show(value)}, not text of at most {MAX_TEXT} characters")
    return value


def _check_positive(number: float, where: str) -> None:
    if number <= 0:
        raise FormatError(f"{where} is {number}, not above zero")


def _check_known(data: Mapping[str, object], known: set[str] | frozenset[str], where: str) -> None:
    if unknown := sorted(data.keys() - known):
        raise FormatError(f"{where} names {_show(unknown[0])}, which is unknown")


def _check_values(values: Mapping[str, float], names: frozenset[str], where: str) -> None:
    _check_known(values, names, where)
    for name, number in values.items():
        if number < 0 and name not in _SIGNED:
            raise FormatError(f"{where}.{name} is {number}, and it cannot be below zero")


def _check_time(text: str) -> None:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", text):
        raise FormatError(f"made.at is {_show(text)}, not a time as RFC 3339 writes it")
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise FormatError(f"made.at is {_show(text)}, which is not a time") from error
