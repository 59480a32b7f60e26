"""The advice as the plain values of its JSON, schema ``skuwise.advice/1``, and back: RFC 3339 UTC, base units, null for
what is missing, never NaN.

What the JSON does not carry (features of workloads, their commands) comes back as its default. Keys that were added to
the first contract may be absent.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream
from ...rules.base.quantities import Moment
from ...rules.base.sanitize import clean
from ...rules.policy.labels import BottleneckLabel
from .advice_types import Advice, Finding, Reconciliation, Rejected
from .codec import Codec, MisfitError, anything, strict_json
from .coded_text import UNSPECIFIED, CodedText
from .energy_types import FleetEnergy

SCHEMA = "skuwise.advice/1"
# No count and no sum of dollars or hours comes near: beyond it, adding up would lose the last cent.
CODEC = Codec(largest=1e13, decimals=6, dates=True)
_CLOSES = 0.001  # what the parts of a reconciliation may differ from its total, of the total
_CENT = 0.01  # of room, for what was rounded


def _statement(value: Any) -> Any:  # noqa: ANN401
    """Advice that told no codes had the text alone."""
    if isinstance(value, str):
        return {"code": UNSPECIFIED, "text": value}
    return {"code": UNSPECIFIED, **value} if isinstance(value, dict) else value


def _rejected(value: Any) -> Any:  # noqa: ANN401
    """The reason's parts stand beside the SKU, and its text is called the reason."""
    if not isinstance(value, dict) or "reason" not in value:
        return value
    parts = {key: value[key] for key in ("code", "fields") if key in value}
    return {**value, "reason": {**parts, "text": value["reason"]}}


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    sku, reason = values["sku"], values["reason"]
    return {"sku": sku, "code": reason["code"], "reason": reason["text"], "fields": reason["fields"]}


def _finding(value: Any) -> Any:  # noqa: ANN401
    """The first contract had `node` alone."""
    if not isinstance(value, dict) or "nodes" in value:
        return value
    return {**value, "nodes": [] if value.get("node") is None else [value["node"]]}


CODEC.reshape(CodedText, _statement)
CODEC.reshape(Rejected, _rejected, _flat)
CODEC.reshape(Finding, _finding)


@dataclass(frozen=True, slots=True)
class _Window:
    start: Moment
    end: Moment


@dataclass(frozen=True, slots=True)
class _Windowed:
    window: _Window


def to_dict(advice: Advice) -> dict[str, Any]:
    """The advice as plain values, in the order of the contract."""
    values = CODEC.encode(advice)
    generated_at, start, end = (values.pop(name) for name in ("generated_at", "start", "end"))
    if values["market"] is None:
        del values["market"]
    return {"schema": SCHEMA, "generated_at": generated_at, "window": {"start": start, "end": end}, **values}


def from_dict(values: dict[str, Any]) -> Advice:
    """The advice of what its JSON held. Raises MisfitError for what no advice can be."""
    window = CODEC.decode(_Windowed, values).window
    if window.start > window.end:
        raise MisfitError("ends before it begins", ("window",))
    advice = CODEC.decode(Advice, {**values, **values["window"]})
    _check_reconciliation(advice.summary.reconciliation)
    _check_energy(advice.summary.energy)
    for name in ("workloads", "findings", "recommendations", "market"):
        counts = Counter(item.id for item in getattr(advice, name) or ())
        id_, count = max(counts.items(), key=lambda one: one[1], default=("", 0))
        if count > 1:
            raise MisfitError(f"has the id {clean(id_)[:60]} twice", (name,))
    for number, workload in enumerate(advice.workloads):
        if not workload.bottleneck.time_shares.keys() <= set(get_args(BottleneckLabel)):
            place = ("workloads", number, "bottleneck", "time_shares")
            raise MisfitError("has an unknown bottleneck label", place)
    return advice


def _check_reconciliation(money: Reconciliation) -> None:
    place = ("summary", "reconciliation")
    parts = [getattr(money, f.name) for f in fields(money) if f.name != "total"]
    known = [part for part in parts if part is not None]
    if money.total is None and not known:
        return
    if money.total is None or len(known) != len(parts):
        raise MisfitError("is incomplete", place)
    if abs(math.fsum(known) - money.total) > _CLOSES * abs(money.total) + _CENT:
        raise MisfitError("does not add up to its total", place)


def _check_energy(energy: FleetEnergy | None) -> None:
    uses = energy.by_use if energy is not None else None
    if uses is None:
        return
    parts = (uses.workloads, uses.shared, uses.allocated_idle, uses.unallocated, uses.drained)
    if abs(math.fsum(parts) - uses.total) > _CLOSES * uses.total + _CENT:
        raise MisfitError("does not add up to its total", ("summary", "energy", "by_use"))


# Some 3,800 nodes with their codes. While it is read, advice takes some five times its text.
_MAX_BYTES = 48 * 1024**2
_OURS = "Use files written by skuwise advise --format json."
_ANEW = "Create it again with skuwise advise --format json."
_SOURCE_DEPTH = 8  # what the source may nest


def read_advice(path: Path, *, patience_seconds: float) -> Advice:
    """The advice in a file. Raises UsageError, naming it, for whatever is no advice of this schema, or too much.

    A pipe that gives nothing for `patience_seconds` at a time is left.
    """
    name = str(path)
    try:
        with open_stream(path, patience_seconds) as file:
            too_large = os.fstat(file.fileno()).st_size > _MAX_BYTES
            # A pipe tells no size.
            data = b"" if too_large else file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"Cannot read {name}: {error.strerror}.", _OURS) from error
    if too_large or len(data) > _MAX_BYTES:
        raise UsageError(f"{name} is larger than {_MAX_BYTES // 1024**2} MiB.", "Use advice of fewer nodes.")
    return parse_advice(data, name)


def parse_advice(data: bytes, name: str) -> Advice:
    """The advice in `data`; `name` is what errors call it."""
    try:
        values = strict_json(data.decode())
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        told = "" if data.rstrip().endswith(b"}") else "The file may be truncated. "
        raise UsageError(f"{name} is not valid JSON{where}.", f"{told}{_ANEW}") from error
    schema = values.get("schema") if isinstance(values, dict) else None
    if not isinstance(schema, str):
        raise UsageError(f"{name} is not skuwise advice.", _OURS)
    if schema != SCHEMA:
        remedy = "Update skuwise." if schema.startswith("skuwise.advice/") else _OURS
        raise UsageError(f"Unsupported schema in {name}: {clean(schema)[:60]}. This version reads {SCHEMA}.", remedy)
    try:
        advice = from_dict(values)
        anything(advice.source, depth=_SOURCE_DEPTH)
    except MisfitError as error:
        raise UsageError(f"{name} cannot be used: {error.place} {error.what}.", _ANEW) from error
    return advice
