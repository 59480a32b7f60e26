"""Typical work on one GPU under a power cap or at a lower SM clock, without telemetry: time, watts, joules.

Without a given power of the work, its class sets it (rules/power_model.yaml), within a wide interval. At a lower clock
matrix products, vector work and latency take longer by as much; memory and links do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ....rules.catalog.types import GpuSku
from ....rules.models.move_model import MoveModel
from ....rules.models.power_model import PowerModel
from ....rules.models.resting_power import RestingPowers
from ...core.advice_types import Interval
from ...core.coded_text import CodedText, coded
from ..prediction import Z90, Prediction, Refusal
from .clock_model import LOWEST_SHARE, ClockMove, Draw, at_clock, knee, outside_range, predict_cap, sigma_at, weigh_cap
from .typical_work import Question, parts_of, profile_of

FOLLOW = ("matrix", "vector", "latency")  # the parts that wait for the SM clock
# Share of the time by which the parts of one piece of work differ from the typical. Assumed.
SIGMA_PARTS = 0.15


@dataclass(frozen=True, slots=True)
class Tables:
    """What ships that this needs: the reference GPU, typical work, the model of power, rest by GPU."""

    reference: GpuSku
    moves: MoveModel
    power: PowerModel
    resting: RestingPowers


@dataclass(frozen=True, slots=True)
class UnitOfWork:
    """Joules of one `unit` ("output token") on all GPUs of a copy: today, and then."""

    unit: str
    joules_before: float
    joules_after: float


@dataclass(frozen=True, slots=True)
class SlowerGpu:
    """The same GPU under a cap or at a clock, over the same GPU as it is. Watts are of one GPU at work.

    `told`: whether `watts_before` was given and not taken from the class of work. `unit`: None where no unit of such
    work can be counted. `knee_watts`: the cap below which energy rises again; None: below what can be told, or a clock.
    """

    time_ratio: Interval
    joules_ratio: Interval
    watts_before: float
    watts_after: float
    told: bool
    clock_share: float
    unit: UnitOfWork | None
    knee_watts: float | None
    blocked_by: tuple[CodedText, ...]
    basis: str


def under_power_limit(
    question: Question, sku: GpuSku, tables: Tables, cap_watts: float, watts: float | None = None
) -> SlowerGpu | Refusal:
    """`watts`: what one GPU draws at work, where it was measured. Refused: a cap outside of what can be told."""
    rest = rest_watts(sku, tables.resting)

    def draw(at_work: float) -> Draw:
        return Draw(at_work, rest, sku.tdp_watts)

    middle = watts if watts is not None else _typical_watts(question, sku, tables, rest, 0.0)
    refused = outside_range(sku, draw(middle), cap_watts, tables.power)
    if refused is not None:
        return refused
    found = predict_cap(sku, draw(middle), cap_watts, tables.power)
    blocked = (found.reason,) if isinstance(found, Refusal) else ()

    def weighed(at_work: float) -> ClockMove:
        return weigh_cap(sku, draw(at_work), cap_watts, tables.power)

    turn = knee(sku, draw(middle), tables.power)
    return _answer(question, sku, tables, rest, watts, weighed, turn, blocked)


def at_sm_clock(
    question: Question, sku: GpuSku, tables: Tables, clock_hertz: float, watts: float | None = None
) -> SlowerGpu | Refusal:
    """`clock_hertz`: of the SMs, over the GPU's boost clock. Refused: clocks above that and below half of it."""
    low, high = LOWEST_SHARE * sku.boost_hertz, sku.boost_hertz
    if not low <= clock_hertz <= high:
        return Refusal(
            coded(
                "sm-clock-outside-range",
                "an SM clock of {mhz:.0f} MHz is outside the {low:.0f} to {high:.0f} MHz range of {sku}",
                mhz=clock_hertz / 1e6, low=low / 1e6, high=high / 1e6, sku=sku.name,
            )
        )  # fmt: skip
    parts = parts_of(question, sku, tables.reference, tables.moves)
    if parts is None:
        return Refusal(
            coded(
                "no-rate-at-precision", "the catalog has no {precision} rate of {sku}",
                precision=question.precision, sku=sku.name,
            )
        )  # fmt: skip
    share = clock_hertz / sku.boost_hertz
    total, follow = sum(parts.values()), sum(parts.get(name, 0.0) for name in FOLLOW)
    ratio = 1.0 + follow / total * (1.0 / share - 1.0)
    sigma = math.hypot(sigma_at(share), SIGMA_PARTS * (1.0 / share - 1.0))
    time = Prediction(
        ratio,
        sigma,
        f"typical work, {follow / total:.0%} of it limited by the SM clock; power from one published point",
    )
    rest = rest_watts(sku, tables.resting)

    def weighed(at_work: float) -> ClockMove:
        return at_clock(time, share, watts=at_work, idle_watts=rest, model=tables.power)

    return _answer(question, sku, tables, rest, watts, weighed, None, ())


def rest_watts(sku: GpuSku, resting: RestingPowers) -> float:
    """Of a GPU with nothing to do but a context held: the middle of what is known."""
    known = resting.gpus.get(sku.name)
    if known is not None:
        return (known.low_watts + known.high_watts) / 2
    return (resting.low_share + resting.high_share) / 2 * sku.tdp_watts


def _class_of(question: Question) -> str:
    """The class of work by which its draw is told."""
    return profile_of(question) or question.phase


def _typical_watts(question: Question, sku: GpuSku, tables: Tables, rest: float, off: float) -> float:
    """What such work draws on such a GPU, `off` standard deviations from the middle."""
    share = tables.power.typical[_class_of(question)] * math.exp(off * tables.power.typical_sigma)
    return rest + min(share, 1.0) * max(sku.tdp_watts - rest, 0.0)


def _answer(  # noqa: PLR0917
    question: Question,
    sku: GpuSku,
    tables: Tables,
    rest: float,
    watts: float | None,
    weighed: Callable[[float], ClockMove],
    turn: float | None,
    blocked: tuple[CodedText, ...],
) -> SlowerGpu:
    middle = watts if watts is not None else _typical_watts(question, sku, tables, rest, 0.0)
    move = weighed(middle)
    time_sigma, joules_sigma = move.prediction.sigma, move.joules_sigma
    basis = move.prediction.basis
    if watts is None:
        # What the work draws is not known: the answer for little and for much of it are both in the interval.
        little, much = (weighed(_typical_watts(question, sku, tables, rest, off)) for off in (-Z90, Z90))
        time_sigma = math.hypot(time_sigma, _apart(little.prediction.median, much.prediction.median))
        joules_sigma = math.hypot(joules_sigma, _apart(little.joules_ratio, much.joules_ratio))
        basis += f"; {middle:.0f} W while busy is typical of {_class_of(question)}, not measured"
    return SlowerGpu(
        time_ratio=_interval(move.prediction.median, time_sigma),
        joules_ratio=_interval(move.joules_ratio, joules_sigma),
        watts_before=move.watts_before,
        watts_after=move.watts_after,
        told=watts is not None,
        clock_share=move.clock_share,
        unit=_unit(question, sku, tables, middle, move.joules_ratio),
        knee_watts=turn,
        blocked_by=blocked,
        basis=basis,
    )


def _apart(one: float, other: float) -> float:
    return abs(math.log(one / other)) / (2 * Z90)


def _interval(median: float, sigma: float) -> Interval:
    spread = math.exp(Z90 * sigma)
    return Interval(median / spread, median, median * spread)


def _unit(question: Question, sku: GpuSku, tables: Tables, watts: float, ratio: float) -> UnitOfWork | None:
    """Joules a token of language models, or a request that is mostly prompt; None for other work and for training,
    whose times are unknown."""
    parts = parts_of(question, sku, tables.reference, tables.moves)
    if profile_of(question) is not None or parts is None:
        return None
    tokens_in, tokens_out = question.tokens
    name, count = ("output token", tokens_out) if tokens_out > 1 else ("input token", tokens_in)
    if question.phase == "prefill" and tokens_out > 1:
        name, count = "request", 1
    each = sum(parts.values()) * watts * question.gpus / max(count, 1)
    return UnitOfWork(name, each, each * ratio)
