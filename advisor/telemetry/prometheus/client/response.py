"""Answers of Prometheus' query API as labels and one matrix of numbers.

A value that is not finite is missing (NaN). What is not an answer of that API raises AnswerError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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

    def read(self, series: Mapping[str, object], kept: Sequence[str] | None) -> Labels:
        """The labels of a series that have a value; `kept`: only these. Raises AnswerError."""
        metric = series.get("metric")
        if not isinstance(metric, dict):
            raise _invalid("a time series has no labels")
        names = metric if kept is None else [name for name in kept if name in metric]
        pairs = tuple((self._text(name), self._text(metric[name])) for name in names if metric[name] != "")
        found = self._sets.get(pairs)
        return self._sets.setdefault(pairs, dict(pairs)) if found is None else found

    def _text(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise _invalid("a label is not a string")
        found = self._texts.get(raw)
        return self._texts.setdefault(raw, clean_text(raw)) if found is None else found


def decode_document(body: bytes | bytearray) -> Mapping[str, object]:
    """The JSON object of a successful answer. Raises AnswerError, RefusedError and TooMuchError."""
    if json_memory_bytes(body) > MAX_DECODED_BYTES:
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


def notes_of(document: Mapping[str, object]) -> tuple[str, ...]:
    """The warnings of a server. Thanos and Mimir tell of partial answers there, VictoriaMetrics by `isPartial`."""
    warnings = document.get("warnings")
    notes = [clean_text(text)[:MAX_NOTE] for text in warnings[:8]] if _is_texts(warnings) else []
    if document.get("isPartial") is True:
        notes.append("The server reports a partial answer.")
    return tuple(dict.fromkeys(notes))


def read_vector(
    document: Mapping[str, object], kept: Sequence[str] | None = None, label_sets: LabelSets | None = None
) -> ServerAnswer:
    """The answer of an instant query: one column."""
    label_sets = label_sets or LabelSets()
    result = _result(document, ("vector", "scalar"))
    labels = tuple(label_sets.read(series, kept) for series in result)
    _, values = _samples([series.get("value") for series in result])
    return ServerAnswer(SeriesAnswer(labels, values.reshape(-1, 1)), notes_of(document))


def read_matrix(
    document: Mapping[str, object],
    grid: Grid,
    kept: Sequence[str] | None = None,
    label_sets: LabelSets | None = None,
) -> ServerAnswer:
    """The answer of a range query over `grid`. Raises TooMuchError for one of more than MAX_CELLS."""
    label_sets = label_sets or LabelSets()
    result = _result(document, ("matrix",))
    if len(result) * grid.count > MAX_CELLS:
        raise TooMuchError(
            f"Answer too large: {len(result)} time series with {grid.count} points each.", "Use a narrower --match."
        )
    labels = tuple(label_sets.read(series, kept) for series in result)
    lists = [series.get("values") or [] for series in result]
    if not all(isinstance(pairs, list) for pairs in lists):
        raise _invalid("a time series has no values")
    moments, numbers = _samples([pair for pairs in lists for pair in pairs])  # type: ignore[union-attr] - see above
    values = np.full((len(result), grid.count), np.nan)
    if len(moments):
        column = np.rint((moments - grid.start) / grid.step)
        if (np.abs(grid.start + column * grid.step - moments) > 1.0).any() or not (
            column.min() >= 0 and column.max() < grid.count
        ):
            raise _invalid("it contains times that were not requested")
        row = np.repeat(np.arange(len(result)), [len(pairs) for pairs in lists])  # type: ignore[arg-type] - see above
        values[row, column.astype(np.intp)] = numbers
    return ServerAnswer(SeriesAnswer(labels, values), notes_of(document))


def _samples(pairs: Sequence[object]) -> tuple[Floats, Floats]:
    """Moments (Unix seconds) and values of pairs such as ``[1700000000, "0.5"]``; NaN for what is not finite."""
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise _invalid("a value is not a pair")
    try:
        items = [item for pair in pairs for item in pair]  # type: ignore[union-attr] - lists, as just seen
        moments, values = (np.array(list(map(float, items[first::2])), dtype=float) for first in (0, 1))
    except (TypeError, ValueError, OverflowError):
        raise _invalid("a time series has values that are not numbers") from None
    values[~np.isfinite(values)] = np.nan
    return moments, values


def _result(document: Mapping[str, object], kinds: Sequence[str]) -> list[Mapping[str, object]]:
    data = document.get("data")
    if not isinstance(data, dict) or data.get("resultType") not in kinds:
        raise _invalid("no query result")
    result = data.get("result")
    if data["resultType"] == "scalar":
        return [{"metric": {}, "value": result}]
    if not isinstance(result, list) or not all(isinstance(series, dict) for series in result):
        raise _invalid("no list of time series")
    return result


def read_names(document: Mapping[str, object]) -> Sequence[str]:
    """The answer for the values of a label."""
    names = document.get("data")
    if names is not None and not _is_texts(names):
        raise _invalid("expected strings as names of metrics")
    return names or []  # type: ignore[return-value] - as just seen


def _is_texts(value: object) -> bool:
    return isinstance(value, Iterable) and isinstance(value, list) and all(isinstance(text, str) for text in value)


def _invalid(what: str) -> AnswerError:
    return AnswerError(f"Invalid answer: {what}.", "Check that --prometheus is the URL of a Prometheus query API.")
