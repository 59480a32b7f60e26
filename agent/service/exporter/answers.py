"""Requests to the page of metrics and answers to them, as bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

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


def accepts_gzip(header: str) -> bool:
    """Whether ``Accept-Encoding`` asks for it."""
    for part in header.lower().split(","):
        name, *parameters = (piece.strip().replace(" ", "") for piece in part.split(";"))
        if name == "gzip":
            return not any(parameter in ("q=0", "q=0.0", "q=0.00", "q=0.000") for parameter in parameters)
    return False


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
