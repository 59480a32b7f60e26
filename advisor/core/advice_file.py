"""A file of advice (what `advice_json` writes) back as `Advice`. It is hostile until it is read."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from ...rules.base.errors import UsageError
from ...rules.base.files import open_stream
from ...rules.base.sanitize import clean
from .advice_json import SCHEMA, from_dict
from .advice_types import Advice
from .codec import MisfitError, anything

# Some 3,800 nodes with their codes. While it is read, advice takes some five times its text.
_MAX_BYTES = 48 * 1024**2
_ANEW = "Create it again with skuwise advise --format json."
_DIGITS_MAX = 18
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
        raise UsageError(
            f"Cannot read {name}: {error.strerror}.", "Use files written by skuwise advise --format json."
        ) from error
    if too_large or len(data) > _MAX_BYTES:
        raise UsageError(f"{name} is larger than {_MAX_BYTES // 1024**2} MiB.", "Use advice of fewer nodes.")
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
        anything(advice.source, depth=_SOURCE_DEPTH)
    except MisfitError as error:
        raise UsageError(f"{name} cannot be used: {error.place} {error.what}.", _ANEW) from error
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
