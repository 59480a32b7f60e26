"""A file of advice (what `render/json.py` writes) back as `Advice`. It is hostile until it is read."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from ...agent.base.json_weight import json_memory_bytes
from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream
from ...rules.base.sanitize import clean
from ..core.advice_json import SCHEMA, from_dict
from ..core.advice_types import Advice
from ..core.codec import MisfitError
from .merged_source import read_source

# Some 3,800 nodes with their codes, and twice as many for all shards together (docs/fleet.md). While it is read and
# joined, advice takes some five times its text.
MAX_BYTES = 48 * 1024**2
MAX_BYTES_TOGETHER = 2 * MAX_BYTES
PATIENCE_SECONDS = 300.0  # of a pipe: what writes it may be asking a fleet's Prometheus first
# By json_weight, which is 7.7 times the text of honest advice.
_MAX_WEIGHT = 400 * 1024**2
_MAX_WEIGHT_TOGETHER = 2 * _MAX_WEIGHT
_ANEW = "Create it again with skuwise advise --format json."
_DIGITS_MAX = 18


class Allowance:
    """How much all files of one merge may hold together."""

    def __init__(self) -> None:
        self._bytes_left, self._weight_left = MAX_BYTES_TOGETHER, _MAX_WEIGHT_TOGETHER

    def take(self, data: bytes, name: str) -> None:
        """Count a file's content. Raises UsageError where it is too much, by itself or with those before it."""
        weight = json_memory_bytes(data)
        if weight > _MAX_WEIGHT:
            raise UsageError(f"Invalid file {name}: more elements than advice of its size can have.", _ANEW)
        self._bytes_left -= len(data)
        self._weight_left -= weight
        if self._bytes_left < 0 or self._weight_left < 0:
            raise UsageError(
                f"Too much advice: with {name} the files exceed {MAX_BYTES_TOGETHER // 1024**2} MiB.",
                "Merge fewer shards at once.",
            )


def read_advice(
    path: Path, allowance: Allowance | None = None, *, patience_seconds: float = PATIENCE_SECONDS
) -> Advice:
    """The advice in a file. Raises UsageError, naming it, for whatever is no advice of this schema, or too much.

    A pipe that gives nothing for `patience_seconds` at a time is left.
    """
    name = str(path)
    try:
        with open_stream(path, patience_seconds) as file:
            too_large = os.fstat(file.fileno()).st_size > MAX_BYTES
            # A pipe tells no size.
            data = b"" if too_large else file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"Cannot read {name}: {error.strerror}.", "Use files written by skuwise advise --format json."
        ) from error
    if too_large or len(data) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES // 1024**2} MiB.", "Give each shard fewer nodes.")
    (allowance or Allowance()).take(data, name)
    return parse_advice(data, name)


def parse_advice(data: bytes, name: str) -> Advice:
    """The advice in `data`; `name` is what errors call it."""
    try:
        values = json.loads(data.decode(), parse_constant=_no_number, parse_float=_float, parse_int=_int)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        told = "" if data.rstrip().endswith(b"}") else "The file may be truncated. "
        raise UsageError(f"{name} is not valid JSON{where}.", f"{told}{_ANEW}") from error
    schema = values.get("schema") if isinstance(values, dict) else None
    if not isinstance(schema, str):
        raise UsageError(f"{name} is not skuwise advice.", "Use files written by skuwise advise --format json.")
    if schema != SCHEMA:
        remedy = (
            "Update skuwise."
            if schema.startswith("skuwise.advice/")
            else "Use files written by skuwise advise --format json."
        )
        raise UsageError(f"Unsupported schema in {name}: {clean(schema)[:60]}. This version reads {SCHEMA}.", remedy)
    try:
        advice = from_dict(values)
        read_source(advice.source)
    except MisfitError as error:
        raise UsageError(f"{name} cannot be merged: {error.place} {error.what}.", _ANEW) from error
    return advice


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number too large")
    return value


def _int(text: str) -> int:
    if len(text) > _DIGITS_MAX:
        raise ValueError("a number too large")
    return int(text)
