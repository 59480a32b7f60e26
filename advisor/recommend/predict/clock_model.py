"""The same GPU at a lower SM clock or under a power cap: what is lost in time and what is saved in energy. The SM clock
slows compute and latency only. A cap bites where the GPU draws more while its kernels run; below a knee the same work
takes more energy again. The curve is fitted on measured runs (rules/power_model.yaml, docs/method.md)."""

import math
from dataclasses import dataclass, replace

import numpy as np

from ....rules.catalog.types import GpuSku
from ....rules.models import Z90, PowerCurve, PowerModel, load_move_model, load_power_model, load_resting_power
from ...classify.types import Verdicts
from ...core.advice_types import COUNTED_RISKS, Interval
from ...core.coded_text import CodedText, coded
from ...core.energy_types import JOULES_PER_KWH
from ...core.worth import HOURS_PER_MONTH
from ..groups import Group
from ..prediction import NORM, Array, Factors, Phase, Prediction, Use, family, interval_of, not_measured, time_ratio
from .sku_comparison import Parts, Question, parts_of, profile_of

# Draw that is about to reach the cap is held a little already; this sharp, the loss at the cap itself is 4 %.
_SHARPNESS = 20.0
_LEAST_ABOVE_WATTS = 0.5  # a run that draws no more than rest
LOWEST_SHARE = 0.5  # there are no published figures below half the clock
# The measured power at rest may be too low by a fifth: what saves only then is not proposed.
REST_MARGIN = 1.25
_STEP = 0.05  # steps of caps and clocks, as shares


@dataclass(frozen=True, slots=True)
class Effect:
    """What a cap does to each run, over the same at today's limit: SM clock, time, joules. `watts`: mean draw."""

    clock: Array
    time: Array
    joules: Array
    watts: Array


@dataclass(frozen=True, slots=True)
class ClockMove:
    """One way to run the present GPU. `clock_share`: SM clock over today's; `cap_watts`: None for a lower clock. Watts
    are means of one GPU at work. `joules_sigma`: of the log of `joules_ratio`. `work_hours`: GPU-hours a month at work.
    `shown`: runs of this architecture stand behind it."""

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
    """Of arrays of runs, or of one run under several caps (watts as in `Draw`). A cap lowers the clock of kernels that
    draw more; they take longer by what of their work follows the clock. Host and kernels overlap."""
    above = np.maximum(watts - rest_watts, _LEAST_ABOVE_WATTS)
    room = np.maximum(limit_watts - rest_watts, 2 * _LEAST_ABOVE_WATTS)
    at_work = above / np.clip(above / room, 1e-3, 1.0) ** curve.bursts
    if peak_watts is not None:
        at_work = np.maximum(at_work, peak_watts - rest_watts)
    busy = above / at_work

    def held(limit: Array | float) -> Array:
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
    basis = f"power cap of {cap_watts:.0f} W; {model.made['lines']} training runs under caps, {where}"
    predicted = Prediction(time, sigma, basis)
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
    """The cap to propose (in steps of 5 % of the rated power): what saves most at a low risk of being slower, else what
    saves most; None: no cap keeps `most_loss` and `most_loss_p90` of slowdown and saves energy at the 90th percentile
    (with a margin of power at rest)."""
    low, high = cap_range(sku, model)
    good: list[ClockMove] = []
    at_more_rest = replace(draw, rest_watts=REST_MARGIN * draw.rest_watts)
    for cap in np.arange(high - _STEP * high, low - 1e-9, -_STEP * high).tolist():
        move = predict_cap(sku, draw, cap, model)
        if isinstance(move, CodedText) or move.loss > most_loss or move.prediction.interval.p90 > 1 + most_loss_p90:
            continue
        if move.saves and weigh_cap(sku, at_more_rest, cap, model).saves:
            good.append(move)
    return min(good, key=lambda m: (m.prediction.risk not in COUNTED_RISKS, m.joules_ratio), default=None)


def _effect(draw: Draw, caps: Array, model: PowerModel) -> Effect:
    return under_cap(
        model.curve, watts=draw.watts, rest_watts=min(draw.rest_watts, draw.watts), limit_watts=draw.limit_watts,
        cap_watts=caps, peak_watts=draw.peak_watts,
    )  # fmt: skip


FOLLOW = ("matrix", "vector", "latency")  # the parts that wait for the SM clock
# Share of the time by which the parts of one piece of work differ from the typical. Assumed.
SIGMA_PARTS = 0.15
_OUT_OF_RANGE = ("cap-outside-range", "cap-too-low")  # no prediction; other refusals only advise against


@dataclass(frozen=True, slots=True)
class SlowerGpu:
    """The same GPU under a cap or at a clock, over the same GPU as it is. Watts are of one GPU at work; `measured`:
    they were given. `unit`: of work ("output token") and its joules on all GPUs of a copy, today and then; None: none
    can be counted. `knee_watts`: the cap below which energy rises again. `blocked_by`: what advises against it."""

    time_ratio: Interval
    joules_ratio: Interval
    move: ClockMove
    measured: bool
    unit: tuple[str, float, float] | None
    knee_watts: float | None
    blocked_by: tuple[CodedText, ...]
    basis: str


def slower_gpu(
    question: Question,
    sku: GpuSku,
    reference: GpuSku,
    *,
    cap_watts: float | None = None,
    clock_hertz: float | None = None,
    watts: float | None = None,
) -> SlowerGpu | CodedText:
    """The answer under a cap, else at an SM clock. `reference`: the GPU that profiles describe; `watts`: what one
    GPU draws at work, where it was measured. Refused: a cap or a clock outside of what can be predicted."""
    model, rest = load_power_model(), rest_watts(sku)
    parts = parts_of(question, sku, reference, load_move_model())
    kind = profile_of(question) or question.phase

    def typical(off: float) -> float:
        share = model.typical[kind].share * math.exp(off * model.typical_sigma)
        return rest + min(share, 1.0) * max(sku.tdp_watts - rest, 0.0)

    middle = typical(0.0) if watts is None else watts
    turn, blocked = None, ()
    if cap_watts is not None:
        draw = Draw(middle, rest, sku.tdp_watts)
        if isinstance(prediction := predict_cap(sku, draw, cap_watts, model), CodedText):
            if prediction.code in _OUT_OF_RANGE:
                return prediction
            blocked = (prediction,)
        turn = knee(sku, draw, model)

        def weigh(at_work: float) -> ClockMove:
            return weigh_cap(sku, Draw(at_work, rest, sku.tdp_watts), cap_watts, model)

    else:
        if isinstance(time := _at_clock(question, sku, parts, clock_hertz or sku.boost_hertz), CodedText):
            return time
        share = (clock_hertz or sku.boost_hertz) / sku.boost_hertz

        def weigh(at_work: float) -> ClockMove:
            return at_clock(time, share, Draw(at_work, rest), model)

    move = weigh(middle)
    time_sigma, joules_sigma, basis = move.prediction.sigma, move.joules_sigma, move.prediction.basis
    if watts is None:
        # What the work draws is not known: the answer for little and for much of it are both in the interval.
        little, much = weigh(typical(-Z90)), weigh(typical(Z90))
        apart = abs(math.log(little.prediction.median / much.prediction.median)) / (2 * Z90)
        time_sigma = math.hypot(time_sigma, apart)
        joules_sigma = math.hypot(joules_sigma, abs(math.log(little.joules_ratio / much.joules_ratio)) / (2 * Z90))
        basis += f"; {middle:.0f} W while busy is typical of {kind}, not measured"
    time_ratio, joules = interval_of(move.prediction.median, time_sigma), interval_of(move.joules_ratio, joules_sigma)
    unit = _unit(question, parts, middle, move.joules_ratio)
    return SlowerGpu(time_ratio, joules, move, watts is not None, unit, turn, blocked, basis)


def rest_watts(sku: GpuSku) -> float:
    """Of a GPU with nothing to do but a context held: the middle of what is known."""
    resting = load_resting_power()
    resting_power, share = resting.gpus.get(sku.name), (resting.shares.low + resting.shares.high) / 2
    return share * sku.tdp_watts if resting_power is None else (resting_power.low + resting_power.high) / 2


def _at_clock(question: Question, sku: GpuSku, parts: Parts | None, hertz: float) -> Prediction | CodedText:
    """Time at an SM clock over time at the boost clock. Refused: clocks above that and below half of it."""
    low, high = LOWEST_SHARE * sku.boost_hertz, sku.boost_hertz
    if not low <= hertz <= high:
        text = "an SM clock of {mhz:.0f} MHz is outside the {low:.0f} to {high:.0f} MHz range of {sku}"
        return coded("sm-clock-outside-range", text, mhz=hertz / 1e6, low=low / 1e6, high=high / 1e6, sku=sku.name)
    if parts is None:
        text = "the catalog has no {precision} rate of {sku}"
        return coded("no-rate-at-precision", text, precision=question.precision, sku=sku.name)
    follow, longer = sum(parts.get(name, 0.0) for name in FOLLOW) / sum(parts.values()), sku.boost_hertz / hertz - 1.0
    sigma = math.hypot(sigma_at(hertz / sku.boost_hertz), SIGMA_PARTS * longer)
    basis = f"typical work, {follow:.0%} of it limited by the SM clock; power from one published point"
    return Prediction(1.0 + follow * longer, sigma, basis)


def _unit(question: Question, parts: Parts | None, watts: float, ratio: float) -> tuple[str, float, float] | None:
    """Joules a token of language models, or a request that is mostly prompt; None: the work has no unit, or trains."""
    if profile_of(question) is not None or parts is None:
        return None
    tokens_in, tokens_out = question.tokens
    name, count = ("output token", tokens_out) if tokens_out > 1 else ("input token", tokens_in)
    if question.phase == "prefill" and tokens_out > 1:
        name, count = "request", 1
    each = sum(parts.values()) * watts * question.gpus / max(count, 1)
    return name, each, each * ratio
