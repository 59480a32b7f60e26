"""Bins of rollups from the JSON that a database's own tables give, as matrices: no object a cell, no object a number.

A cell is what `codec.encode_bins` writes: two digits each for how many bins are zero before the first and behind the
last that is not, then those between, in 0.1 s. Anything else is refused as a whole, and the caller asks the view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ...core.histogram_array import WIDTH

Bins = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_QUOTE, _COMMA, _DOT, _ZERO = b'",.0'
_HEAD = 4
_LONGEST = 8  # characters of a number: an hour's seconds in tenths take six
_AT_ONCE_BYTES = 1 << 20  # what fits the processor's caches beside what is made of it
_TENTH = 10.0


def bins_of_texts(texts: Sequence[bytes], rows: Sequence[int], columns: int) -> list[Bins] | None:
    """Of each of `columns` the seconds in each bin, NaN where there is none; None: not as the store writes it.

    `texts`: JSON ``[[cell, ...], ...]`` of as many rows each as `rows` says, `columns` cells in each.
    """
    parts = [np.empty((0, columns, WIDTH), dtype=np.float32)]
    for some, count in _lots(texts, rows):
        cells = _cells(some, count, columns)
        if cells is None:
            return None
        parts.append(cells.reshape(-1, columns, WIDTH))
    return [np.concatenate([part[:, n] for part in parts]) for n in range(columns)]


def _lots(texts: Sequence[bytes], rows: Sequence[int]) -> Iterator[tuple[list[bytes], list[int]]]:
    some: list[bytes] = []
    counts: list[int] = []
    size = 0
    for text, count in zip(texts, rows, strict=True):
        some.append(text)
        counts.append(count)
        size += len(text)
        if size >= _AT_ONCE_BYTES:
            yield some, counts
            some, counts, size = [], [], 0
    if some:
        yield some, counts


def _cells(texts: Sequence[bytes], rows: Sequence[int], columns: int) -> Bins | None:
    """All cells of some texts in their order."""
    text = np.frombuffer(b"".join(texts), dtype=np.uint8)
    quotes = np.flatnonzero(text == _QUOTE)
    if len(quotes) % 2:
        return None
    starts, ends = quotes[::2] + 1, quotes[1::2]
    quoted = np.zeros(len(text), dtype=np.int8)
    quoted[starts - 1], quoted[ends] = 1, -1
    within = np.cumsum(quoted, dtype=np.int8).astype(np.bool_)  # from the opening quote up to the closing one
    if _skeleton(text[~within].tobytes()) != _expected(rows, columns):
        return None
    # Of a missing cell only the n stands outside of quotes, in the place that its cell has among the others.
    missing = np.flatnonzero((text == ord("n")) & ~within)
    out = np.zeros((len(starts) + len(missing), WIDTH), dtype=np.float32)
    places = np.argsort(np.concatenate([starts, missing]), kind="stable")
    is_told = places < len(starts)
    out[~is_told] = np.nan
    if not len(starts):
        return out
    told = _told(text, starts, ends, within)
    if told is None:
        return None
    first, count, seconds = told
    begin = np.flatnonzero(is_told) * WIDTH + first
    # The place of each number: its cell's first bin, and how many of that cell's numbers came before it.
    before = np.cumsum(count) - count
    out.reshape(-1)[np.repeat(begin - before, count) + np.arange(len(seconds))] = seconds
    return out


def _skeleton(text: bytes) -> bytes:
    """What stands around the cells, a quote for each."""
    return text.replace(b"null", b'"')


def _expected(rows: Sequence[int], columns: int) -> bytes:
    row = b"[" + b",".join([b'"'] * columns) + b"]"
    return b"".join(b"[" + b",".join([row] * count) + b"]" for count in rows)


def _told(
    text: Bytes, starts: Ints, ends: Ints, within: npt.NDArray[np.bool_]
) -> tuple[Ints, Ints, npt.NDArray[np.float64]] | None:
    """Of each cell its first bin and how many numbers it tells, and all numbers in a row."""
    if (ends - starts <= _HEAD).any():
        return None
    heads = text[starts[:, None] + np.arange(_HEAD)].astype(np.int64) - _ZERO
    if ((heads < 0) | (heads > 9)).any():
        return None
    first, behind = heads[:, 0] * 10 + heads[:, 1], heads[:, 2] * 10 + heads[:, 3]
    count = WIDTH - first - behind
    kept = within.copy()
    kept[ends] = True
    kept[starts - 1] = False
    kept[(starts[:, None] + np.arange(_HEAD)).reshape(-1)] = False
    numbers = text[kept]
    numbers[numbers == _QUOTE] = _COMMA
    stops = np.flatnonzero(numbers == _COMMA)
    if (count < 1).any() or int(count.sum()) != len(stops):
        return None
    # The numbers of a cell end with its closing quote.
    closing = np.cumsum(ends - starts - _HEAD + 1) - 1
    if not np.array_equal(stops[np.cumsum(count) - 1], closing):
        return None
    seconds = _numbers(numbers, stops)
    return None if seconds is None else (first, count, seconds)


def _numbers(text: Bytes, stops: Ints) -> npt.NDArray[np.float64] | None:
    """Numbers that end before each of `stops`: digits, and at most one decimal."""
    length = np.diff(stops, prepend=-1) - 1
    longest = int(length.max())
    if longest > _LONGEST or (length < 1).any():
        return None
    tenths = (length > 2) & (text[np.maximum(stops - 2, 0)] == _DOT)
    digits = text.astype(np.int16) - _ZERO
    out = np.zeros(len(stops))
    # The point is no digit: what stands before it moves by one place.
    left = length - tenths
    for place in range(longest):
        at = stops - 1 - place
        if place:
            at -= tenths
        has = left > place
        one = digits[np.maximum(at, 0)]
        if (((one < 0) | (one > 9)) & has).any():
            return None
        out += np.where(has, one, 0) * 10.0**place
    return np.where(tenths, out / _TENTH, out)
