"""The text format in which exporters tell their metrics (Prometheus 0.0.4), read line by line and strictly.

Only the series that somebody wants are taken apart; of every other line it is only seen that it begins as one of the
format does. One line that is not of the format refuses the whole page, as Prometheus does: what is left of a broken
page is not to be trusted. Text from outside stays as it was sent: whoever keeps a label cleans it first.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from math import isfinite
from typing import NamedTuple

from ..base.page_url import PageError

# A label of 4 kB is odd but valid; a line beyond this is not what an exporter writes.
MAX_LINE_BYTES = 65536
# More series of the wanted names than any node has: 16 GPUs with 7 MIG instances and 20 fields are 2,400.
MAX_SERIES = 20_000
# Of all series of a page together: those 2,400 have some 15 each. A short label takes some 200 bytes of memory.
MAX_LABELS = 100_000
# A double written out in full has at most 309 digits before its point; Python refuses integers beyond 4,300 digits.
MAX_NUMBER_LENGTH = 512

_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"([^"\\]*(?:\\.[^"\\]*)*)"\s*(,|(?=\}))')
_CLOSE = re.compile(r"\s*\}")
# The value, then perhaps a timestamp, then perhaps an exemplar (OpenMetrics).
_TAIL = re.compile(r"[ \t]*([^\s#{}]+)(?:[ \t]+(-?\d+(?:\.\d+)?))?[ \t]*(?:#.*)?")
# One way alone to match each text: with two, digits before something else would be tried in all their splits.
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[Ii]nf|NaN)", re.ASCII)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"\\": "\\", '"': '"', "n": "\n"}


class Series(NamedTuple):
    """One line: `number` is the value as it was written, because large integers lose their end as floats."""

    name: str
    labels: dict[str, str]
    number: str

    @property
    def value(self) -> float | None:
        """The value; None where it is not a finite number."""
        value = float(self.number)
        return value if isfinite(value) else None


class PageParser:
    """Takes a page piece by piece and keeps the series of `wanted` names, so that its size costs no memory."""

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = frozenset(name.encode() for name in wanted)
        self._rest = b""
        self._number = 0
        self._labels_left = MAX_LABELS
        self.series: list[Series] = []

    def feed(self, piece: bytes) -> None:
        """The next bytes. Raises PageError (``page-malformed``, ``page-too-large``)."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_LINE_BYTES:
            raise self._malformed("is longer than 64 KiB")
        for line in lines:
            self._take(line)

    def finish(self) -> list[Series]:
        """All series. Raises PageError (``page-cut``) where the last line has no end: the rest did not arrive."""
        if self._rest:
            raise PageError("page-cut", "The page ends in the middle of a line.", "See the exporter's log.")
        return self.series

    def _take(self, line: bytes) -> None:
        self._number += 1
        if len(line) > MAX_LINE_BYTES:
            raise self._malformed("is longer than 64 KiB")
        name = _NAME.match(line)
        if name is None:
            bare = line.strip()
            if bare and not bare.startswith(b"#"):
                raise self._malformed("does not begin with a metric's name")
            return
        if name.group() not in self._wanted:
            return
        if len(self.series) >= MAX_SERIES:
            raise PageError("page-too-large", f"The page has more than {MAX_SERIES} series of one kind.", "")
        text = line[name.end() :].decode("utf-8", "replace").rstrip("\r")
        labels, place = self._labels(text)
        tail = _TAIL.fullmatch(text, place)
        if tail is None or len(tail.group(1)) > MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(tail.group(1)):
            raise self._malformed("has no number")
        self.series.append(Series(name.group().decode(), labels, tail.group(1)))

    def _labels(self, text: str) -> tuple[dict[str, str], int]:
        opening = len(text) - len(text.lstrip(" \t"))
        if text[opening : opening + 1] != "{":
            if not opening:
                raise self._malformed("has no space after the metric's name")
            return {}, 0
        labels: dict[str, str] = {}
        place = opening + 1
        while (found := _LABEL.match(text, place)) is not None:
            name, raw, _ = found.groups()
            if name in labels:
                raise self._malformed("names a label twice")
            self._labels_left -= 1
            if self._labels_left < 0:
                raise PageError("page-too-large", f"The page has more than {MAX_LABELS} labels.", "")
            labels[name] = _ESCAPE.sub(self._unescape, raw) if "\\" in raw else raw
            place = found.end()
        closing = _CLOSE.match(text, place)
        if closing is None:
            raise self._malformed("has broken labels")
        return labels, closing.end()

    def _unescape(self, found: re.Match[str]) -> str:
        try:
            return _ESCAPED[found.group(1)]
        except KeyError:
            raise self._malformed("has an unknown escape in a label") from None

    def _malformed(self, what: str) -> PageError:
        return PageError(
            "page-malformed",
            f"Line {self._number or 1} of the page {what}, so it is no page of metrics.",
            "See that the address is that of the metrics page.",
        )
