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


class SeriesIndex:
    """Where the series of an answer stand, by their labels: mostly the same objects in all answers."""

    def __init__(self, labels: Sequence[Labels]) -> None:
        self._labels = labels  # held, so that no other labels take their ids
        self._by_id = {id(one): row for row, one in enumerate(labels)}
        self._by_content: dict[tuple[tuple[str, str], ...], int] = {}

    def find(self, labels: Labels) -> int:
        """The row of these labels; -1: none."""
        row = self._by_id.get(id(labels), -1)
        if row < 0 and not self._by_content:
            self._by_content = {tuple(sorted(one.items())): row for row, one in enumerate(self._labels)}
        return row if row >= 0 else self._by_content.get(tuple(sorted(labels.items())), -1)


class Weights:
    """How many samples each series has, by its labels: the weights of its means; 1 for those that were not counted."""

    def __init__(self, counts: SeriesAnswer) -> None:
        self._index = SeriesIndex(counts.labels)
        self._values = np.vstack([np.nan_to_num(counts.values), np.ones((1, counts.values.shape[1]))])

    def of(self, labels: Iterable[Labels]) -> Floats:
        """A row for each of these labels."""
        return self._values[[self._index.find(one) for one in labels]]


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
        most: float = np.inf,
    ) -> None:
        """Add an answer. Where several series speak of a device at a moment, `how` (mean, max, sum) joins them.

        A value below 0 or above `most` is no reading and counts as missing.
        """
        whose = [key_of(labels) for labels in answer.labels]
        for key in whose:
            if key is not None:
                self.rows.setdefault(key, len(self.rows))
        out = self.columns[name] = np.full((len(self.rows), self.grid.count), np.nan)
        ours = np.array([n for n, key in enumerate(whose) if key is not None], dtype=np.intp)
        if not len(ours):
            return
        at = np.array([self.rows[key] for key in whose if key is not None], dtype=np.intp)
        order = np.argsort(at, kind="stable")
        devices, starts = np.unique(at[order], return_index=True)
        ours = ours[order]
        values = answer.values[ours].astype(np.float64, copy=False)
        with np.errstate(invalid="ignore", divide="ignore"):
            values[~((values >= 0) & (values <= most))] = np.nan
            if how == "max":
                out[devices] = np.fmax.reduceat(values, starts, axis=0)
                return
            weight = ~np.isnan(values) * 1.0
            if how == "mean" and weights is not None:
                weight *= weights.of(answer.labels[n] for n in ours.tolist())
            total = np.add.reduceat(np.nan_to_num(values, copy=False) * weight, starts, axis=0)
            weight = np.add.reduceat(weight, starts, axis=0)
            joined = total / weight if how == "mean" else total
            out[devices] = np.where(weight > 0, joined, np.nan)

    def put_bins(self, name: str, answer: SeriesAnswer, key_of: Callable[[Labels], K | None], seconds: Floats) -> None:
        """Add a histogram's buckets as seconds in each bin. `seconds`: how long each device was observed, by moment."""
        bounds = {bound: _bucket(bound) for bound in {labels.get("le", "") for labels in answer.labels}}
        counts = np.full((len(self.rows), self.grid.count, WIDTH), np.nan)
        for labels, values in zip(answer.labels, answer.values, strict=True):
            key, bucket = key_of(labels), bounds[labels.get("le", "")]
            if key is not None and bucket is not None and key in self.rows:
                own = counts[self.rows[key], :, bucket]
                own[:] = np.where(np.isnan(own), values, own + np.nan_to_num(values))
        # A bucket that is not there counts no more than the one below it; a client may leave out those that are empty.
        missing = np.isnan(counts).all(axis=2, keepdims=True)
        counts = np.where(~missing, np.nan_to_num(np.fmax.accumulate(counts, axis=2)), np.nan)
        # Each bucket's increase is extrapolated by itself: what goes down by that is no negative count.
        inside = np.diff(counts, axis=2, prepend=0.0).clip(min=0.0)
        whole = inside.sum(axis=2, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = inside / whole * seconds[: len(counts), :, None]
        self.bins[name] = np.where(whole > 0, scaled, np.nan).astype(np.float32)

    def column(self, name: str) -> Floats:
        """A measure with a row for each device; all NaN where it was not asked for or not answered."""
        out, found = np.full((len(self.rows), self.grid.count), np.nan), self.columns.get(name, ())
        out[: len(found)] = found if len(found) else np.nan
        return out

    def bin_column(self, name: str) -> Bins:
        """The seconds in each bin, likewise."""
        out, found = np.full((len(self.rows), self.grid.count, WIDTH), np.nan, np.float32), self.bins.get(name, ())
        out[: len(found)] = found if len(found) else np.nan
        return out

    def table(
        self,
        columns: Sequence[str],
        texts: Mapping[str, Callable[[K], object]],
        bins: Sequence[str] = (),
        *,
        left: Collection[str] = (),
        only: Collection[K] | None = None,
    ) -> pd.DataFrame:
        """One row for each device and moment that was observed, sorted by the texts and the moment. `only`: of these
        devices; then all measures stay here.

        `columns` of the table are filled from measures of the same name, `texts` from the device; what is not there is
        NaN. ``ts``, ``interval_seconds`` and ``observed_seconds`` (a measure) are always given. The measures go over
        to the table, so that none is held twice; those in `left` stay here.
        """
        keys = list(self.rows)
        wanted = range(len(keys)) if only is None else [row for key, row in self.rows.items() if key in only]
        order = sorted(wanted, key=lambda row: tuple(str(of(keys[row])) for of in texts.values()))
        place, moment = np.nonzero(self.column("observed_seconds")[order] > 0)
        device = np.array(order, dtype=np.intp)[place]
        for name in self.columns.keys() - set(columns) - set(left) if only is None else ():
            del self.columns[name]
        nothing = np.full(len(device), np.nan)
        nothing.flags.writeable = False  # it stands for every measure that is missing
        out: dict[str, object] = {}
        for name in columns:
            if name in texts:
                known = np.array([*(texts[name](key) for key in keys), None], dtype=object)
                out[name] = pd.Series(known[device], dtype=object)
            elif name in bins:
                some = BinsArray(self.bin_column(name)[device, moment]) if name in self.bins else None
                out[name] = BinsArray.absent(len(device)) if some is None else some
            else:
                out[name] = self.column(name)[device, moment] if name in self.columns else nothing
                if only is None and name not in left:
                    self.columns.pop(name, None)
        out["ts"] = self.grid.start + moment * self.grid.step
        out["interval_seconds"] = np.full(len(device), self.grid.step)
        # Without a copy into blocks, which would take the room of all columns twice more.
        return pd.DataFrame(out, columns=[*columns], copy=False)

    def seen(self) -> dict[K, tuple[float, float]]:
        """Of each device when its first row begins and its last one ends; devices never observed are left out."""
        observed = self.column("observed_seconds") > 0
        spans = {}
        for key, row in self.rows.items():
            at = np.nonzero(observed[row])[0]
            if len(at):
                start = self.grid.start + (at[0] - 1) * self.grid.step
                spans[key] = (float(start), float(self.grid.start + at[-1] * self.grid.step))
        return spans


def from_bins(bins: Bins) -> tuple[Floats, Floats]:
    """95th percentile and maximum that counts in bins tell: the middle of the bin, and the lower edge of the highest.

    A maximum is never told too high: silence is judged by it as well as load.
    """
    total = np.nansum(bins, axis=2)
    reached = np.cumsum(np.nan_to_num(bins), axis=2) >= 0.95 * total[:, :, None] - 1e-6
    place = reached.argmax(axis=2)
    middle = (_EDGES + np.append(_EDGES[1:], 1.0)) / 2
    highest = WIDTH - 1 - (np.nan_to_num(bins) > 0)[:, :, ::-1].argmax(axis=2)
    p95 = np.where(place == 0, 0.0, middle[place])
    return np.where(total > 0, p95, np.nan), np.where(total > 0, _EDGES[highest], np.nan)


def _bucket(bound: str) -> int | None:
    """The bin whose upper edge a bucket's bound is; None for a bound that is none of ours."""
    try:
        value = float(bound)
    except ValueError:
        return None
    near = int(np.abs(_EDGES[1:] - value).argmin())
    return WIDTH - 1 if value == np.inf else near if abs(_EDGES[1:][near] - value) < _EDGE_TOLERANCE else None


def first_known(parts: Iterable[Floats]) -> Floats:
    """The first of several matrices that has a value, cell by cell."""
    out, *others = parts
    for part in others:
        out = np.where(np.isnan(out), part, out)
    return out
