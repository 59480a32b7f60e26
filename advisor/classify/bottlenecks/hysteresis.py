"""Labels that do not flicker: two thresholds for each answer, and a least time for each label.

A measure that hovers about a threshold would change the label with its noise. So an answer that was yes stays yes until
its measure falls below a lower level, and a label that lasted less than some minutes is part of what was before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.segments import runs

Mask = npt.NDArray[np.bool_]

# Rows of one GPU further apart than this share of their own length do not follow one another.
HOLE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Courses:
    """How the rows of a table follow one another: `order` sorts them by GPU and time, `starts` marks (in that order)
    the first row of each GPU and the first after a hole, `seconds` is what each row observed (in that order)."""

    order: npt.NDArray[np.intp]
    starts: Mask
    seconds: npt.NDArray[np.float64]


def courses(gpu: pd.DataFrame) -> Courses:
    """The courses of a frame's `gpu`: columns ``node, gpu_uuid, ts, interval_seconds, observed_seconds``."""
    node, device = pd.factorize(gpu["node"])[0], pd.factorize(gpu["gpu_uuid"])[0]
    ts, length = gpu["ts"].to_numpy(float), gpu["interval_seconds"].to_numpy(float)
    order = np.lexsort((ts, device, node)).astype(np.intp)
    after = order[1:]
    hole = ts[after] - length[after] - ts[order[:-1]] > HOLE_SHARE * length[after]
    starts = runs(node[order], device[order], breaks=hole) if len(order) else np.empty(0, dtype=np.bool_)
    return Courses(order, starts, np.nan_to_num(gpu["observed_seconds"].to_numpy(float))[order])


def latched(enter: Mask, stay: Mask, along: Courses) -> Mask:
    """The answers to one question: yes from where `enter` holds until `stay` does not. Rows as in the table."""
    came, kept = enter[along.order], stay[along.order]
    # A row that neither enters nor leaves answers as the last one that did, which a course's first row always does.
    said = came | ~kept | along.starts
    out = np.empty(len(enter), dtype=np.bool_)
    out[along.order] = came[np.maximum.accumulate(np.where(said, np.arange(len(said)), 0))]
    return out


def settled(labels: npt.NDArray, along: Courses, *, hold_seconds: float, loose: Mask) -> npt.NDArray:
    """Labels whose runs last at least `hold_seconds`: a shorter run is taken as what was before it.

    `loose`: rows (idle, unseen, contradictory) that are what they are, however short, and whose label nothing takes on.
    """
    if not len(labels):
        return labels.copy()
    own, free = labels[along.order], loose[along.order]
    new = runs(own, free, breaks=along.starts[1:])
    run, first = np.cumsum(new) - 1, np.nonzero(new)[0]
    stands = (np.bincount(run, weights=along.seconds) >= hold_seconds) | free[first] | along.starts[first]
    stands[1:] |= free[first[:-1]]
    last = np.maximum.accumulate(np.where(stands, np.arange(len(first)), 0))
    out = np.empty_like(labels)
    out[along.order] = own[first[last[run]]]
    return out
