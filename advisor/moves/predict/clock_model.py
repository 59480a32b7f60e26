"""The same GPU at a lower SM clock or under a power cap: what is lost in time and what is saved in power.

The SM clock slows compute and latency; memory and links keep their own clocks. A cap bites only where the GPU draws
more than the cap: work that waits for memory draws far less than its limit, so there a cap saves nothing and a lower
clock does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...core.coded_text import coded
from ..base.prediction import Factors, Phase, Prediction, Refusal, Use, not_measured, time_ratio
from ..base.workload_groups import HOURS_PER_MONTH, Group

# Power above idle as a function of the SM clock's share k: 1 - D + D k^3. D = 0.49 from one published point: A100
# serving at 1110 of 1410 MHz drew a fifth less at its peak (POLCA, arXiv 2308.12908). Assumed for other GPUs.
CLOCKED_SHARE = 0.49
CLOCK_EXPONENT = 3.0
LOWEST_SHARE = 0.5  # nobody published how work behaves below half the clock
SIGMA_CLOCK = 0.05  # of the log of the time ratio; the same GPU, so no efficiencies are compared. Assumed


@dataclass(frozen=True, slots=True)
class ClockMove:
    """One way to run the present GPU. `clock_share`: SM clock over today's; watts are means of one GPU.

    `prediction`: time ratio. `watts_after` at work, for the same time at work; `joules_ratio`: energy for the same work
    over today's, for jobs time and power together. Below 1 it saves.
    """

    clock_share: float
    prediction: Prediction
    watts_before: float
    watts_after: float

    @property
    def joules_ratio(self) -> float:
        return self.watts_after * self.prediction.median / self.watts_before

    @property
    def loss(self) -> float:
        """Expected slowdown, 0.05 for 5 %."""
        return max(self.prediction.median - 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class PowerAtWork:
    """What one GPU of a group draws while it works: mean, 95th percentile and idle power; GPU-hours a month at work."""

    watts: float
    peak_watts: float
    idle_watts: float
    hours_per_month: float


def power_at_work(usage: pd.DataFrame, group: Group, window_hours: float) -> PowerAtWork | None:
    """From the rows of `Verdicts.usage` of the group's current workloads; None: not measured, or it never worked."""
    drawn = usage["power_watts"].to_numpy(float)
    busy = (usage["bottleneck"].to_numpy() != "idle") & np.isfinite(drawn)
    drawn, seconds = drawn[busy], usage["seconds"].to_numpy(float)[busy]
    over, mean = group.feature("power_over_idle"), group.feature("power_watts")
    if not len(drawn) or seconds.sum() <= 0 or not over or not mean:
        return None
    return PowerAtWork(
        watts=float(np.average(drawn, weights=seconds)),
        peak_watts=float(np.percentile(drawn, 95)),
        idle_watts=mean / over,
        hours_per_month=float(seconds.sum()) / 3600 / window_hours * HOURS_PER_MONTH,
    )


def predict_clock(use: Use, phase: Phase, clock_share: float) -> Prediction | Refusal:
    """Time at `clock_share` of today's SM clock over time today."""
    if not LOWEST_SHARE <= clock_share <= 1.0:
        return Refusal(
            coded(
                "clock-unknown", "nothing is known about clocks below {lowest:.0%} of today's or above it",
                lowest=LOWEST_SHARE,
            )
        )  # fmt: skip
    refused = not_measured(use, "u_c", "u_m")
    if refused is not None:
        return refused
    slower = 1.0 / clock_share
    ratio = time_ratio(use, phase, Factors(c=slower, latency=slower))
    # The further from today's clock, the less is known.
    sigma = max(SIGMA_CLOCK * (1.0 - clock_share) / 0.25, 0.01)
    return Prediction(ratio, sigma, f"SM clock at {clock_share:.0%} of today's")


def watts_at(watts: float, idle_watts: float, clock_share: float) -> float:
    """Power at work with the SM clock at `clock_share`; `watts` is today's at work."""
    above = max(watts - idle_watts, 0.0)
    return min(watts, idle_watts) + above * (1 - CLOCKED_SHARE + CLOCKED_SHARE * clock_share**CLOCK_EXPONENT)


def lower_clock(
    use: Use, phase: Phase, *, watts: float, idle_watts: float, most_loss: float = 0.05
) -> ClockMove | Refusal:
    """The lowest SM clock (in steps of 5 %) whose 90th percentile of slowdown stays within `most_loss`.

    Refused where not even the first step does, which is work bound by compute or launches.
    """
    best: ClockMove | None = None
    for percent in range(95, int(LOWEST_SHARE * 100) - 1, -5):
        found = predict_clock(use, phase, percent / 100)
        if isinstance(found, Refusal):
            return found
        if found.interval.p90 > 1.0 + most_loss:
            break
        best = ClockMove(percent / 100, found, watts, watts_at(watts, idle_watts, percent / 100))
    return best or Refusal(
        coded(
            "clock-needed", "a lower SM clock costs more than {most_loss:.0%} of time: the work needs the clock",
            most_loss=most_loss,
        )
    )  # fmt: skip


def power_cap(
    use: Use, phase: Phase, *, watts: float, peak_watts: float, idle_watts: float, cap_watts: float
) -> ClockMove | Refusal:
    """What a power cap does. `watts`: mean at work; `peak_watts`: 95th percentile at work, decides if it bites."""
    if cap_watts >= peak_watts:
        return Refusal(
            coded(
                "cap-without-effect",
                "a cap of {cap_watts:.0f} W changes nothing: the GPU draws {peak_watts:.0f} W at the 95th percentile",
                cap_watts=cap_watts, peak_watts=peak_watts,
            )
        )  # fmt: skip
    room = (cap_watts - idle_watts) / max(peak_watts - idle_watts, 1e-9)
    cubed = (room - (1 - CLOCKED_SHARE)) / CLOCKED_SHARE
    share = math.copysign(abs(cubed) ** (1 / CLOCK_EXPONENT), cubed)
    if share < LOWEST_SHARE:
        return Refusal(
            coded(
                "cap-too-low", "a cap of {cap_watts:.0f} W is lower than anything published tells about",
                cap_watts=cap_watts,
            )
        )  # fmt: skip
    found = predict_clock(use, phase, share)
    if isinstance(found, Refusal):
        return found
    return ClockMove(share, found, watts, min(watts_at(watts, idle_watts, share), cap_watts))
