"""What follows the clock: the best ten hours of the day, the same hours as the day before, weekends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...core.segments import Segments

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

# A daily pattern needs two of its days, a weekly one a whole weekend beside four working days.
DAILY_DAYS_MIN = 2.0
WEEKEND_HOURS_MIN, WEEKDAY_HOURS_MIN = 36.0, 72.0
# People work some ten hours of a day; where those lie is not asked, as nobody knows their clock.
WORKING_HOURS = 10
# 1 January 1970 was a Thursday: days 2 and 3 of each seven from it are a weekend.
_WEEKEND = (2, 3)
_NAMES = ("working_hours_share", "night_level", "day_before", "weekend_level")


def calendar(hours: Ints, load: Floats, segments: Segments, hourly: npt.NDArray[np.bool_]) -> dict[str, Floats]:
    """The features of each workload (a segment) by name, NaN where they cannot be told. `hours`: in rising order, since
    1970, with the `load` of each; `hourly`: workloads that are looked at hour by hour."""
    out = {name: np.full(len(segments), np.nan) for name in _NAMES}
    first, end = segments.bounds[:-1], segments.bounds[1:]
    long = np.zeros(len(segments), dtype=np.bool_)
    some = segments.lengths > 0
    long[some] = (hours[end[some] - 1] - hours[first[some]] + 1) / 24 >= DAILY_DAYS_MIN
    # A weekend beside working days takes longer than two days as well.
    for n in np.nonzero(hourly & long)[0]:
        for name, value in _of_one(hours[first[n] : end[n]], load[first[n] : end[n]]).items():
            out[name][n] = value
    return out


def _of_one(hours: Ints, load: Floats) -> dict[str, float]:
    if load.sum() <= 0:
        return {}
    out: dict[str, float] = {}
    of_day = hours % 24
    count = np.bincount(of_day, minlength=24)
    mean = np.bincount(of_day, weights=load, minlength=24) / np.maximum(count, 1)
    if (count > 0).all():
        twice = np.concatenate([mean, mean])
        best = max(float(twice[start : start + WORKING_HOURS].sum()) for start in range(24))
        out["working_hours_share"] = best / float(mean.sum())
        out["night_level"] = float(np.sort(mean)[:6].mean() / mean.mean())
    before = np.searchsorted(hours, hours - 24)
    paired = (before < len(hours)) & (hours[np.minimum(before, len(hours) - 1)] == hours - 24)
    if paired.sum() >= 18:
        a, b = load[paired], load[before[paired]]
        if a.std() > 1e-4 and b.std() > 1e-4:
            out["day_before"] = float(np.corrcoef(a, b)[0, 1])
    weekend = np.isin((hours // 24) % 7, _WEEKEND)
    if weekend.sum() >= WEEKEND_HOURS_MIN and (~weekend).sum() >= WEEKDAY_HOURS_MIN:
        out["weekend_level"] = float(load[weekend].mean() / max(load[~weekend].mean(), 1e-6))
    return out
