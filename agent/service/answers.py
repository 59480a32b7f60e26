"""Requests to the page of metrics and answers to them, as bytes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..base.openmetrics import OPENMETRICS, PLAIN, ExpositionFormat

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def parse_request(head: bytes) -> tuple[str, str, Mapping[str, str]] | None:
    """Method, path without its query, and headers in lower case; None for what is no HTTP/1 request."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1") or not words[1].startswith("/"):
        return None
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return None
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return words[0], words[1].partition("?")[0], headers


def negotiate(accept: str) -> ExpositionFormat:
    """The format for an ``Accept`` header: OpenMetrics where it is asked for and not ranked below plain text."""
    best_open, best_plain = 0.0, 0.0
    for kind, parameters, quality in _wishes(accept):
        if kind == "application/openmetrics-text" and parameters.get("version", "1.0.0") in ("1.0.0", "0.0.1"):
            best_open = max(best_open, quality)
        elif kind == "text/plain":
            best_plain = max(best_plain, quality)
    return OPENMETRICS if best_open > 0 and best_open >= best_plain else PLAIN


def accepts_gzip(accept_encoding: str) -> bool:
    return next((quality > 0 for name, _, quality in _wishes(accept_encoding) if name == "gzip"), False)


def _wishes(header: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """What a client takes: each name with its parameters and its quality (0..1)."""
    for part in header.lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        given = dict(re.split(r"\s*=\s*", parameter, maxsplit=1) for parameter in parameters if "=" in parameter)
        quality = given.pop("q", "1")
        yield name, given, float(quality) if re.fullmatch(r"[01](\.\d{0,3})?", quality, re.ASCII) else 0.0


def answer_bytes(status: int, body: str | bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """Head and body. Every answer ends its connection."""
    raw = body.encode() if isinstance(body, str) else body
    fields = {
        "Content-Type": "text/plain; charset=utf-8",
        **(headers or {}),
        "Content-Length": str(len(raw)),
        "Connection": "close",
        "Cache-Control": "no-store",
        "Vary": "Accept, Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} {_REASONS[status]}\r\n{lines}\r\n".encode() + raw
