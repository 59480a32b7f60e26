"""The same GPU at a lower SM clock or under a power cap: what is lost in time and what is saved in energy.

The SM clock slows compute and latency; memory and links keep their own clocks. A cap bites only where the GPU draws
more while its kernels run; below a knee the same work takes more energy again, for the power at rest is drawn for
longer. The curve is fitted on measured runs (rules/power_model.yaml, docs/method.md), relative to today's run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ....rules.catalog.types import GpuSku
from ....rules.models import PowerCurve, PowerModel
from ...classify.types import Verdicts
from ...core.advice_types import COUNTED_RISKS, Interval
from ...core.coded_text import CodedText, coded
from ...core.energy_types import JOULES_PER_KWH
from ...core.worth import HOURS_PER_MONTH
from ..groups import Group
from ..prediction import NORM, Array, Factors, Phase, Prediction, Use, interval_of, not_measured, time_ratio
from ..sustained_rates import family

# Draw that is about to reach the cap is held a little already; this sharp, the loss at the cap itself is 4 %.
_SHARPNESS = 20.0
_LEAST_ABOVE_WATTS = 0.5  # a run that draws no more than rest
LOWEST_SHARE = 0.5  # there are no published figures below half the clock
# The measured power at rest may be too low by a fifth: what saves only then is not proposed.
REST_MARGIN = 1.25
_STEP = 0.05  # steps of caps and clocks, as shares


@dataclass(frozen=True, slots=True)
class Effect:
    """What a cap does to each run, over the same at today's limit: SM clock, time and joules. `watts`: mean draw
    then."""

    clock: Array
    time: Array
    joules: Array
    watts: Array


@dataclass(frozen=True, slots=True)
class ClockMove:
    """One way to run the present GPU. `clock_share`: SM clock over today's; `cap_watts`: None for a lower clock.

    Watts are means of one GPU at work. `joules_sigma`: of the log of `joules_ratio`. `work_hours`: GPU-hours a month at
    work, in which energy is saved. `shown`: whether runs of this architecture stand behind it.
    """

    clock_share: float
    cap_watts: float | None
    prediction: Prediction
    watts_before: float
    watts_after: float
    joules_sigma: float
    work_hours: float
    shown: bool = True

    @property
    def joules_ratio(self) -> float:
        """Energy for the same work over today's; below 1 it saves."""
        return self.watts_after * self.prediction.median / self.watts_before

    @property
    def joules(self) -> Interval:
        """`joules_ratio` with its 80 % interval."""
        return interval_of(self.joules_ratio, self.joules_sigma)

    @property
    def saves(self) -> bool:
        """Whether nine times in ten the same work takes less energy."""
        return self.joules.p90 < 1.0

    @property
    def loss(self) -> float:
        """Expected slowdown, 0.05 for 5 %."""
        return max(self.prediction.median - 1.0, 0.0)

    @property
    def drawn_kwh_per_month(self) -> float:
        """What the work takes a month as it runs today."""
        return self.watts_before * self.work_hours * 3600.0 / JOULES_PER_KWH

    @property
    def kwh_per_month(self) -> float:
        """What it saves, for the same work."""
        return (1.0 - self.joules_ratio) * self.drawn_kwh_per_month


@dataclass(frozen=True, slots=True)
class Draw:
    """What one GPU draws. `watts`: mean at work under `limit_watts`, today's limit (infinite: unknown); `rest_watts`:
    with nothing to do. `peak_watts`: 95th percentile at work; None: not measured, and the mean stands for bursts.
    `hours_per_month`: GPU-hours of a group at work; 0: unknown."""

    watts: float
    rest_watts: float
    limit_watts: float = math.inf
    peak_watts: float | None = None
    hours_per_month: float = 0.0


def power_at_work(verdicts: Verdicts, group: Group, observed_hours: float) -> Draw | None:
    """What the group's workloads drew while they worked in so many hours; None: not measured, or they never did."""
    rows = verdicts.used(w.id for w in group.now)
    rows = rows.where((rows["bottleneck"] != "idle") & np.isfinite(rows.floats("power_watts")))
    drawn, seconds = rows.floats("power_watts"), rows.floats("seconds")
    over, mean = group.feature("power_over_idle"), group.feature("power_watts")
    if seconds.sum() <= 0 or not over or not mean:
        return None
    return Draw(
        watts=float(np.average(drawn, weights=seconds)),
        peak_watts=float(np.percentile(drawn, 95)),
        rest_watts=mean / over,
        hours_per_month=float(seconds.sum()) / 3600 / observed_hours * HOURS_PER_MONTH,
    )


def predict_clock(use: Use, phase: Phase, clock_share: float) -> Prediction | CodedText:
    """Time at `clock_share` of today's SM clock over time today."""
    if not LOWEST_SHARE <= clock_share <= 1.0:
        text = "no data on clocks below {lowest:.0%} of the current clock, or above it"
        return coded("clock-unknown", text, lowest=LOWEST_SHARE)
    if (refused := not_measured(use, "u_c", "u_m")) is not None:
        return refused
    ratio = time_ratio(use, phase, Factors(c=1.0 / clock_share, latency=1.0 / clock_share))
    return Prediction(ratio, sigma_at(clock_share), f"SM clock at {clock_share:.0%} of the current one")


def sigma_at(clock_share: float) -> float:
    """Of the log of the time ratio: the further from today's clock, the less is known. Assumed."""
    return max(0.05 * (1.0 - clock_share) / 0.25, 0.01)


def at_clock(time: Prediction, clock_share: float, draw: Draw, model: PowerModel) -> ClockMove:
    """Time and energy at a clock; `time` is what was predicted for it."""
    # Of the log of power at three quarters of the clock: one published point. Further down the line drawn through it
    # and a cube through the same point part by as much (0.47 and 0.57 of the power above rest at half the clock).
    sigma = math.hypot(time.sigma, 0.06 * (1.0 - clock_share) / 0.25)
    share = 1 - model.curve.follows + model.curve.follows * clock_share**model.curve.clock_exponent
    after = min(draw.watts, draw.rest_watts) + max(draw.watts - draw.rest_watts, 0.0) * max(share, 0.0)
    return ClockMove(clock_share, None, time, draw.watts, after, sigma, draw.hours_per_month)


def lower_clock(
    use: Use, phase: Phase, draw: Draw, model: PowerModel, *, most_loss: float = 0.05
) -> ClockMove | CodedText | None:
    """The lowest SM clock (in steps of 5 %) whose 90th percentile of slowdown stays within `most_loss` and that saves
    energy at the 90th percentile; None: no clock does both. Refused where its use was not measured."""
    best: ClockMove | None = None
    for percent in range(95, int(LOWEST_SHARE * 100) - 1, -round(_STEP * 100)):
        if isinstance(prediction := predict_clock(use, phase, percent / 100), CodedText):
            return prediction
        if prediction.interval.p90 > 1.0 + most_loss:
            break
        move = at_clock(prediction, percent / 100, draw, model)
        best = move if move.saves else best
    return best


def under_cap(
    curve: PowerCurve,
    *,
    watts: Array | float,
    rest_watts: Array | float,
    limit_watts: Array | float,
    cap_watts: Array,
    peak_watts: Array | float | None = None,
) -> Effect:
    """Of arrays of runs, or of one run under several caps (watts as in `Draw`). While kernels run, a cap leaves the
    clock at which they draw no more than it; they take longer by as much of their work as follows the clock. Host and
    kernels overlap, so a run that waits for its host loses little."""
    above = np.maximum(watts - rest_watts, _LEAST_ABOVE_WATTS)
    room = np.maximum(limit_watts - rest_watts, 2 * _LEAST_ABOVE_WATTS)
    at_work = above / np.clip(above / room, 1e-3, 1.0) ** curve.bursts
    if peak_watts is not None:
        at_work = np.maximum(at_work, peak_watts - rest_watts)
    busy = above / at_work

    def held(limit: Array | float) -> Array:
        """The lower of the draw at work and what a limit leaves above rest, softly."""
        most = np.maximum(curve.drawn_of_cap * limit - rest_watts, 2.0)
        return at_work / (1 + (at_work / most) ** _SHARPNESS) ** (1 / _SHARPNESS)

    # The run at today's limit may have been held by that already.
    drawn = np.minimum(held(cap_watts) / held(limit_watts), 1.0)
    free = np.maximum((drawn - 1 + curve.follows) / curve.follows, 1e-6)
    clock = np.clip(free ** (1 / curve.clock_exponent), 0.05, 1.0)
    slower = (1 - curve.clocked + curve.clocked * clock**-NORM) ** (1 / NORM)
    time = (1 - busy**curve.overlap + (busy * slower) ** curve.overlap) ** (1 / curve.overlap)
    joules = (rest_watts * time + above * drawn * slower) / (rest_watts + above)
    return Effect(clock, time, joules, joules * (rest_watts + above) / time)


def cap_range(sku: GpuSku, model: PowerModel) -> tuple[float, float]:
    """The caps of a GPU that can be predicted, in watts: from the lowest that its driver takes, or where that is not
    known from the lowest share that any run was measured under, to its rated power."""
    lowest_limit = sku.min_limit_watts
    return (model.lowest_cap_share * sku.tdp_watts if lowest_limit is None else lowest_limit), sku.tdp_watts


def predict_cap(sku: GpuSku, draw: Draw, cap_watts: float, model: PowerModel) -> ClockMove | CodedText:
    """Time, power and energy under a cap. Refused: caps outside the GPU's range, lower than any that was measured,
    without effect, and below the knee, where the same work takes more energy again."""
    low, high = cap_range(sku, model)
    if not low <= cap_watts <= high:
        text = "a cap of {cap_watts:.0f} W is outside the {low:.0f} to {high:.0f} W range of {sku}"
        return coded("cap-outside-range", text, cap_watts=cap_watts, low=low, high=high, sku=sku.name)
    if cap_watts < model.lowest_cap_share * draw.limit_watts:
        text = "a cap of {cap_watts:.0f} W is below {share:.0%} of the limit, the lowest cap with measurements"
        return coded("cap-too-low", text, cap_watts=cap_watts, share=model.lowest_cap_share)
    move, turn = weigh_cap(sku, draw, cap_watts, model), knee(sku, draw, model)
    if 1 - move.watts_after / draw.watts < 0.01:  # a cap that takes less of the power than this changes nothing
        text = "a cap of {cap_watts:.0f} W has no effect: the busy GPU draws {watts:.0f} W"
        return coded("cap-without-effect", text, cap_watts=cap_watts, watts=draw.watts)
    if turn is not None and cap_watts < turn:
        text = "a cap of {cap_watts:.0f} W uses more energy for the same work than {knee_watts:.0f} W, because the work"
        return coded("cap-below-knee", f"{text} takes longer", cap_watts=cap_watts, knee_watts=turn)
    return move


def weigh_cap(sku: GpuSku, draw: Draw, cap_watts: float, model: PowerModel) -> ClockMove:
    """As `predict_cap`, and nothing is refused."""
    effect = _effect(draw, np.array([cap_watts]), model)
    time, shown = float(effect.time[0]), model.measured(family(sku))
    sigma, joules_sigma = model.spread(time, family(sku))
    where = f"some on {sku.architecture}" if shown else f"none on {sku.architecture} (wider interval)"
    predicted = Prediction(
        time, sigma, f"power cap of {cap_watts:.0f} W; {model.made.lines} training runs under caps, {where}"
    )
    # A draw that is at rest already is taken a little above it: the watts are those that were measured.
    after, clock = draw.watts * float(effect.joules[0]) / time, float(effect.clock[0])
    return ClockMove(clock, cap_watts, predicted, draw.watts, after, joules_sigma, draw.hours_per_month, shown)


def knee(sku: GpuSku, draw: Draw, model: PowerModel) -> float | None:
    """The cap, in watts, below which the same work takes more energy again; None: below the predictable range."""
    low, high = cap_range(sku, model)
    low, high = max(low, model.lowest_cap_share * draw.limit_watts), min(high, draw.limit_watts)
    if low >= high:
        return None
    caps = np.arange(high, low - 1e-9, -0.01 * high)
    joules = _effect(draw, caps, model).joules
    at = int(np.argmin(joules))
    return float(caps[at]) if joules[-1] > joules[at] * (1 + 1e-6) else None


def best_cap(sku: GpuSku, draw: Draw, model: PowerModel, *, most_loss: float, most_loss_p90: float) -> ClockMove | None:
    """The cap to propose (in steps of 5 % of the rated power): what saves most energy at a low risk of being slower,
    else what saves most; None: no cap keeps `most_loss` of expected slowdown and `most_loss_p90` of its 90th percentile
    and saves energy at the 90th percentile, even where the GPU draws more at rest than was measured."""
    low, high = cap_range(sku, model)
    good: list[ClockMove] = []
    at_more_rest = replace(draw, rest_watts=REST_MARGIN * draw.rest_watts)
    for cap in np.arange(high - _STEP * high, low - 1e-9, -_STEP * high).tolist():
        prediction = predict_cap(sku, draw, cap, model)
        if (
            isinstance(prediction, CodedText)
            or prediction.loss > most_loss
            or prediction.prediction.interval.p90 > 1 + most_loss_p90
        ):
            continue
        if prediction.saves and weigh_cap(sku, at_more_rest, cap, model).saves:
            good.append(prediction)
    return min(good, key=lambda m: (m.prediction.risk not in COUNTED_RISKS, m.joules_ratio), default=None)


def _effect(draw: Draw, caps: Array, model: PowerModel) -> Effect:
    return under_cap(
        model.curve, watts=draw.watts, rest_watts=min(draw.rest_watts, draw.watts), limit_watts=draw.limit_watts,
        cap_watts=caps, peak_watts=draw.peak_watts,
    )  # fmt: skip
