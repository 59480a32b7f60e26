"""Answers of Prometheus' query API as labels and one matrix of numbers. A value that is not finite is missing (NaN)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from .....agent.base.safe_text import clean_text
from .....rules.base.errors import SourceError

Labels = Mapping[str, str]
Floats = npt.NDArray[np.float64]
SMALLER = "Use a shorter window or a narrower --match."
MAX_CELLS = 4_000_000  # of one answer: a series has one at every moment, also without a sample
# Of one answer's JSON. Each takes up to 300 bytes once it is decoded: 200,000 series of six labels are 2.2 million.
MAX_MEMBERS = 2_500_000
# What Prometheus, Thanos, Mimir and VictoriaMetrics say of a query that is over a limit.
_TOO_MUCH = re.compile(
    r"too many|exceed|timed out|timeout|max-?(samples|series|uniquetimeseries|pointspertimeseries)|hit the max"
    r"|out of memory|response size|cannot (process|select) more than",
    re.IGNORECASE,
)


class UnreachableError(SourceError):
    """The server does not answer at all, or refuses us: no query can be answered."""


class RefusedError(SourceError):
    """The server refuses this one query, or fails on it."""


class TooMuchError(RefusedError):
    """The query is over a limit of the server or of ours: a smaller part of it may be answered."""


class AnswerError(SourceError):
    """The server's answer is not what the query API promises."""


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
    """Series by moment: `values` has a row for each of `labels` and a column for each moment; NaN: missing. `notes`:
    the server's warnings about partial answers."""

    labels: tuple[Labels, ...]
    values: Floats
    notes: tuple[str, ...] = ()

    @staticmethod
    def nothing(columns: int) -> "SeriesAnswer":
        return SeriesAnswer((), np.empty((0, columns)))


class LabelSets:
    """Makes label sets harmless. Equal sets are one object: the answers of a run repeat them."""

    def __init__(self) -> None:
        self._text, self._set = cache(clean_text), cache(dict[str, str])

    def read(self, metric: Mapping[str, str], kept: Sequence[str] | None) -> Labels:
        """The labels of a series that have a value; `kept`: only these."""
        names = metric if kept is None else [name for name in kept if name in metric]
        return self._set(tuple((self._text(name), self._text(metric[name])) for name in names if metric[name]))


def read_document(body: bytes | bytearray) -> Mapping[str, Any]:
    """The JSON object of a successful answer. Raises AnswerError, RefusedError and TooMuchError."""
    if sum(map(body.count, (b",", b"{", b"["))) > MAX_MEMBERS:
        raise TooMuchError(f"Answer too large: {len(body) / 1e6:.0f} MB.", SMALLER)
    with _refused_if_invalid():
        document = orjson.loads(body)
        if document["status"] == "success":
            return document
    raise query_error("an error", body)


def query_error(what: str, body: bytes | bytearray, *, too_much: bool = False) -> RefusedError:
    """The error for a query that the server refuses; `what` it returned, in words."""
    try:
        words = clean_text(str(orjson.loads(body)["error"]), 200).rstrip(".")
    except (ValueError, LookupError, TypeError):
        words = ""
    message = f"The server returned {what}{': ' if words else ''}{words}."
    if too_much or _TOO_MUCH.search(words):
        return TooMuchError(message, SMALLER)
    return RefusedError(message, "Check --match.")


def _notes(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The warnings of a server. Thanos and Mimir report partial answers there, VictoriaMetrics in `isPartial`."""
    notes = [clean_text(str(text), 200) for text in (document.get("warnings") or ())[:8]]
    if document.get("isPartial") is True:
        notes.append("The server reports a partial answer.")
    return tuple(dict.fromkeys(notes))


def read_vector(body: bytes | bytearray, kept: Sequence[str] | None, label_sets: LabelSets) -> SeriesAnswer:
    """The answer of an instant query: one column."""
    document = read_document(body)
    with _refused_if_invalid():
        result = document["data"]["result"]
        labels = tuple(label_sets.read(series["metric"], kept) for series in result)
        values = _numbers([series["value"][1] for series in result])
        return SeriesAnswer(labels, values.reshape(-1, 1), _notes(document))


def read_matrix(body: bytes | bytearray, grid: Grid, kept: Sequence[str] | None, label_sets: LabelSets) -> SeriesAnswer:
    """The answer of a range query over `grid`. Raises TooMuchError for one of more than MAX_CELLS."""
    document = read_document(body)
    with _refused_if_invalid():
        if document["data"]["resultType"] != "matrix":
            raise ValueError("not the answer of a range query")
        result = document["data"]["result"]
        if len(result) * grid.count > MAX_CELLS:
            raise TooMuchError(f"Answer too large: {len(result)} time series with {grid.count} points each.", SMALLER)
        labels = tuple(label_sets.read(series["metric"], kept) for series in result)
        samples = [series.get("values", []) for series in result]  # none of a series of histograms
        items = list(chain.from_iterable(chain.from_iterable(samples)))
        moments, numbers = np.array(items[::2], dtype=float), _numbers(items[1::2])
        column = np.rint((moments - grid.start) / grid.step)
        is_beside = np.abs(grid.start + column * grid.step - moments) > 1.0
        if (is_beside | (column < 0) | (column >= grid.count)).any():
            raise ValueError("times that were not requested")
        values = np.full((len(result), grid.count), np.nan)
        row = np.repeat(np.arange(len(result)), [len(pairs) for pairs in samples])
        values[row, column.astype(np.intp)] = numbers
        return SeriesAnswer(labels, values, _notes(document))


def _numbers(texts: Sequence[str]) -> Floats:
    """Values, which JSON has as texts; NaN for what is not finite."""
    values = np.fromiter(map(float, texts), dtype=float, count=len(texts))
    values[~np.isfinite(values)] = np.nan
    return values


@contextmanager
def _refused_if_invalid() -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):  # JSON of another shape, or none
        remedy = "Check that --prometheus is the root of a Prometheus query API."
        raise AnswerError("Invalid answer: not a result of a Prometheus query.", remedy) from None
