"""Answers as rows of the frame: measures of devices by moment, gathered series by series, turned into one table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from .....agent.metrics import BIN_EDGES
from ....core.histogram_array import WIDTH, BinsArray
from ..client.response import Floats, Grid, Labels, SeriesAnswer

K = TypeVar("K", bound=Hashable)
Bins = npt.NDArray[np.float32]
_EDGES = np.array(BIN_EDGES)
# The bound of a bucket as text differs between clients by its last digits.
_EDGE_TOLERANCE = 1e-9


@dataclass
class Cells(Generic[K]):
    """Measures by name, each a matrix of devices by moments; NaN: missing. Devices come in the order they are met."""

    grid: Grid
    rows: dict[K, int] = field(default_factory=dict)
    columns: dict[str, Floats] = field(default_factory=dict)
    bins: dict[str, Bins] = field(default_factory=dict)

    def put(
        self,
        name: str,
        answer: SeriesAnswer,
        key_of: Callable[[Labels], K | None],
        *,
        how: str = "mean",
        weights: Weights | None = None,
        scale: float = 1.0,
        most: float = np.inf,
    ) -> None:
        """Add an answer. Where several series speak of a device at a moment, `how` (mean, max, sum) joins them.

        A value that, scaled, is below 0 or above `most` is no reading and counts as missing.
        """
        whose = [key_of(labels) for labels in answer.labels]
        for key in whose:
            if key is not None:
                self.rows.setdefault(key, len(self.rows))
        ours = np.array([n for n, key in enumerate(whose) if key is not None], dtype=np.intp)
        at = np.array([self.rows[key] for key in whose if key is not None], dtype=np.intp)
        shape = (len(self.rows), self.grid.count)
        values = answer.values[ours] * scale
        with np.errstate(invalid="ignore"):
            known = (values >= 0) & (values <= most)
        own = weights.of(answer.labels, ours) if how == "mean" and weights is not None else None
        if len(at) == len(np.unique(at)):
            # One series speaks of each device: there is nothing to join. In a row without a sample is no reading.
            values[~known] = np.nan
            with np.errstate(invalid="ignore"):
                single = values if own is None else values * own / own
            self.columns[name] = np.full(shape, np.nan)
            self.columns[name][at] = single
            return
        if how == "max":
            out = np.full(shape, -np.inf)
            np.maximum.at(out, at, np.where(known, values, -np.inf))
            self.columns[name] = np.where(np.isneginf(out), np.nan, out)
            return
        own = known.astype(float) if own is None else known * own
        total, weight = np.zeros(shape), np.zeros(shape)
        np.add.at(total, at, np.where(known, values, 0.0) * own)
        np.add.at(weight, at, own)
        with np.errstate(invalid="ignore", divide="ignore"):
            joined = total / weight if how == "mean" else total
        self.columns[name] = np.where(weight > 0, joined, np.nan)

    def put_bins(self, name: str, answer: SeriesAnswer, key_of: Callable[[Labels], K | None], seconds: Floats) -> None:
        """Add a histogram's buckets as seconds in each bin. `seconds`: how long each device was observed, by moment."""
        place = {}
        for labels in answer.labels:
            place[labels.get("le", "")] = _bucket(labels.get("le", ""))
        counts = np.full((len(self.rows), self.grid.count, WIDTH), np.nan)
        for labels, values in zip(answer.labels, answer.values, strict=True):
            key, bucket = key_of(labels), place[labels.get("le", "")]
            if key is None or bucket is None or key not in self.rows:
                continue
            own = counts[self.rows[key], :, bucket]
            np.copyto(own, np.where(np.isnan(own), values, own + np.nan_to_num(values)))
        # A bucket that is not there counts no more than the one below it; a client may leave out those that are empty.
        missing = np.isnan(counts).all(axis=2, keepdims=True)
        counts = np.where(~missing, np.nan_to_num(np.fmax.accumulate(counts, axis=2)), np.nan)
        # Each bucket's increase is extrapolated by itself: what goes down by that is no negative count.
        inside = np.diff(counts, axis=2, prepend=0.0).clip(min=0.0)
        whole = inside.sum(axis=2)
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = inside / whole[:, :, None] * seconds[: len(counts), :, None]
        scaled[~(whole > 0)] = np.nan
        self.bins[name] = scaled.astype(np.float32)

    def column(self, name: str) -> Floats:
        """A measure with a row for each device; all NaN where it was not asked for or not answered."""
        found = self.columns.get(name)
        out = np.full((len(self.rows), self.grid.count), np.nan)
        if found is not None:
            out[: len(found)] = found
        return out

    def bin_column(self, name: str) -> Bins:
        found = self.bins.get(name)
        out = np.full((len(self.rows), self.grid.count, WIDTH), np.nan, dtype=np.float32)
        if found is not None:
            out[: len(found)] = found
        return out

    def table(
        self,
        columns: Sequence[str],
        texts: Mapping[str, Callable[[K], object]],
        bins: Sequence[str] = (),
        *,
        left: Collection[str] = (),
    ) -> pd.DataFrame:
        """One row for each device and moment that was observed, sorted by the texts and the moment.

        `columns` of the table are filled from measures of the same name, `texts` from the device; what is not there is
        NaN. ``ts``, ``interval_seconds`` and ``observed_seconds`` (a measure) are always given. The measures go over
        to the table, so that none is held twice; those in `left` stay here.
        """
        keys = list(self.rows)
        order = sorted(range(len(keys)), key=lambda row: tuple(str(of(keys[row])) for of in texts.values()))
        observed = self.column("observed_seconds")[order] > 0
        place, moment = np.nonzero(observed)
        device = np.array(order, dtype=np.intp)[place]
        is_whole = bool(observed.all()) and order == list(range(len(keys)))
        del observed, place
        for name in self.columns.keys() - set(columns) - set(left):
            del self.columns[name]
        nothing = np.full(len(device), np.nan)
        nothing.flags.writeable = False  # it stands for every measure that is missing
        out: dict[str, object] = {}
        for name in columns:
            if name in texts:
                known = np.array([*(texts[name](key) for key in keys), None], dtype=object)
                out[name] = pd.Series(known[device], dtype=object)
            elif name == "ts":
                out[name] = self.grid.start + moment * self.grid.step
            elif name == "interval_seconds":
                out[name] = np.full(len(device), self.grid.step)
            elif name in bins:
                empty = name not in self.bins
                own = None if empty else self.bin_column(name)[device, moment]
                out[name] = BinsArray.absent(len(device)) if own is None else BinsArray(own)
            else:
                out[name] = (
                    self._moved(name, device, moment, is_whole, name in left) if name in self.columns else nothing
                )
        # Without a copy into blocks, which would take the room of all columns twice more.
        return pd.DataFrame(out, columns=[*columns], copy=False)

    def _moved(
        self, name: str, device: npt.NDArray[np.intp], moment: npt.NDArray[np.intp], is_whole: bool, stays: bool
    ) -> Floats:
        """A measure's values by the rows of a table. `is_whole`: these are all, in the order in which they stand."""
        found = self.columns[name]
        matrix = found if len(found) == len(self.rows) else self.column(name)
        if not stays:
            del self.columns[name]
        # A view needs no room of its own; what stays may be written to, and is none of the table's then.
        return matrix.reshape(-1) if is_whole and not stays else matrix[device, moment]

    def seen(self) -> dict[K, tuple[float, float]]:
        """Of each device when its first row begins and its last one ends; devices never observed are left out."""
        observed = self.column("observed_seconds") > 0
        spans = {}
        for key, row in self.rows.items():
            at = np.nonzero(observed[row])[0]
            if len(at):
                start = self.grid.start + at[0] * self.grid.step - self.grid.step
                spans[key] = (float(start), float(self.grid.start + at[-1] * self.grid.step))
        return spans


class Weights:
    """How many samples each series has, by its labels: the weights of its means; 1 for those that were not counted."""

    def __init__(self, counts: SeriesAnswer) -> None:
        self._rows = {_frozen(labels): row for row, labels in enumerate(counts.labels)}
        self._by_id = {id(labels): row for row, labels in enumerate(counts.labels)}
        self._labels = counts.labels  # held, so that no other labels take their ids
        columns = counts.values.shape[1]
        self._values = np.vstack([np.nan_to_num(counts.values), np.ones((1, columns))])

    def of(self, labels: Sequence[Labels], which: npt.NDArray[np.intp]) -> Floats:
        """A row for each of `which` of these labels."""
        return self._values[[self._row(labels[n]) for n in which.tolist()]]

    def _row(self, labels: Labels) -> int:
        row = self._by_id.get(id(labels))
        if row is not None and self._labels[row] is labels:
            return row
        return self._rows.get(_frozen(labels), len(self._rows))


def from_bins(bins: Bins) -> tuple[Floats, Floats]:
    """95th percentile and maximum that counts in bins tell: the middle of the bin, and the lower edge of the highest.

    A maximum is never told too high: silence is judged by it as well as load.
    """
    total = np.nansum(bins, axis=2)
    with np.errstate(invalid="ignore"):
        reached = np.cumsum(np.nan_to_num(bins), axis=2) >= 0.95 * total[:, :, None] - 1e-6
    place = reached.argmax(axis=2)
    upper = np.append(_EDGES[1:], 1.0)
    middle = (_EDGES + upper) / 2
    p95 = np.where(place == 0, 0.0, middle[place])
    filled = np.nan_to_num(bins) > 0
    highest = WIDTH - 1 - filled[:, :, ::-1].argmax(axis=2)
    unknown = ~(total > 0)
    return np.where(unknown, np.nan, p95), np.where(unknown, np.nan, _EDGES[highest])


def _bucket(bound: str) -> int | None:
    """The bin whose upper edge a bucket's bound is; None for a bound that is none of ours."""
    if bound in ("+Inf", "Inf", "+inf"):
        return WIDTH - 1
    try:
        value = float(bound)
    except ValueError:
        return None
    near = int(np.abs(_EDGES[1:] - value).argmin())
    return near if abs(_EDGES[1:][near] - value) < _EDGE_TOLERANCE else None


def _frozen(labels: Labels) -> Labels:
    """Labels as a key. Typed as labels, so that signatures say what it stands for."""
    return tuple(sorted(labels.items()))  # type: ignore[return-value]


def first_known(parts: Iterable[Floats]) -> Floats:
    """The first of several matrices that has a value, cell by cell."""
    out: Floats | None = None
    for part in parts:
        out = part if out is None else np.where(np.isnan(out), part, out)
    assert out is not None
    return out
