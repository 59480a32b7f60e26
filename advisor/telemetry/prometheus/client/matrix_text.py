"""A range query's answer straight from its text to one matrix, where it is written as servers write it.

Nearly all of such an answer are samples, ``[1700000000,"0.5"]``: read as JSON, each takes a list, a text and two
numbers. Here the samples of many series are read as one list of numbers, and the labels of a series once for all
answers that repeat them (`LabelBook`). What is written in any other way, or holds anything but numbers, is left to
`response.read_matrix`, which reads every answer and says what is wrong with it: both give the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson

from .errors import AnswerError
from .response import Floats, Grid, Labels, SeriesAnswer, ServerAnswer, notes_of, placed, read_labels, refuse_too_many

_VALUES = b'"values":[['
_END = b"]]"
_NEXT = b"},{"
_BETWEEN = b"],["
# A sample without the letters of its numbers, and what divides it from the next.
_SAMPLE = b',""],['
_NUMBER = b"0123456789.eE+-"
# What stands for these while they are read; it is in none of them.
_NONE = b"x"
_NO_NUMBERS = (b'"NaN"', b'"+Inf"', b'"-Inf"', b'"Inf"')
# Of so many samples numbers are made at once: they stay in the processor's caches, and a large answer's are never all
# there.
_AT_ONCE = 8_000
# The shortest text of a sample, and bytes of memory beside the text: of its value, of its numbers while they are read,
# of a series.
_SHORTEST = len(b'[1,"1"],')
_VALUE_WEIGHT, _NUMBERS_WEIGHT, _SERIES_WEIGHT = 8, 200, 2500
# So many labels are kept: more than that is no fleet.
_MOST_BOOK = 200_000


class LabelBook:
    """Labels that were read, by the text that they stood in: each series says them again in every answer.

    Equal labels are the same object. Usable from several threads at once.
    """

    def __init__(self) -> None:
        self._by_text: dict[tuple[Sequence[str] | None, bytes], Labels | None] = {}
        self._same: dict[tuple[tuple[str, str], ...], Labels] = {}
        self._cleaned: dict[str, str] = {}

    def of_text(self, members: bytes, kept: Sequence[str] | None) -> Labels | None:
        """Of the text of a series' members before its values; None: a label is too long. Raises ValueError where that
        is no JSON, AnswerError for labels that are none."""
        key = (kept, members)
        try:
            return self._by_text[key]
        except KeyError:
            labels = self.of_series(orjson.loads(b"{" + members + b"}"), kept)
            self._by_text[key] = labels
            return labels

    def of_series(self, series: Mapping[str, object], kept: Sequence[str] | None) -> Labels | None:
        """The same of a series that was read as JSON."""
        if max(len(self._by_text), len(self._same)) >= _MOST_BOOK:
            self._by_text.clear()
            self._same.clear()
            self._cleaned.clear()
        labels = read_labels(series, kept, self._cleaned)
        return None if labels is None else self._same.setdefault(tuple(labels.items()), labels)


@dataclass(frozen=True, slots=True)
class MatrixText:
    """An answer's text in its parts. `document`: all of it but the values of its series, with the first series alone;
    `members`: of each other series the text before its values; `values`: of each the text of its samples."""

    document: Mapping[str, object]
    first: Mapping[str, object]
    members: Sequence[bytes]
    values: Sequence[bytes | bytearray]

    def read(self, grid: Grid, kept: Sequence[str] | None, book: LabelBook) -> ServerAnswer | None:
        """The answer over `grid`; None: not all of it is as it is promised. Raises TooMuchError."""
        refuse_too_many(len(self.values), grid)
        try:
            labels = [book.of_series(self.first, kept), *(book.of_text(one, kept) for one in self.members)]
            values = _read_values(
                [text for text, one in zip(self.values, labels, strict=True) if one is not None], grid
            )
        except (orjson.JSONDecodeError, AnswerError):
            return None
        if values is None:
            return None
        short = tuple(one for one in labels if one is not None)
        return ServerAnswer(SeriesAnswer(short, values), notes_of(self.document), len(labels) - len(short))


def matrix_weight(body: bytes | bytearray, series: int) -> int:
    """Bytes of memory that reading such a text of so many series may take, with the text and its parts."""
    samples = len(body) // _SHORTEST
    return 3 * len(body) + samples * _VALUE_WEIGHT + min(samples, _AT_ONCE) * _NUMBERS_WEIGHT + series * _SERIES_WEIGHT


def matrix_text(body: bytes | bytearray) -> MatrixText | None:
    """The parts of a successful range query's answer; None: it is not written as servers write it."""
    begin = body.find(_VALUES)
    head, end = body[:begin], 0
    values, members = [], []
    while begin >= 0:
        own = begin + len(_VALUES)
        end = body.find(_END, own)
        if end < 0:
            return None
        values.append(body[own:end])
        end += len(_END)
        begin = body.find(_VALUES, end)
        if begin >= 0:
            if not (body.startswith(_NEXT, end) and body.endswith(b",", end, begin)):
                return None
            members.append(bytes(body[end + len(_NEXT) : begin - 1]))
    if not values:
        return None
    try:
        document = orjson.loads(b'%b"values":[]%b' % (head, body[end:]))
    except orjson.JSONDecodeError:
        return None
    first = _only_series(document)
    return None if first is None else MatrixText(document, first, members, values)


def _only_series(document: object) -> Mapping[str, object] | None:
    """The one series that is left in the document of a matrix."""
    if not isinstance(document, dict) or document.get("status") != "success":
        return None
    data = document.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix":
        return None
    result = data.get("result")
    if not isinstance(result, list) or len(result) != 1 or not isinstance(result[0], dict):
        return None
    return result[0] if result[0].get("values") == [] else None


def _read_values(texts: Sequence[bytes | bytearray], grid: Grid) -> Floats | None:
    """A row for each text, a column for each moment of the grid; None: not all of it is plain. Raises AnswerError."""
    out = np.full((len(texts), grid.count), np.nan)
    moments = grid.start + np.arange(grid.count) * grid.step
    whole = moments.astype(np.int64)
    usual: list[int] | None = whole.tolist() if (whole == moments).all() else None
    rows = max(1, _AT_ONCE // grid.count)
    for first in range(0, len(texts), rows):
        own = texts[first : first + rows]
        numbers = _numbers(_BETWEEN.join(own), len(own) * grid.count)
        if numbers is None:
            return None
        at, values = numbers[::2], np.array(numbers[1::2], dtype=float)
        values[~np.isfinite(values)] = np.nan
        if usual is not None and len(values) == len(own) * grid.count and at == usual * len(own):
            out[first : first + rows] = values.reshape(len(own), grid.count)
            continue
        if not all(map(_is_moment, set(map(type, at)))):
            return None
        counts = [text.count(_BETWEEN) + 1 for text in own]
        place = placed(np.array(at, dtype=float), grid)
        out[np.repeat(np.arange(first, first + len(own)), counts), place] = values
    return out


def _is_moment(kind: type) -> bool:
    return kind is int or kind is float


def _numbers(text: bytes, most: int) -> list[float] | None:
    """Of the text of samples: each one's moment and value, one after the other; what is no finite number is None.
    None: there is something else in it, or more than `most` samples."""
    if _NONE in text:
        return None
    has_none = b"N" in text or b"I" in text
    if has_none:
        for word in _NO_NUMBERS:
            text = text.replace(word, b'"%b"' % _NONE)
    frame = text.translate(None, _NUMBER + _NONE)
    count = len(frame) // len(_SAMPLE) + 1
    is_plain = count <= most and frame == (_SAMPLE * count)[: -len(_BETWEEN)] and text.endswith(b'"')
    # Nor does a letter of a number stand between the others.
    if not is_plain or text.count(b',"') != count or text.count(b'"],[') != count - 1:
        return None
    plain = text.translate(None, b'"[]')
    if has_none:
        plain = plain.replace(_NONE, b"null")
    try:
        return orjson.loads(b"[%b]" % plain)
    except orjson.JSONDecodeError:
        return None
