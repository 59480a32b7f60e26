"""What a kind of recommendation is: how it is built, what it has to know, and how telemetry shows what became of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from ...rules.catalog.types import PowerPrice, Price
from ..core.advice_types import Action, Interval, Realisation, Recommendation, SavingsBaseline
from ..core.coded_text import CodedText
from ..core.formatting import dated, spread, usd
from ..core.ids import stable_id
from ..core.worth import HOURS_PER_MONTH
from .fleet import DRAWS, Fleet, Series
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
    """One kind of recommendation, for one or more labels of `advice_types.Action`. `subject`: of "... is not
    recommended". Done after `done_hours` at its target, where it was not asked for after `unasked_hours` (None: never).
    `by_absence`: seen by what is not there any more, so the whole fleet must be in sight. `frees`: its series holds
    less after it. `calibrates`: its measured time corrects the model here. `of_another`: its time is another
    series'."""

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
