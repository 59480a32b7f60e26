"""Answers of Prometheus' query API as labels and one matrix of numbers.

A value that is not finite is missing (NaN). What is not an answer of that API raises AnswerError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from .....agent.base.json_weight import json_memory_bytes
from .....agent.base.safe_text import clean_text
from .errors import AnswerError, RefusedError, TooMuchError

Labels = Mapping[str, str]
Floats = npt.NDArray[np.float64]
MAX_NOTE = 200
# Of one answer: a matrix has a cell for every series at every moment, also for those without a sample.
MAX_CELLS = 4_000_000
# While JSON is decoded. 200,000 series of six labels with a value each take about this much.
MAX_DECODED_BYTES = 512 * 1024 * 1024
# What Prometheus, Thanos, Mimir and VictoriaMetrics say of a query that is over a limit.
_TOO_MUCH = (
    "too many samples", "exceeded maximum resolution", "timed out", "timeout", "maxsamples", "max-samples",
    "maxuniquetimeseries", "maxpointspertimeseries", "maxseries", "max-series", "the query hit the max", "exceeds",
    "too many", "deadline exceeded", "out of memory", "response size", "cannot process more than",
    "cannot select more than",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grid:
    """Moments at equal distances, the first `start` and the last `end` (Unix seconds)."""

    start: float
    end: float
    step: float

    @property
    def count(self) -> int:
        return round((self.end - self.start) / self.step) + 1


@dataclass(frozen=True, slots=True)
class SeriesAnswer:
    """Series by moment: `values` has a row for each of `labels` and a column for each moment; NaN: missing."""

    labels: tuple[Labels, ...]
    values: Floats

    @staticmethod
    def nothing(columns: int) -> SeriesAnswer:
        return SeriesAnswer((), np.empty((0, columns)))


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """One answer and the server's warnings on it, which tell of partial answers."""

    answer: SeriesAnswer
    notes: tuple[str, ...] = ()


class LabelSets:
    """Makes label sets harmless. Equal sets are one object: the answers of a run repeat them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._sets: dict[tuple[tuple[str, str], ...], Labels] = {}

    def read(self, metric: Mapping[str, str], kept: Sequence[str] | None) -> Labels:
        """The labels of a series that have a value; `kept`: only these."""
        names = metric if kept is None else [name for name in kept if name in metric]
        pairs = tuple((self._text(name), self._text(metric[name])) for name in names if metric[name])
        found = self._sets.get(pairs)
        return self._sets.setdefault(pairs, dict(pairs)) if found is None else found

    def _text(self, raw: str) -> str:
        found = self._texts.get(raw)
        return self._texts.setdefault(raw, clean_text(raw)) if found is None else found


def decode_document(body: bytes | bytearray) -> Mapping[str, Any]:
    """The JSON object of a successful answer. Raises AnswerError, RefusedError and TooMuchError."""
    # No byte of JSON takes more than a hundred.
    if len(body) > MAX_DECODED_BYTES // 100 and json_memory_bytes(body) > MAX_DECODED_BYTES:
        raise TooMuchError(
            f"Answer too large: {len(body) / 1e6:.0f} MB.", "Use a shorter window or a narrower --match."
        )
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        start = body[:64].lstrip().lower()
        found = "an HTML page" if start.startswith((b"<!doctype", b"<html")) else "invalid or incomplete JSON"
        raise AnswerError(f"The server returned {found}.", "Check the URL: it must be the API's root.") from None
    if not isinstance(document, dict):
        raise AnswerError("Invalid answer: expected a JSON object.", "Check the URL: it must be the API's root.")
    if document.get("status") != "success":
        raise query_error("an error", body)
    return document


def query_error(what: str, body: bytes | bytearray, *, too_much: bool = False) -> RefusedError:
    """The error for a query that the server refuses; `what` it returned, in words. TooMuchError where a smaller query
    may be answered: a shorter window helps then only."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    error = document.get("error") if isinstance(document, dict) else None
    words = clean_text(error, MAX_NOTE).rstrip(".") if isinstance(error, str) else ""
    message = f"The server returned {what}{': ' if words else ''}{words}."
    if too_much or any(sign in words.lower() for sign in _TOO_MUCH):
        return TooMuchError(message, "Use a shorter window or a narrower --match.")
    return RefusedError(message, "Check --match.")


def notes_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The warnings of a server. Thanos and Mimir tell of partial answers there, VictoriaMetrics by `isPartial`."""
    notes = [clean_text(str(text))[:MAX_NOTE] for text in (document.get("warnings") or ())[:8]]
    if document.get("isPartial") is True:
        notes.append("The server reports a partial answer.")
    return tuple(dict.fromkeys(notes))


def read_vector(
    document: Mapping[str, Any], kept: Sequence[str] | None = None, label_sets: LabelSets | None = None
) -> ServerAnswer:
    """The answer of an instant query: one column."""
    label_sets = label_sets or LabelSets()
    with _refused_if_invalid():
        result = _result(document, ("vector", "scalar"))
        if document["data"]["resultType"] == "scalar":
            result = [{"metric": {}, "value": result}]
        labels = tuple(label_sets.read(series["metric"], kept) for series in result)
        values = _numbers([series["value"][1] for series in result])
        return ServerAnswer(SeriesAnswer(labels, values.reshape(-1, 1)), notes_of(document))


def read_matrix(
    document: Mapping[str, Any],
    grid: Grid,
    kept: Sequence[str] | None = None,
    label_sets: LabelSets | None = None,
) -> ServerAnswer:
    """The answer of a range query over `grid`. Raises TooMuchError for one of more than MAX_CELLS."""
    label_sets = label_sets or LabelSets()
    with _refused_if_invalid():
        result = _result(document, ("matrix",))
        if len(result) * grid.count > MAX_CELLS:
            raise TooMuchError(
                f"Answer too large: {len(result)} time series with {grid.count} points each.", "Use a narrower --match."
            )
        labels = tuple(label_sets.read(series["metric"], kept) for series in result)
        samples = [series.get("values", []) for series in result]  # none of a series of histograms
        items = list(chain.from_iterable(chain.from_iterable(samples)))
        moments, numbers = np.array(items[::2], dtype=float), _numbers(items[1::2])
        values = np.full((len(result), grid.count), np.nan)
        if len(moments):
            column = np.rint((moments - grid.start) / grid.step)
            is_beside = (np.abs(grid.start + column * grid.step - moments) > 1.0).any()
            if is_beside or column.min() < 0 or column.max() >= grid.count:
                raise ValueError("times that were not requested")
            row = np.repeat(np.arange(len(result)), [len(pairs) for pairs in samples])
            values[row, column.astype(np.intp)] = numbers
        return ServerAnswer(SeriesAnswer(labels, values), notes_of(document))


def read_names(document: Mapping[str, Any]) -> list[str]:
    """The answer for the values of a label."""
    with _refused_if_invalid():
        return ["" + name for name in document.get("data") or ()]


def _numbers(texts: Sequence[str]) -> Floats:
    """Values, which JSON has as texts; NaN for what is not finite."""
    values = np.fromiter(map(float, texts), dtype=float, count=len(texts))
    values[~np.isfinite(values)] = np.nan
    return values


def _result(document: Mapping[str, Any], kinds: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
    if document["data"]["resultType"] not in kinds:
        raise ValueError("another kind of result")
    return document["data"]["result"]


@contextmanager
def _refused_if_invalid() -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        raise AnswerError(
            "Invalid answer: not a result of a Prometheus query for the requested times.",
            "Check that --prometheus is the URL of a Prometheus query API.",
        ) from None
