"""A question about one workload and its answer: what was chosen, now and then, and what blocks it."""

from __future__ import annotations

from dataclasses import dataclass

from ...rules.catalog.types import Price
from ..core.advice_types import Interval, Realisation, Recommendation, Risk
from ..core.coded_text import CodedText


@dataclass(frozen=True, slots=True)
class WhatIfChoice:
    """`node`: a name of the catalog, None: today's. `gpus`: None: as many as the demand needs, jobs as many as today.
    `profile`: a MIG instance for each GPU of today, by its name. `clock_share`: SM clock over today's.
    `usd_per_hour`: of one such node; None: what is known of its price.
    """

    node: str | None = None
    gpus: int | None = None
    profile: str | None = None
    clock_share: float = 1.0
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """Today, or then. `price`: of one node; `load`: 95th percentile over what the GPUs sustain; `watts`: mean of one
    GPU at work. None: not known. `usd_per_month` is what the nodes cost while they are held.
    """

    gpu: str | None
    node: str | None
    gpus: int
    nodes: int
    price: Price | None
    usd_per_month: float | None
    load: float | None
    watts: float | None


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """The result of a choice. `then` None: there is no prediction, and `missing` has the reason.

    `saving_usd_per_month`: cash; None: none can be claimed. `of_count_usd_per_month`: the part of its p50 that today's
    GPUs would save by their right-sized count alone. `energy_kwh_per_month`: what a lower clock saves. `blocked_by`:
    what forbids it; `missing`: what is not known; `notes`: what else should be said.
    """

    choice: WhatIfChoice
    today: Side
    then: Side | None
    time_ratio: Interval | None = None
    basis: str | None = None
    risk: Risk | None = None
    saving_usd_per_month: Interval | None = None
    of_count_usd_per_month: float | None = None
    realisation: Realisation = "capacity-freed"
    available_from: str | None = None
    freed_gpu_hours_per_month: float = 0.0
    energy_kwh_per_month: float | None = None
    blocked_by: tuple[CodedText, ...] = ()
    missing: tuple[CodedText, ...] = ()
    notes: tuple[CodedText, ...] = ()

    @property
    def open(self) -> bool:
        """Whether nothing is known to block it."""
        return not self.blocked_by and not self.missing

    @property
    def prices(self) -> tuple[Price, ...]:
        """The prices its dollars rest on, once each."""
        known = [side.price for side in (self.today, self.then) if side is not None and side.price is not None]
        return tuple({p.id: p for p in known}.values())

    def is_that(self, r: Recommendation) -> bool:
        """Whether a recommendation proposes this very change, so that a decision on it is one on this."""
        if self.then is None or self.choice.profile is not None or self.choice.clock_share != 1.0:
            return False
        moved = self.then.node != self.today.node
        if not moved and self.then.gpus == self.today.gpus:
            return False  # nothing is changed
        action = "move-sku" if moved else "reduce-gpus"
        same = (r.target.gpu_sku, r.target.node_sku, r.target.gpu_count) == (
            self.then.gpu,
            self.then.node,
            self.then.gpus,
        )
        return r.action == action and same
