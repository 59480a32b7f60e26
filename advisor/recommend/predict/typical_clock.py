"""Typical work on one GPU under a power cap or at a lower SM clock, without telemetry: time, watts, joules. Without a
given power of the work, its class sets it (rules/power_model.yaml), within a wide interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....rules.catalog.types import GpuSku
from ....rules.models import load_move_model, load_power_model, load_resting_power
from ...core.advice_types import Interval
from ...core.coded_text import CodedText, coded
from ..prediction import Z90, Prediction, interval_of
from .clock_model import LOWEST_SHARE, ClockMove, Draw, at_clock, knee, predict_cap, sigma_at, weigh_cap
from .typical_work import Parts, Question, parts_of, profile_of

FOLLOW = ("matrix", "vector", "latency")  # the parts that wait for the SM clock
# Share of the time by which the parts of one piece of work differ from the typical. Assumed.
SIGMA_PARTS = 0.15
_OUT_OF_RANGE = ("cap-outside-range", "cap-too-low")  # no prediction; other refusals only advise against


@dataclass(frozen=True, slots=True)
class SlowerGpu:
    """The same GPU under a cap or at a clock, over the same GPU as it is. Watts are of one GPU at work; `measured`:
    whether they were given. `unit`: of work ("output token") and its joules on all GPUs of a copy, today and then;
    None: no unit can be counted. `knee_watts`: the cap below which energy rises again. `blocked_by`: what advises
    against it."""

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
        """What such work draws on such a GPU, `off` standard deviations from the middle."""
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
    return share * sku.tdp_watts if resting_power is None else (resting_power.watts.low + resting_power.watts.high) / 2


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
    return Prediction(
        1.0 + follow * longer,
        math.hypot(sigma_at(hertz / sku.boost_hertz), SIGMA_PARTS * longer),
        f"typical work, {follow:.0%} of it limited by the SM clock; power from one published point",
    )


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
