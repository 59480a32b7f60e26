"""Values of settings, as files, variables and flags have them, made into typed fields: each layer over the one before.

A group of settings is a frozen dataclass whose types msgspec converts and checks. A field's name without ``_seconds``
or ``_bytes`` is the setting's, or ``metadata["key"]``. Spans and sizes may be texts, lists texts with commas. What no
type can say reads ``metadata["parse"]``: a function of the value and its place that raises UsageError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from zoneinfo import ZoneInfo

import msgspec

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean, quoted, suggest
from ...rules.base.typed import in_words
from .address import Address, parse_listen
from .durations import parse_bytes, parse_duration

Layer = tuple[str, Mapping[str, Any]]  # where it stands, as errors name it; values by setting
_T = TypeVar("_T")


def keys_of(kind: type) -> Mapping[str, Field[Any]]:
    """The settings of a group by name."""
    return {field.metadata.get("key", re.sub("_(seconds|bytes)$", "", field.name)): field for field in fields(kind)}


def read_layers(kind: type[_T], layers: Iterable[Layer], prefix: str = "") -> _T:
    """The group with the last word of each setting. `prefix` stands before a setting's name in errors. Raises
    `UsageError` for an unknown setting, with the nearest known one, and for a value that cannot be."""
    fields, hints = keys_of(kind), get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for origin, table in layers:
        for key, value in table.items():
            where = f"in {origin}"
            if key not in fields:
                remedy = suggest(key, fields) or f"Known are {', '.join(sorted(fields))}."
                raise UsageError(f"Unknown setting {quoted(prefix + key)} {where}.", remedy)
            field = fields[key]
            values[field.name] = _converted(field, hints[field.name], value, f"{prefix}{key} {where}")
    return kind(**values)


def _converted(field: Field[Any], hint: Any, value: Any, what: str) -> object:  # noqa: ANN401 - a type, and a TOML value
    texts = [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, str)]
    if not all(text.isprintable() for text in texts):
        raise UsageError(f"{what} holds a control character.", "Remove it.")
    try:
        if Address in get_args(hint):
            return parse_listen(clean(value)) if value != "" else None
        if isinstance(value, str) and field.name.endswith("_bytes"):
            value = parse_bytes(value)
        elif isinstance(value, str) and field.name.endswith("_seconds") and value.strip() != "0":
            value = parse_duration(value)
    except UsageError as error:
        raise UsageError(f"{what}: {error.message}", error.remedy) from None
    if isinstance(value, str) and hint is bool:
        value = {"yes": "true", "no": "false"}.get(value.lower(), value)
    elif isinstance(value, str) and get_origin(hint) is tuple:
        value = [part.strip() for part in value.split(",") if part.strip()]
    if "parse" in field.metadata:
        return field.metadata["parse"](value, what)
    try:
        return msgspec.convert(value, hint, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        if choices:
            near = suggest(clean(value), choices) or f"Choose {', '.join(choices)}."
            raise UsageError(f"Invalid {what}: unknown value {quoted(clean(value))}.", near) from None
        unit = " of seconds" if field.name.endswith("_seconds") else ""
        raise UsageError(f"Invalid {what}: {in_words(str(error), unit)}.", "Correct it.") from None


def _decode(kind: type, value: object) -> object:
    """What msgspec does not know by itself. Raises ValueError, to which msgspec adds the place."""
    if kind is Path and isinstance(value, (str, Path)) and str(value):
        return Path(value)
    if kind is ZoneInfo and isinstance(value, str):
        try:
            return ZoneInfo(value)
        except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
            raise ValueError('expected a time zone, such as "Europe/Berlin"') from None
    raise ValueError("expected the name of a file" if kind is Path else "expected text")
