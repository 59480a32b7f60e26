"""The lines of a recording, strictly: values in, JSON out, and back. Nothing here touches a file.

A line is refused where it holds a key that the format does not name, a duplicate key, NaN or infinity, a number where
text belongs, a device that the header does not list, or time that does not go forward. Missing is left out, never null.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ....rules.policy.labels import BottleneckLabel, KindLabel
from ...model import FABRIC_METRICS, GPU_METRICS, HOST_METRICS, Absence, FabricPort, Gpu, Node, Scope, Tick

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
class Header:
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


def header_to_json(header: Header, tick_count: int) -> str:
    """The first line. `tick_count` lets a reader see that lines are missing."""
    return _dump(
        {
            "schema": SCHEMA,
            "label": _plain(header.label),
            "made": _plain(header.made),
            "node": _plain(header.node),
            "gpus": [_plain(gpu) for gpu in header.gpus],
            "ports": [_plain(port) for port in header.ports],
            "interval_seconds": header.interval_seconds,
            "truth": dict(sorted(header.truth.items())),
            "versions": dict(sorted(header.versions.items())),
            "absences": [_plain(absence) for absence in header.absences],
            "tick_count": tick_count,
        }
    )


def header_from_json(line: str) -> tuple[Header, int]:
    """The header and the number of ticks that follow it. Raises `FormatError`."""
    data = _object(_load(line), "the header")
    if data.get("schema") != SCHEMA:
        raise FormatError(f"its schema is {_show(data.get('schema'))}, not {SCHEMA}")
    required = {"schema", "label", "made", "node", "gpus", "interval_seconds", "tick_count"}
    _keys(data, required, required | {"ports", "truth", "versions", "absences"}, "the header")
    made = _flat(Made, data["made"], "made")
    _check_time(made.at)
    header = Header(
        label=_flat(Label, data["label"], "label"),
        made=made,
        node=_flat(Node, data["node"], "node"),
        gpus=tuple(_flat(Gpu, item, "gpus") for item in _array(data["gpus"], "gpus")),
        ports=tuple(_flat(FabricPort, item, "ports") for item in _array(data.get("ports", []), "ports")),
        interval_seconds=_positive(data["interval_seconds"], "interval_seconds"),
        truth=_values(data.get("truth", {}), frozenset(TRUTH), "truth"),
        versions=_texts(data.get("versions", {}), "versions"),
        absences=tuple(_flat(RecordedAbsence, x, "absences") for x in _array(data.get("absences", []), "absences")),
    )
    _unique([gpu.uuid for gpu in header.gpus], "gpus")
    _unique([port.key for port in header.ports], "ports")
    count = data["tick_count"]
    if type(count) is not int or count < 0:
        raise FormatError(f"tick_count is {_show(count)}, not a count")
    return header, count


def tick_to_json(tick: Tick) -> str:
    """One line. Empty parts are left out."""
    parts = {"gpus": tick.gpus, "fabric": tick.fabric, "port_states": tick.port_states, "host": tick.host}
    data: dict[str, object] = {"ts": tick.ts, "interval_seconds": tick.interval_seconds}
    return _dump(data | {name: part for name, part in parts.items() if part})


def tick_from_json(line: str, header: Header, after: float | None) -> Tick:
    """The tick of `line`, whose time must lie after `after`. Raises `FormatError`."""
    data = _object(_load(line), "the tick")
    required = {"ts", "interval_seconds"}
    _keys(data, required, required | {"gpus", "fabric", "port_states", "host"}, "the tick")
    ts = _positive(data["ts"], "ts")
    if after is not None and ts <= after:
        raise FormatError(f"ts {ts} does not come after {after}")
    ports = {port.key for port in header.ports}
    states = _texts(data.get("port_states", {}), "port_states")
    _known(states, ports, "port_states")
    return Tick(
        ts=ts,
        interval_seconds=_positive(data["interval_seconds"], "interval_seconds"),
        gpus=_devices(data.get("gpus", {}), {gpu.uuid for gpu in header.gpus}, "gpus"),
        fabric=_devices(data.get("fabric", {}), ports, "fabric"),
        port_states=states,
        host=_values(data.get("host", {}), _METRIC_NAMES["host"], "host"),
    )


def _plain(value: Any) -> dict[str, object]:  # noqa: ANN401 - any of the flat values above
    return {f.name: v for f in dataclasses.fields(value) if (v := getattr(value, f.name)) is not None}


def _dump(data: Mapping[str, object]) -> str:
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    except (TypeError, ValueError) as error:
        raise FormatError(f"it holds what JSON cannot say ({error})") from error


def _load(line: str) -> object:
    def constant(name: str) -> object:
        raise FormatError(f"it holds {name}, which is no value: a missing value is left out")

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(items)
        if len(found) != len(items):
            raise FormatError("it says the same key twice")
        return found

    try:
        return json.loads(line, parse_constant=constant, object_pairs_hook=pairs)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError("it is not JSON") from error


def _show(value: object) -> str:
    return repr(value)[:80]


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{where} is not an object")
    return value


def _array(value: object, where: str) -> Sequence[object]:
    if not isinstance(value, list):
        raise FormatError(f"{where} is not a list")
    return value


def _keys(data: Mapping[str, object], required: set[str], allowed: set[str], where: str) -> None:
    if unknown := sorted(data.keys() - allowed):
        raise FormatError(f"{where} has the unknown key {_show(unknown[0])}")
    if lacking := sorted(required - data.keys()):
        raise FormatError(f"{where} lacks {lacking[0]}")


def _known(data: Mapping[str, object], known: set[str] | frozenset[str], where: str) -> None:
    if unknown := sorted(data.keys() - known):
        raise FormatError(f"{where} names {_show(unknown[0])}, which is not known")


def _unique(names: Sequence[str], where: str) -> None:
    if len(set(names)) != len(names):
        raise FormatError(f"{where} names a device twice")


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


def _positive(value: object, where: str) -> float:
    number = _number(value, where)
    if number <= 0:
        raise FormatError(f"{where} is {number}, not above zero")
    return number


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise FormatError(f"{where} is {_show(value)}, not text of at most {MAX_TEXT} characters")
    return value


def _texts(value: object, where: str) -> dict[str, str]:
    return {_text(k, where): _text(v, f"{where}.{k}") for k, v in _object(value, where).items()}


def _values(value: object, names: frozenset[str], where: str) -> dict[str, float]:
    data = _object(value, where)
    _known(data, names, where)
    found = {name: _number(item, f"{where}.{name}") for name, item in data.items()}
    for name, number in found.items():
        if number < 0 and name not in _SIGNED:
            raise FormatError(f"{where}.{name} is {number}, and it cannot be below zero")
    return found


def _devices(value: object, devices: set[str], where: str) -> dict[str, Mapping[str, float]]:
    data = _object(value, where)
    _known(data, devices, where)
    return {device: _values(item, _METRIC_NAMES[where], where) for device, item in data.items()}


def _check_time(text: str) -> None:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", text):
        raise FormatError(f"made.at is {_show(text)}, not a time as RFC 3339 writes it")
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise FormatError(f"made.at is {_show(text)}, which is no time") from error


def _flat(cls: type[_T], value: object, where: str) -> _T:
    """A frozen value of plain fields from an object; the fields' annotations are the schema."""
    data = _object(value, where)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    required = {f.name for f in fields if f.default is dataclasses.MISSING}
    _keys(data, required, {f.name for f in fields}, where)
    hints = get_type_hints(cls)
    return cls(**{name: _typed(item, hints[name], f"{where}.{name}") for name, item in data.items()})


def _typed(value: object, hint: Any, where: str) -> object:  # noqa: ANN401 - an annotation
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for choice in choices:
        if get_origin(choice) is Literal and isinstance(value, str) and value in get_args(choice):
            return value
    kinds = [choice for choice in choices if choice in (str, int, float)]
    if str in kinds:
        return _text(value, where)
    if int in kinds and type(value) is int and value >= 0:
        return value
    if float in kinds:
        return _number(value, where)
    raise FormatError(f"{where} is {_show(value)}, which it cannot be")
