"""What a server's answer says beside its data: refusals, errors, and how long it wants to be left alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException

import requests
from urllib3.exceptions import HTTPError

from .....agent.base.safe_text import clean_text
from .errors import RefusedError, TooMuchError, UnreachableError
from .response import MAX_NOTE, decode_document

MAX_WORDS_BYTES = 65536
# What servers say where a query is too large for them: Prometheus, Thanos, Mimir, VictoriaMetrics.
_TOO_MUCH = (
    "too many samples", "exceeded maximum resolution", "timed out", "timeout", "maxsamples", "max-samples",
    "maxuniquetimeseries", "maxpointspertimeseries", "maxseries", "max-series", "the query hit the max", "exceeds",
    "too many", "deadline exceeded", "out of memory", "response size", "cannot process more than",
    "cannot select more than",
)  # fmt: skip


def document_of(status: int, body: bytearray) -> Mapping[str, object]:
    """The JSON object of an answer. Raises SourceError for one that holds no data."""
    if status in (401, 403):
        raise UnreachableError(
            f"Access denied by the server (HTTP {status}).", "Set prometheus.bearer_token_file or prometheus.username."
        )
    if 300 <= status < 400:
        raise UnreachableError(
            f"The server redirected the request (HTTP {status}); redirects are not followed.",
            "Use the URL of the redirect's target.",
        )
    if status == 404:
        raise RefusedError("Path not found on the server (HTTP 404).", "Check the URL: it must be the API's root.")
    if status != 200:
        kind = TooMuchError if status == 413 or is_too_much(body) else RefusedError
        raise kind(f"The server returned HTTP {status}{error_words(body)}.", "Use a shorter window, or fix --match.")
    document = decode_document(body)
    if document.get("status") != "success":
        kind = TooMuchError if is_too_much(body) else RefusedError
        raise kind(f"The server returned an error{error_words(body)}.", "Use a shorter window, or fix --match.")
    return document


def error_words(body: bytearray) -> str:
    """The server's own words on an error, short and harmless; empty where it gave none."""
    error = clean_text(_error(body), MAX_NOTE).rstrip(".")
    return f": {error}" if error else ""


def _error(body: bytearray) -> str:
    try:
        document = json.loads(body[:MAX_WORDS_BYTES])
    except (ValueError, RecursionError):
        return ""
    error = document.get("error") if isinstance(document, dict) else None
    return error if isinstance(error, str) else ""


def is_too_much(body: bytearray) -> bool:
    """Whether the server says that a query is too large for it."""
    said = _error(body).lower()
    return any(words in said for words in _TOO_MUCH)


def wanted_pause(header: str | None) -> float:
    """Of a Retry-After header; 0 for none, and for a date."""
    try:
        seconds = float(header or 0)
    except ValueError:
        return 0.0
    return max(0.0, seconds)  # 0 for nan too


def unreachable(url: str, error: Exception) -> UnreachableError:
    """Why a server cannot be reached, by what requests or urllib3 raised."""
    kinds = (
        (requests.exceptions.SSLError, "certificate not accepted", "Set prometheus.ca_file."),
        (requests.exceptions.ProxyError, "no answer from the proxy", "Check prometheus.proxy."),
        (requests.exceptions.Timeout, "timeout", "Check the address and the network."),
        (
            (requests.exceptions.ConnectionError, HTTPError, HTTPException),
            "connection failed or was closed",
            "Check that the server is running.",
        ),
    )
    for kind, why, remedy in kinds:
        if isinstance(error, kind):
            return UnreachableError(f"{url} cannot be read: {why}.", remedy)
    return UnreachableError(f"{url} cannot be read ({type(error).__name__}).", "Check the URL.")
