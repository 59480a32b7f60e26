"""Values of settings, as files, variables and flags have them, made into typed fields: each layer over the one before.

A group of settings is a frozen dataclass whose types msgspec converts and checks. A field's name without ``_seconds``
or ``_bytes`` is the setting's, or ``metadata["key"]``. Spans and sizes may be texts, lists texts with commas. What no
type can say reads ``metadata["parse"]``: a function of the value and its place that raises UsageError.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import msgspec

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.sanitize import clean, quoted, suggest
from ...rules.base.typed import in_words

_LOOPBACK = "127.0.0.1"
# A host's name (RFC 1123; underscores are met with), whose last part is no number: that would be an address.
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:{_LABEL}\.)*(?!\d+\.?\Z){_LABEL}\.?")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Address:
    """``HOST:PORT``, ``[IPV6]:PORT`` or a bare ``PORT`` (loopback). Raises `UsageError` for anything else."""
    host, colon, port = text.strip().rpartition(":")
    try:
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
            raise ValueError
        if not colon:
            return Address(_LOOPBACK, int(port))
        if re.fullmatch(r"\[[!-~]+\]", host):
            host = host[1:-1]
            IPv6Address(host)
        elif not _NAME.fullmatch(host):
            IPv4Address(host)
        return Address(host, int(port))
    except ValueError:
        raise UsageError(
            f"{quoted(text)} is not an address to listen on.",
            "Write HOST:PORT, or a bare PORT for this machine alone; every interface is 0.0.0.0:PORT.",
        ) from None


def parse_zone(text: str) -> ZoneInfo:
    """A time zone by its name. Raises UsageError for what is none."""
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise UsageError(f"{quoted(text)} is not a time zone.", "Use a name as in Europe/Berlin, or UTC.") from None


class PageError(SkuwiseError):
    """A page that cannot be used. `reason` is an absence's stable code."""

    def __init__(self, reason: str, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.reason = reason


def split_url(url: str) -> tuple[str, int, str]:
    """Host, port and path of a page's address. Raises PageError (``bad-url``) for what is not plain http."""
    try:
        parts = urlsplit(url)
        port = parts.port or 80
        odd = any(ord(c) <= 32 or ord(c) > 126 for c in url)
        if parts.scheme != "http" or not parts.hostname or parts.username or parts.password or odd:
            raise ValueError
    except ValueError:
        text = "The address of a page must be http://HOST:PORT/PATH, without a user name."
        raise PageError("bad-url", text, "Fix it in the settings.") from None
    return parts.hostname, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_PATTERN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d|w)", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds in `text` (``30s``, ``1.5h``, ``14d``). Raises `UsageError` for anything else, zero included."""
    match = _PATTERN.fullmatch(text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if seconds <= 0:
        raise UsageError(f"{quoted(text)} is not a span of time.", "Write it like 250ms, 30s, 10m, 24h or 14d.")
    return seconds


def parse_bytes(text: str) -> int:
    """Bytes in `text` (``512MB``, ``1GiB``, a plain number). Raises `UsageError` for anything else, zero included."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?) ?([KMG]?I?B)?", text.strip().upper(), re.ASCII)
    unit = _BYTES.get(match[2] or "", 0) if match else 0
    size = round(float(match[1]) * unit) if match else 0
    if size <= 0:
        raise UsageError(f"{quoted(text)} is not a size.", "Write it like 512MB or 1GiB.")
    return size


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
        if ZoneInfo in (hint, *get_args(hint)):
            return parse_zone(clean(value))
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
    if kind is Path and isinstance(value, (str, Path)) and str(value):
        return Path(value)
    raise ValueError("expected the name of a file" if kind is Path else "expected text")
