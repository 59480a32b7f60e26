"""What a kind of recommendation is: how it is built, what it has to know, and how telemetry shows what became of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from ...rules.catalog.types import PowerPrice, Price
from ...rules.policy.latency_classes import LIMITS
from ..core.advice_types import Action, Interval, Realisation, Recommendation, Risk, SavingsBaseline
from ..core.coded_text import CodedText, all_of, coded
from ..core.formatting import MEASURES, dated, seconds_words, spread, usd
from ..core.ids import stable_id
from ..core.verdict_types import Latency
from ..core.worth import HOURS_PER_MONTH
from .fleet import DRAWS, Baseline, Fleet, Series
from .prediction import SAME_GPU, SIGMA_SAME, Array, Prediction, percentiles
from .pricing import cash_of
from .progress import MoveCost, MoveState, Observation, PredictionSnapshot, by_freed_nodes, by_nodes, cost_after

Fields = Mapping[str, Any]
SAME_SPEED = Prediction(1.0, SIGMA_SAME, SAME_GPU)
# Hours at the target after which a move is done, and at the source undone: load and count follow the day.
DONE_HOURS = 24.0
# Counts come and go by themselves: a change that was not accepted must have lasted a week, a week-end included.
WEEK_HOURS = 7 * 24.0


class Move(ABC):
    """One kind of recommendation, for labels of `advice_types.Action`. `subject`: of "... is not recommended". Done
    after `done_hours` at its target, where it was not asked for after `unasked_hours` (None: never). `by_absence`: seen
    by what is not there any more, so the whole fleet must be in sight. `frees`: its series holds less after it.
    `calibrates`: its measured time corrects the model here. `of_another`: its time is another's."""

    actions: ClassVar[tuple[Action, ...]]
    subject: ClassVar[str]
    done_hours: ClassVar[float] = DONE_HOURS
    unasked_hours: ClassVar[float | None] = DONE_HOURS
    by_absence: ClassVar[bool] = False
    frees: ClassVar[bool] = False
    calibrates: ClassVar[bool] = False
    of_another: ClassVar[bool] = False

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        """All of them in a fleet: of each of its series, where a kind rests on no other findings."""
        return chain.from_iterable(map(self.of, fleet.series))

    def of(self, series: Series) -> Iterator[Recommendation]:  # noqa: ARG002
        """Those of one series, with a finding or without."""
        return iter(())

    @abstractmethod
    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        """An action with its object. `of`: workload or nodes; `at`: `` on gpu-009``; `fields`: its changes."""

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:  # noqa: ARG002
        """Its state by what was observed; None: undecided. `proposed`: it is recommended there again."""
        return by_freed_nodes(snapshot, seen) if snapshot.series_id is None else by_nodes(snapshot, seen)

    def cost(self, snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
        """What its nodes cost since."""
        return cost_after(snapshot, state, seen)


@dataclass(frozen=True)
class Saving:
    """What a move saves a month: joint draws in US dollars, their prices, and the monthly cost they are taken off."""

    draws: Array
    prices: tuple[Price | None, ...]
    paid_usd: float | None
    realisation: Realisation
    date: str | None = None

    @classmethod
    def of_nodes(cls, price: Price | None, freed: int, at: float, draws: Array | float, paid: int) -> Saving | None:
        """What nodes bring that fall free, `draws` of `paid` ones; None: no cash. `at`: Unix seconds."""
        cash = cash_of(price, freed, at)
        if cash is None or price is None:
            return None
        month = price.usd_per_hour * HOURS_PER_MONTH
        return cls(np.full(DRAWS, draws, dtype=float) * month, (price,), paid * month, *cash)

    @cached_property
    def interval(self) -> Interval:
        return percentiles(self.draws)

    @property
    def sentence(self) -> str:
        """What the move saves or costs a month, with the price it rests on and when it is cash."""
        saved = self.interval.p50
        if saved <= 0:
            worse = f"Costs {usd(-saved)}/month more" if saved < 0 else "Saves nothing"
            return f"{worse}, {dated(self.prices)}."
        when = f" from {self.date}, when the commitment ends" if self.realisation == "cash-at" else ""
        return f"Saves {usd(saved)}/month{spread(self.interval)}{when}, {dated(self.prices)}."


def at_power_price(price: PowerPrice | None, saved_kwh: Array, drawn_kwh: float) -> tuple[Saving | None, str]:
    """What energy saved a month is worth to a team, and that as a sentence. `drawn_kwh`: what it is taken off."""
    if price is None:
        text = "No dollar value: rented nodes include power, and no price file sets a power price for other nodes."
        return None, text
    saving = Saving(saved_kwh * price.usd_per_kwh, (), drawn_kwh * price.usd_per_kwh, "energy")
    worth = f"{usd(saving.interval.p50)}/month{spread(saving.interval)}"
    return saving, f"Saves {worth} at the configured power price ({price.source}, {price.as_of})."


def recommend(
    action: Action,
    *identity: str | None,
    claims: Iterable[str],
    text: str,
    saving: Saving | None = None,
    realisation: Realisation = "capacity-freed",
    blocked_by: Iterable[CodedText] = (),
    yardstick: SavingsBaseline | None = None,
    **parts: Any,  # noqa: ANN401
) -> Recommendation:
    """A recommendation with its draws. `identity`: of its id, beside the action: owner, from and to where. `saving`:
    None: no dollars, and `realisation` says what it brings. `parts`: else empty."""
    measured = yardstick or SavingsBaseline()
    fields = {"findings": (), "workload": None, "time_ratio": None, "rejected": (), "freed_gpu_hours_per_month": 0.0}
    return Recommendation(
        id=stable_id("r", identity[0], action, *identity[1:]),
        action=action,
        saving_usd_per_month=saving and saving.interval,
        realisation=saving.realisation if saving else realisation,
        blocked_by=tuple(blocked_by),
        prices=tuple(p.id for p in saving.prices if p is not None) if saving else (),
        text=text.strip(),
        available_from=saving and saving.date,
        yardstick=replace(measured, usd_per_month=saving.paid_usd) if saving else measured,
        draws=saving and saving.draws,
        claims=tuple(claims),
        **fields | parts,
    )


def recommend_for(
    series: Series,
    action: Action,
    *to: str | None,
    place: str = "place",
    **parts: Any,  # noqa: ANN401
) -> Recommendation:
    """A recommendation about a series (as `recommend`). `place`: what of it the recommendation claims."""
    group, here = series.group, series.base.configuration
    defaults = {
        "findings": tuple(waste.finding.id for waste in series.asking(action)), "source": here, "target": here,
        "observed_hours": series.fleet.hours_of(group), "workload": group.lead.id,
        "claims": (f"{place}:{group.series_id}",),
    }  # fmt: skip
    return recommend(action, group.identity, group.lead.node_sku, *to, **defaults | parts)


# A move is slower from this median on: less is within what two runs of the same differ by.
SLOWER_FROM = 1.02
_STEPS: tuple[Risk, ...] = ("very-low", "low", "medium", "high")
# Their time ratio is of other work (a swap's is the training's), or of none.
_OF_OTHERS = frozenset({"swap-placement", "release", "schedule-off", "fix-first"})
# Of these the count is one of GPUs that carry the load; of slices it is the GPUs that hold them.
_COUNTED = frozenset({"move-sku", "reduce-gpus"})


@dataclass(frozen=True, slots=True)
class Slowdown:
    """What a move does to the time of a request. `time`: predicted time ratio of the work alone; `queue`: by how much
    waiting lengthens it (1: the load per GPU stays; infinite: they cannot keep up)."""

    time: Interval
    queue: float = 1.0

    @property
    def slower(self) -> bool:
        return self.time.p50 * self.queue > SLOWER_FROM

    @property
    def at_most(self) -> float:
        """The factor compared with limits: the 90th percentile of the prediction."""
        return self.time.p90 * self.queue


def held_to_class(r: Recommendation, base: Baseline) -> Recommendation:
    """The recommendation as the class of its service leaves it. `base`: of that service."""
    latency, fewer = base.group.lead.latency, r.action == "reduce-gpus"
    # What is blocked predicts no time; fewer of the same GPUs still are as risky as if it did.
    time = SAME_SPEED.interval if r.time_ratio is None and fewer else r.time_ratio
    if r.action in _OF_OTHERS or time is None or latency is None or not latency.limits:
        return r
    gpus = r.target.gpu_count if r.action in _COUNTED else None
    if (slowdown := slowdown_of(time, base, gpus)) is None:
        return r
    broken, said, measured = held_against(latency, slowdown)
    if broken:
        text = r.text if r.blocked_by else f"{r.text} Not recommended: {all_of(broken).text}."
        return replace(r, blocked_by=(*r.blocked_by, *broken), text=text)
    if not slowdown.slower:
        return r
    if not measured:
        # A move is credited beyond the right-sized present, and so is its risk; fewer GPUs carry their own.
        own_slowdown = slowdown if fewer else slowdown_of(time, base, gpus, held=base.right_gpus)
        r = replace(r, risk=raised_risk(r.risk)) if own_slowdown is not None and own_slowdown.slower else r
        missing = "the latency of its requests is not measured; scrape the engine's histograms of time to first "
        missing += "token and time per token first (serving_endpoints of the agent, or Prometheus)"
        measure = () if r.blocked_by else (coded("latency-not-measured", missing),)
        r = replace(r, would_change_if=(*r.would_change_if, *measure))
    return r if r.blocked_by else replace(r, text=f"{r.text} {said}")


def slowdown_of(time: Interval, base: Baseline, gpus: int | None, held: int | None = None) -> Slowdown | None:
    """What a move does to a service's requests; None: nothing that they feel. `gpus`: that carry the load then (None:
    as many as before); `held`: before (None: as many as today). A request takes its time alone over (1 - load)
    (processor sharing, M/G/1): an upper bound for several servers behind one queue."""
    same = time == SAME_SPEED.interval
    # The same GPU differs from itself by chance alone, which is in what was measured already.
    ratio = Interval(1.0, 1.0, 1.0) if same else time
    queue, before = 1.0, base.gpus if held is None else held
    if gpus is not None and 0 < gpus < before and base.demand is not None:
        load = base.demand * base.gpus
        now, then = load / before, load * ratio.p50 / gpus
        if then >= 1.0:
            queue = math.inf
        elif now < 1.0:
            queue = max((1.0 - now) / (1.0 - then), 1.0)
    return None if same and queue == 1.0 else Slowdown(ratio, queue)


def held_against(latency: Latency, slowdown: Slowdown) -> tuple[tuple[CodedText, ...], str, bool]:
    """What of its class a move is predicted to break (what is broken today only if it makes that slower), a sentence of
    how it is kept or what would show it, and whether all that the class limits was measured."""
    broken, kept, lacking, end = list[CodedText](), list[str](), list[str](), math.isinf(slowdown.queue)
    figures = {"first_token": latency.first_token, "output_token": latency.output_token}
    for key, (measure, share) in LIMITS.items():
        latency_figures, limit, name = figures[measure], latency.limits.get(key), MEASURES[measure]
        measured = latency_figures.at(share) if latency_figures is not None else None
        if limit is None or measured is None:
            lacking += [name] if limit is not None and name not in lacking else []
            continue
        predicted = measured * slowdown.at_most
        if predicted <= limit or (measured > limit and not slowdown.slower):
            kept.append(f"{name} {seconds_words(predicted)} of {seconds_words(limit)} at p{share * 100:.0f}")
            continue
        fields = {
            "class": latency.label, "measure": measure, "percentile": share, "measured_seconds": measured,
            "limit_seconds": limit, "time_ratio": slowdown.time.p90,
        }  # fmt: skip
        would, why = "grow without limit", ", because the remaining GPUs cannot keep up"
        if not end:
            would = f"reach up to {seconds_words(predicted)}"
            why = f" ({seconds_words(measured)} now, times {slowdown.at_most:.2f})"
            fields |= {"predicted_seconds": predicted, "queue_factor": slowdown.queue}
        text = (
            f"its {name} at p{share * 100:.0f} of the busy hours would {would}, above the {seconds_words(limit)} of "
            f"its latency class {latency.label}{why}"
        )
        broken.append(CodedText("latency-without-end" if end else "latency-class-broken", text, fields))
    said = f"Latency class {latency.label} is met: {', '.join(kept)}." if kept else ""
    if lacking:
        said = f"Risk: no prediction for its latency class {latency.label}. Scrape the engine's histogram of "
        said += f"{' and '.join(lacking)}."
    return tuple(broken), said, not lacking


def raised_risk(risk: Risk) -> Risk:
    """The risk one step higher; the highest stays."""
    return _STEPS[min(_STEPS.index(risk) + 1, len(_STEPS) - 1)]
