"""What a server answers, read strictly: JSON of Prometheus' query API to labels and one matrix of numbers.

A value that is no finite number is missing. Everything here comes from outside: an answer that is not what the API
promises is refused with what was found in its place, never with its text. A number is a text such as Go writes
(``strconv.FormatFloat``): Python alone would read ``1_000``, blanks around it and the digits of other scripts as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import orjson

from .....agent.base.safe_text import NAME_LIMIT, clean_text
from .errors import AnswerError, TooMuchError

Labels = Mapping[str, str]
Floats = npt.NDArray[np.float64]
MAX_NOTE = 200
# A name in Kubernetes has at most 253 letters, a label's value there 63.
MAX_LABEL = 4096
# Of one answer: a matrix has a place for every series at every moment, also where nothing was told.
MAX_CELLS = 4_000_000
_NO_NUMBER = re.compile(r"[^0-9.eE+\-NaInf,]")


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
    """One answer with what the server said beside it. `left_out`: how many of its series have a label too long."""

    answer: SeriesAnswer
    notes: tuple[str, ...] = ()
    left_out: int = 0


def decode_document(body: bytes | bytearray) -> Mapping[str, object]:
    """The JSON object of an answer. Raises AnswerError."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        start = body[:64].lstrip().lower()
        found = "an HTML page" if start.startswith((b"<!doctype", b"<html")) else "invalid or incomplete JSON"
        raise AnswerError(f"The server returned {found}.", "Check the URL: it must be the API's root.") from None
    if not isinstance(document, dict):
        raise AnswerError("Invalid answer: expected a JSON object.", "Check the URL: it must be the API's root.")
    return document


def notes_of(document: Mapping[str, object]) -> tuple[str, ...]:
    """The server's own warnings (Thanos, Mimir and Prometheus tell of partial answers there), made harmless."""
    said: list[str] = []
    for key in ("warnings", "infos"):
        found = document.get(key)
        if key == "warnings" and isinstance(found, list):
            said += [clean_text(one)[:MAX_NOTE] for one in found[:8] if isinstance(one, str)]
    if document.get("isPartial") is True:
        said.append("The server reports a partial answer.")
    return tuple(dict.fromkeys(said))


def read_vector(document: Mapping[str, object], kept: Sequence[str] | None = None) -> ServerAnswer:
    """The answer of an instant query: one column."""
    result = _result(document, ("vector", "scalar"))
    cleaned: dict[str, str] = {}
    short = [one for one in result if _is_short(one, kept)]
    labels = tuple(_labels(one, kept, cleaned) for one in short)
    values = _numbers([_pair(one.get("value"))[1] for one in short])
    values[~np.isfinite(values)] = np.nan
    return ServerAnswer(SeriesAnswer(labels, values.reshape(-1, 1)), notes_of(document), len(result) - len(short))


def read_matrix(document: Mapping[str, object], grid: Grid, kept: Sequence[str] | None = None) -> ServerAnswer:
    """The answer of a range query over `grid`. What lies beside its moments is refused."""
    whole = _result(document, ("matrix",))
    refuse_too_many(len(whole), grid)
    result = [one for one in whole if _is_short(one, kept)]
    cleaned: dict[str, str] = {}
    labels = tuple(_labels(one, kept, cleaned) for one in result)
    lists = [one.get("values") for one in result]
    if not all(isinstance(pairs, list) for pairs in lists):
        raise AnswerError(
            "Invalid answer: a time series has no values.",
            "Check that --prometheus is the URL of a Prometheus query API.",
        )
    pairs = [pair for own in lists for pair in own]  # type: ignore[union-attr] - lists, as just seen
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise AnswerError(
            "Invalid answer: a value is not a pair.", "Check that --prometheus is the URL of a Prometheus query API."
        )
    flat = list(chain.from_iterable(pairs))
    del pairs
    at, numbers = _moments(flat[::2]), _numbers(flat[1::2])
    values = np.full((len(result), grid.count), np.nan)
    if len(at):
        place = placed(at, grid)
        numbers[~np.isfinite(numbers)] = np.nan
        row = np.repeat(np.arange(len(result)), [len(own) for own in lists])  # type: ignore[arg-type]
        values[row, place] = numbers
    return ServerAnswer(SeriesAnswer(labels, values), notes_of(document), len(whole) - len(result))


def refuse_too_many(series: int, grid: Grid) -> None:
    """Raise TooMuchError where an answer of so many series would be larger than one may be."""
    if series * grid.count > MAX_CELLS:
        raise TooMuchError(
            f"Answer too large: {series} time series with {grid.count} points each.",
            "Use a narrower --match.",
        )


def placed(at: Floats, grid: Grid) -> npt.NDArray[np.intp]:
    """Which moments of the grid some are. Raises AnswerError for those beside it."""
    with np.errstate(invalid="ignore", over="ignore"):
        place = np.rint((at - grid.start) / grid.step)
        off = ~(np.abs(grid.start + place * grid.step - at) <= 1.0)
    if off.any() or place.min() < 0 or place.max() >= grid.count:
        raise AnswerError(
            "Invalid answer: it contains times that were not requested.",
            "Check that --prometheus is the URL of a Prometheus query API.",
        )
    return place.astype(np.intp)


def _moments(told: Sequence[object]) -> Floats:
    """Unix seconds, which JSON has as numbers."""
    if not set(map(type, told)) <= {int, float}:
        raise AnswerError(
            "Invalid answer: a time series has invalid timestamps.",
            "Check that --prometheus is the URL of a Prometheus query API.",
        )
    try:
        return np.fromiter(map(float, told), dtype=float, count=len(told))  # type: ignore[arg-type] - numbers, as seen
    except OverflowError:
        raise AnswerError(
            "Invalid answer: a time series has invalid timestamps.",
            "Check that --prometheus is the URL of a Prometheus query API.",
        ) from None


def _numbers(told: Sequence[object]) -> Floats:
    """Values, which JSON has as texts. What is no number is refused with the answer; infinities and NaN are kept."""
    try:
        if _NO_NUMBER.search(",".join(told)):  # type: ignore[arg-type] - what is no text is caught
            raise ValueError
        return np.fromiter(map(float, told), dtype=float, count=len(told))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise AnswerError(
            "Invalid answer: a time series has values that are not numbers.",
            "Check that --prometheus is the URL of a Prometheus query API.",
        ) from None


def _result(document: Mapping[str, object], kinds: Sequence[str]) -> list[Mapping[str, object]]:
    data = document.get("data")
    if not isinstance(data, dict) or data.get("resultType") not in kinds:
        raise AnswerError(
            "Invalid answer: no query result.", "Check that --prometheus is the URL of a Prometheus query API."
        )
    result = data.get("result")
    if data["resultType"] == "scalar":
        return [{"metric": {}, "value": result}]
    if not isinstance(result, list) or not all(isinstance(one, dict) for one in result):
        raise AnswerError(
            "Invalid answer: no list of time series.", "Check that --prometheus is the URL of a Prometheus query API."
        )
    return result


def _is_short(one: Mapping[str, object], kept: Sequence[str] | None) -> bool:
    """Whether no label is longer than names are: a cut one could be taken for another."""
    metric = one.get("metric")
    if not isinstance(metric, dict):
        return True  # refused where labels are read
    names = metric if kept is None else kept
    if kept is None and any(len(name) > MAX_LABEL for name in metric):
        return False
    return all(len(value) <= MAX_LABEL for name in names if isinstance(value := metric.get(name), str))


def _labels(one: Mapping[str, object], kept: Sequence[str] | None, cleaned: dict[str, str]) -> Labels:
    """The labels that are kept. `cleaned`: texts that were made harmless already, most of which come again."""
    metric = one.get("metric")
    if not isinstance(metric, dict):
        raise AnswerError(
            "Invalid answer: a time series has no labels.",
            "Check that --prometheus is the URL of a Prometheus query API.",
        )
    names = metric if kept is None else [name for name in kept if name in metric]
    out = {}
    for name in names:
        value = metric[name]
        if not isinstance(value, str):
            raise AnswerError(
                "Invalid answer: a label is not a string.",
                "Check that --prometheus is the URL of a Prometheus query API.",
            )
        if value:
            # Prometheus 3 lets a name be any text.
            own = name if kept is not None else _harmless(name, cleaned)
            out[own] = _harmless(value, cleaned)
    return out


def read_labels(series: Mapping[str, object], kept: Sequence[str] | None, cleaned: dict[str, str]) -> Labels | None:
    """The labels of a series; None: one of them is too long. Raises AnswerError. `cleaned`: see `_labels`."""
    return _labels(series, kept, cleaned) if _is_short(series, kept) else None


def _harmless(text: str, cleaned: dict[str, str]) -> str:
    found = cleaned.get(text)
    if found is None:
        found = cleaned[text] = clean_text(text)
    return found


def is_clean(labels: Mapping[str, object]) -> bool:
    """Whether these could have been read from an answer: texts that are harmless as they stand."""
    return all(
        isinstance(value, str) and len(value) <= NAME_LIMIT and len(name) <= NAME_LIMIT
        and ((name.isascii() and name.isprintable()) or clean_text(name) == name)
        and ((value.isascii() and value.isprintable()) or clean_text(value) == value)
        for name, value in labels.items()
    )  # fmt: skip


def _pair(value: object) -> list[object]:
    if not isinstance(value, list) or len(value) != 2:
        raise AnswerError(
            "Invalid answer: a value is not a pair.", "Check that --prometheus is the URL of a Prometheus query API."
        )
    return value
