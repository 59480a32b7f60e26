"""Power, SM clock, time and energy of one GPU under a cap: six figures fitted on measured runs (docs/method.md).

Kernels run in a share of the time, the host in the rest. While kernels run, a cap leaves the clock at which they draw
no more than the cap; kernels take longer by as much of their work as follows the clock. Host and kernels overlap, so a
run that waits for its host loses little. Everything is relative to the same run at today's limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....rules.models.power_model import PowerCurve

Array = NDArray[np.float64]

NORM = 3.0  # compute and memory within a kernel: the slower wins, softened as everywhere here (prediction.py)
# Draw that is about to reach the cap is held a little already; this sharp, the loss at the cap itself is 4 %.
_SHARPNESS = 20.0
_LEAST_ABOVE_WATTS = 0.5  # a run that draws no more than rest
_LEAST_CLOCK = 0.05


@dataclass(frozen=True, slots=True)
class Effect:
    """What a cap does to each run: all over the same at today's limit. `watts`: mean draw then.

    `clock`: the SM clock while kernels run; `time`, `joules`: for the same work.
    """

    clock: Array
    time: Array
    joules: Array
    watts: Array


def under_cap(
    curve: PowerCurve,
    *,
    watts: Array,
    rest_watts: Array,
    limit_watts: Array,
    cap_watts: Array,
    peak_watts: Array | None = None,
) -> Effect:
    """Of arrays of runs. `watts`: mean draw at `limit_watts`; `rest_watts`: draw of the GPU with nothing to do;
    `peak_watts`: highest draw at work where it was measured, else what the mean tells of bursts."""
    above = np.maximum(watts - rest_watts, _LEAST_ABOVE_WATTS)
    room = np.maximum(limit_watts - rest_watts, 2 * _LEAST_ABOVE_WATTS)
    at_work = above / np.clip(above / room, 1e-3, 1.0) ** curve.bursts
    if peak_watts is not None:
        at_work = np.maximum(at_work, peak_watts - rest_watts)
    busy = above / at_work
    # The run at today's limit may have been held by that already.
    held = _held(at_work, curve.drawn_of_cap * cap_watts - rest_watts)
    before = _held(at_work, curve.drawn_of_cap * limit_watts - rest_watts)
    drawn = np.minimum(held / before, 1.0)
    clock = clock_at(curve, drawn)
    slower = (1 - curve.clocked + curve.clocked * clock**-NORM) ** (1 / NORM)
    p = curve.overlap
    time = (1 - busy**p + (busy * slower) ** p) ** (1 / p)
    joules = (rest_watts * time + above * drawn * slower) / (rest_watts + above)
    return Effect(clock, time, joules, joules * (rest_watts + above) / time)


def clock_at(curve: PowerCurve, drawn: Array) -> Array:
    """The SM clock over today's at which kernels draw this share of what they draw above rest today."""
    free = np.maximum((drawn - 1 + curve.follows) / curve.follows, 1e-6)
    return np.clip(free ** (1 / curve.clock_exponent), _LEAST_CLOCK, 1.0)


def drawn_at(curve: PowerCurve, clock: float) -> float:
    """The reverse: share of the power above rest that is drawn at this clock."""
    return 1 - curve.follows + curve.follows * float(clock**curve.clock_exponent)


def _held(at_work: Array, cap: Array) -> Array:
    """The lower of the two, softly."""
    most = np.maximum(cap, 2.0)
    return at_work / (1 + (at_work / most) ** _SHARPNESS) ** (1 / _SHARPNESS)
