"""Which seconds are made: whole hours where minutes or samples are kept, a window of each hour elsewhere.

Fourteen days of seconds are too many to make for every GPU. An hour that only survives as a rollup is made from one
contiguous window of four minutes at a random minute of it (contiguous, because a period or a run cannot be seen in
scattered seconds) and scaled to the hour. Hours are made whole where minutes are kept, where a workload starts or ends
in them, and where the agent was away for a part of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HOUR = 3600
WINDOW_SECONDS = 240
SCRAPE_SECONDS = 60
# A scraped gauge is a mean over the exporter's own interval of half a minute: made from so many of its seconds.
SCRAPE_SPAN_SECONDS, SECONDS_OF_SCRAPE = 30, 6
_HOURS_AT_ONCE = {WINDOW_SECONDS: 36, HOUR: 3}  # so that one array of 8 GPUs stays within the caches

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some hours made alike. `hours`: their ends (h,). `seconds`: the ends of the seconds made (h, s). `observed`: the
    seconds that each hour stands for (h,). `whole`: nothing was left out but what the agent did not see."""

    hours: Floats
    seconds: Floats
    observed: Floats
    whole: bool


def stretches(
    start: float,
    end: float,
    rng: np.random.Generator,
    *,
    whole_from: float,
    edges: Sequence[float],
    gaps: Sequence[tuple[float, float]],
) -> Iterator[Stretch]:
    """The hours of [start, end) in order of time. `edges`: starts and ends of workloads; `gaps`: when no agent ran."""
    ends = np.arange(start + HOUR, end + 1, HOUR)
    whole = ends > whole_from
    # Where in its hour each window lies: on a full minute.
    offsets = rng.integers(0, (HOUR - WINDOW_SECONDS) // 60 + 1, len(ends)) * 60.0
    for moment in [*edges, *(moment for gap in gaps for moment in gap)]:
        whole |= (ends - HOUR < moment) & (moment < ends)
    dark = np.array([any(a <= e - HOUR and e <= b for a, b in gaps) for e in ends], dtype=bool)
    torn = np.array([any(a < e and e - HOUR < b for a, b in gaps) for e in ends], dtype=bool) & ~dark
    index = 0
    while index < len(ends):
        if dark[index]:
            index += 1
            continue
        stop = index + 1
        if not torn[index]:
            most = _HOURS_AT_ONCE[HOUR if whole[index] else WINDOW_SECONDS]
            while (
                stop < len(ends)
                and stop - index < most
                and whole[stop] == whole[index]
                and not torn[stop]
                and not dark[stop]
            ):
                stop += 1
        hours = ends[index:stop]
        if whole[index]:
            seconds = hours[:, None] - HOUR + np.arange(1, HOUR + 1)
            for a, b in gaps if torn[index] else ():
                seconds = seconds[:, (seconds[0] <= a) | (seconds[0] > b)]
            yield Stretch(hours, seconds, np.full(len(hours), float(seconds.shape[1])), True)
        else:
            seconds = hours[:, None] - HOUR + offsets[index:stop, None] + np.arange(1, WINDOW_SECONDS + 1)
            yield Stretch(hours, seconds, np.full(len(hours), float(HOUR)), False)
        index = stop


def scraped_hours(
    start: float, end: float, rng: np.random.Generator, *, gaps: Sequence[tuple[float, float]]
) -> Iterator[Stretch]:
    """The hours of [start, end) as a server has them that scrapes once a minute: 60 moments an hour, each with the
    seconds of its exporter's mean before it. Scrapes in `gaps` were missed."""
    phase = float(rng.integers(0, SCRAPE_SECONDS))
    within = np.arange(HOUR // SCRAPE_SECONDS) * float(SCRAPE_SECONDS) + phase
    step = SCRAPE_SPAN_SECONDS // SECONDS_OF_SCRAPE
    back = np.arange(SECONDS_OF_SCRAPE - 1, -1, -1) * float(step)
    ends = np.arange(start + HOUR, end + 1, HOUR)
    at_once = _HOURS_AT_ONCE[WINDOW_SECONDS]
    torn = np.array([any(a < e and e - HOUR < b for a, b in gaps) for e in ends], dtype=bool)
    index = 0
    while index < len(ends):
        stop = index + 1
        while not torn[index] and stop < len(ends) and stop - index < at_once and not torn[stop]:
            stop += 1
        hours, moments = ends[index:stop], within
        if torn[index]:
            for a, b in gaps:
                ts = ends[index] - HOUR + moments
                moments = moments[(ts <= a) | (ts > b)]
        if len(moments):
            # The first seconds of the window have none before them.
            seconds = np.maximum((moments[:, None] - back[None, :]).ravel(), 1.0)
            observed = np.full(len(hours), float(SCRAPE_SECONDS * len(moments)))
            yield Stretch(hours, hours[:, None] - HOUR + np.sort(seconds), observed, False)
        index = stop
