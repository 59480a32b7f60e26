"""One row of time of both resolutions: coarse spans up to where the fine ones begin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..core.recent import Detail, Values

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
# Of this span at least half must be observed for its means to speak of it.
_OBSERVED_HALF = 0.5


@dataclass(frozen=True)
class Timeline:
    """`ends`: of each span, Unix seconds, rising; `seconds`: its length. `coarse`: how many spans are coarse ones.
    `observed_from`: the begin of the first span in which anything was observed."""

    ends: Floats
    seconds: Floats
    coarse: int
    start: float
    observed_from: float

    @property
    def count(self) -> int:
        return len(self.ends)

    @property
    def end(self) -> float:
        return float(self.ends[-1])

    def since(self, ts: float) -> Mask:
        """The spans that end after a moment."""
        return self.ends > ts + 1e-6


def timeline_of(detail: Detail) -> Timeline:
    """The spans of a reading."""
    fine, coarse = detail.fine, detail.coarse
    begins = coarse.start + coarse.step_seconds * np.arange(coarse.count)
    kept = int((begins + coarse.step_seconds <= fine.start + 1e-6).sum())
    fine_ends = fine.start + fine.step_seconds * np.arange(1, fine.count + 1)
    ends: Floats = np.concatenate([begins[:kept] + coarse.step_seconds, fine_ends]).astype(np.float64)
    seconds = np.concatenate([np.full(kept, coarse.step_seconds), np.full(fine.count, fine.step_seconds)])
    start = coarse.start if kept else fine.start
    seen = [
        np.nan_to_num(rows.values["observed"])[:, :count].any(axis=0) if "observed" in rows.values else np.zeros(count)
        for rows, count in ((coarse, kept), (fine, fine.count))
    ]
    at = np.flatnonzero(np.concatenate(seen))
    return Timeline(ends, seconds, kept, start, float(ends[at[0]] - seconds[at[0]]) if len(at) else start)


def joined(detail: Detail, name: str, subjects: int, line: Timeline) -> Values:
    """One measure over the timeline: (subjects, spans), NaN where missing."""
    return np.concatenate([detail.coarse.of(name, subjects)[:, : line.coarse], detail.fine.of(name, subjects)], axis=1)


def low_level(values: Values, share: float, where: Mask | None = None) -> Floats:
    """The value of each row below which `share` of its known values lie; NaN where none is known. `where`: only
    these."""
    held = np.where(where, values, np.nan) if where is not None else values
    ordered = np.sort(held, axis=1)  # NaN last
    known = np.isfinite(ordered).sum(axis=1)
    at = np.clip((known * share).astype(int), 0, np.maximum(known - 1, 0))
    picked = ordered[np.arange(len(ordered)), at].astype(np.float64)
    return np.where(known > 0, picked, np.nan)


def is_observed(observed: Values) -> Mask:
    """Spans of which enough was observed."""
    return np.nan_to_num(observed, nan=0.0) >= _OBSERVED_HALF
