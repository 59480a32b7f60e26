"""Answers as rows of the frame: measures of devices by moment, gathered series by series, turned into one table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from .....agent.metrics import BIN_EDGES
from ....core.column_rows import WIDTH, BinsArray
from ..client.response import Grid, Labels, SeriesAnswer

K = TypeVar("K", bound=Hashable)
Matrix = npt.NDArray[np.floating[Any]]
_EDGES = np.array(BIN_EDGES)
# The bound of a bucket as text differs between clients by its last digits.
_EDGE_DIGITS = 8
_BUCKETS = {**{edge: n for n, edge in enumerate(_EDGES[1:].round(_EDGE_DIGITS).tolist())}, np.inf: WIDTH - 1}


def label_set(labels: Labels) -> frozenset[tuple[str, str]]:
    """What equal labels have in common."""
    return frozenset(labels.items())


@dataclass
class Cells(Generic[K]):
    """Measures by name, each a float32 matrix of devices by moments, of names that end with ``_bins`` by bins as well;
    NaN: missing. Devices come in the order they are met."""

    grid: Grid
    rows: dict[K, int] = field(default_factory=dict)
    columns: dict[str, Matrix] = field(default_factory=dict)

    def put(
        self, name: str, answer: SeriesAnswer, key_of: Callable[[Labels], K | None], *, how: str = "mean",
        weights: SeriesAnswer | None = None, least: float = 0.0, most: float = np.inf,
    ) -> None:  # fmt: skip
        """Add an answer. Where several series are of a device at a moment, `how` (mean, max, sum) joins them; the
        `weights` of a mean are the values of the series with the same labels, 1 of others.

        A value below `least` or above `most` is no reading and counts as missing.
        """
        whose = [key_of(labels) for labels in answer.labels]
        at = np.array([-1 if key is None else self.rows.setdefault(key, len(self.rows)) for key in whose], np.intp)
        out = self.columns[name] = np.full((len(self.rows), self.grid.count), np.nan, np.float32)
        values = pd.DataFrame(answer.values[at >= 0])
        values, by = values.where((values >= least) & (values <= most)), at[at >= 0]
        if how != "mean":
            joined = getattr(values.groupby(by), how)(min_count=1)
        else:
            weight = values.notna().astype(float)
            if weights is not None:
                index = {label_set(labels): row for row, labels in enumerate(weights.labels)}
                weights_of = np.vstack([weights.values, np.ones(values.shape[1])])
                labels = (labels for labels, row in zip(answer.labels, at, strict=True) if row >= 0)
                weight *= np.nan_to_num(weights_of)[[index.get(label_set(label), -1) for label in labels]]
            joined = (values.fillna(0.0) * weight).groupby(by).sum() / weight.groupby(by).sum()
        out[joined.index] = joined

    def put_bins(self, name: str, answer: SeriesAnswer, key_of: Callable[[Labels], K | None], seconds: Matrix) -> None:
        """Add a histogram's buckets as seconds in each bin. `seconds`: how long each device was observed, by moment."""
        bounds = pd.to_numeric(pd.Series([labels.get("le") for labels in answer.labels], dtype=object), errors="coerce")
        buckets = bounds.round(_EDGE_DIGITS).map(_BUCKETS).fillna(-1).to_numpy(np.intp)
        keys = [key_of(labels) for labels in answer.labels]
        at = np.array([-1 if key is None else self.rows.get(key, -1) for key in keys], dtype=np.intp)
        matched = (at >= 0) & (buckets >= 0)
        counts = np.zeros((len(self.rows), WIDTH, self.grid.count), np.float32)
        np.add.at(counts, (at[matched], buckets[matched]), np.nan_to_num(answer.values[matched]))
        # A bucket that is not there counts no more than the one below it; a client may leave out those that are empty.
        # Each bucket's increase is extrapolated by itself: what goes down by that is no negative count.
        inside = np.diff(np.maximum.accumulate(counts, axis=1), axis=1, prepend=np.float32(0.0)).transpose(0, 2, 1)
        whole = inside.sum(axis=2, keepdims=True)
        scaled = inside / np.where(whole > 0, whole, np.nan) * seconds[: len(counts), :, None]
        self.columns[name] = scaled.astype(np.float32)

    def column(self, name: str) -> Matrix:
        """A measure with a row for each device, to be changed in place; all NaN where it was not asked for or not
        answered."""
        column = self.columns.get(name)
        missing = len(self.rows) - (0 if column is None else len(column))
        if column is None or missing:
            more = (WIDTH,) if name.endswith("_bins") else ()
            nothing = np.full((missing, self.grid.count, *more), np.nan, np.float32)
            if column is None:
                return nothing
            column = self.columns[name] = np.concatenate([column, nothing])
        return column

    def table(
        self, columns: Sequence[str], texts: Mapping[str, Callable[[K], object]], bins: Sequence[str] = (), *,
        only: Collection[K] | None = None,
    ) -> pd.DataFrame:  # fmt: skip
        """One row for each device and moment that was observed, sorted by the texts and the moment.

        `columns` of the table are filled from measures of the same name, `texts` from the device; what is not there is
        NaN. ``ts``, ``interval_seconds`` and ``observed_seconds`` (a measure) are always given. `only`: the devices
        that are wanted; None: all.
        """
        keys = list(self.rows)
        chosen = [row for row, key in enumerate(keys) if only is None or key in only]
        order = sorted(chosen, key=lambda row: tuple(str(of(keys[row])) for of in texts.values()))
        place, moment = np.nonzero(self.column("observed_seconds")[order] > 0)
        device = np.array(order, dtype=np.intp)[place]
        nothing = np.full(len(device), np.nan)
        nothing.flags.writeable = False  # it stands for every measure that is missing
        out: dict[str, object] = {}
        for name in columns:
            has = name in self.columns
            if name in texts:
                cells = np.array([*(texts[name](key) for key in keys), None], dtype=object)
                out[name] = pd.Series(cells[device], dtype=object)
            elif name in bins:
                out[name] = BinsArray(self.column(name)[device, moment]) if has else BinsArray.missing(len(device))
            else:
                out[name] = self.column(name)[device, moment].astype(np.float64) if has else nothing
        out["ts"] = self.grid.start + moment * self.grid.step
        out["interval_seconds"] = np.full(len(device), self.grid.step)
        # Without a copy into blocks, which would take the room of all columns twice more.
        return pd.DataFrame(out, columns=[*columns], copy=False)

    def keep(self, keys: Collection[K], columns: Collection[str]) -> None:
        """Release the rows of all other devices, and all other measures."""
        at = [row for key, row in self.rows.items() if key in keys]
        for name in [*self.columns]:
            matrix = self.column(name)
            del self.columns[name]
            if name in columns:
                self.columns[name] = matrix[at]
        self.rows = {key: n for n, key in enumerate(key for key in self.rows if key in keys)}

    def seen(self) -> dict[K, tuple[float, float]]:
        """Of each device when its first row begins and its last one ends; devices never observed are left out."""
        observed, grid = self.column("observed_seconds") > 0, self.grid
        first, last = observed.argmax(axis=1) - 1, grid.count - 1 - observed[:, ::-1].argmax(axis=1)
        start, end = (grid.start + at * grid.step for at in (first, last))
        return {key: (float(start[row]), float(end[row])) for key, row in self.rows.items() if observed[row].any()}


def from_bins(bins: Matrix) -> tuple[Matrix, Matrix]:
    """95th percentile and maximum of counts in bins: the middle of the bin, and the lower edge of the highest.

    A maximum is never too high: silence is judged by it as well as load.
    """
    counts = np.nan_to_num(bins).astype(np.float64)
    total = counts.sum(axis=2)
    place = (np.cumsum(counts, axis=2) >= 0.95 * total[:, :, None] - 1e-6).argmax(axis=2)
    middle = (_EDGES + np.append(_EDGES[1:], 1.0)) / 2
    highest = WIDTH - 1 - (counts > 0)[:, :, ::-1].argmax(axis=2)
    edges = np.where(place == 0, 0.0, middle[place]), _EDGES[highest]
    p95, most = (np.where(total > 0, values, np.nan).astype(np.float32) for values in edges)
    return p95, most
