"""Labels that do not flicker: two thresholds for each answer, and a least time for each label.

A measure that hovers about a threshold would change the label with its noise. So an answer that was yes stays yes until
its measure falls below a lower level, and a label that lasted less than some minutes is part of what was before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]

# Rows of one GPU further apart than this share of their own length do not follow one another.
HOLE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Courses:
    """How the rows of a table follow one another: `order` sorts them by GPU and time, `starts` marks (in that order)
    the first row of each GPU and the first after a hole, `seconds` is what each row observed (in that order)."""

    order: Ints
    starts: Mask
    seconds: Floats


def courses(gpu: pd.DataFrame) -> Courses:
    """The courses of a frame's `gpu`: columns ``node, gpu_uuid, ts, interval_seconds, observed_seconds``."""
    if gpu.empty:
        return Courses(np.empty(0, dtype=np.intp), np.empty(0, dtype=np.bool_), np.empty(0))
    node, device = pd.factorize(gpu["node"])[0], pd.factorize(gpu["gpu_uuid"])[0]
    ts, length = gpu["ts"].to_numpy(float), gpu["interval_seconds"].to_numpy(float)
    order = np.lexsort((ts, device, node))
    same = np.zeros(len(order), dtype=np.bool_)
    before, after = order[:-1], order[1:]
    hole = ts[after] - length[after] - ts[before]
    same[1:] = (node[before] == node[after]) & (device[before] == device[after]) & (hole <= HOLE_SHARE * length[after])
    seconds = np.nan_to_num(gpu["observed_seconds"].to_numpy(float))[order]
    return Courses(order.astype(np.intp), ~same, seconds)


def latched(enter: Mask, stay: Mask, along: Courses) -> Mask:
    """The answers to one question: yes from where `enter` holds until `stay` does not. Rows as in the table."""
    came, kept = enter[along.order], stay[along.order]
    # A row that neither enters nor leaves answers as the last one that did, which a course's first row always does.
    said = came | ~kept | along.starts
    last = np.maximum.accumulate(np.where(said, np.arange(len(said)), 0))
    out = np.empty(len(enter), dtype=np.bool_)
    out[along.order] = came[last]
    return out


def settled(labels: npt.NDArray, along: Courses, *, hold_seconds: float, loose: Mask) -> npt.NDArray:
    """Labels whose runs last at least `hold_seconds`: a shorter run is taken as what was before it.

    `loose`: rows (idle, unseen, contradictory) that are what they are, however short, and whose label nothing takes on.
    """
    if not len(labels):
        return labels.copy()
    own, free = labels[along.order], loose[along.order]
    new = along.starts.copy()
    new[1:] |= own[1:] != own[:-1]
    new[1:] |= free[1:] != free[:-1]
    run = np.cumsum(new) - 1
    first = np.nonzero(new)[0]
    lasted = np.bincount(run, weights=along.seconds)
    stands = (lasted >= hold_seconds) | free[first] | along.starts[first]
    stands[1:] |= free[first[:-1]]
    last = np.maximum.accumulate(np.where(stands, np.arange(len(first)), 0))
    out = np.empty_like(labels)
    out[along.order] = own[first[last[run]]]
    return out
