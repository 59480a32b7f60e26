"""What if: one workload on a node, count, slice, clock and price that somebody chose, by the recommendations' model."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...rules.catalog.types import GpuSku, NodeSku, Price
from ...rules.models import load_power_model
from ..core.advice_types import Configuration, Interval, Realisation, Recommendation, Risk
from ..core.coded_text import CodedText, Scalar, coded
from ..core.energy_types import JOULES_PER_KWH
from ..core.timestamps import day
from ..core.worth import HOURS_PER_MONTH
from .constraints import NODES_MIXED, NODES_SHARED, fewer_gpus_gates, gates
from .fleet import DRAWS, Baseline, Fleet, load_words, nodes_for
from .move import SAME_SPEED, Saving, held_against, slowdown_of
from .moves.fewer_gpus import fitting, per_gpu
from .moves.move_sku import ELSEWHERE, job_hours, link_of, no_figures, paid_on_top
from .predict.clock_model import Draw, at_clock, predict_clock
from .predict.mig_model import INSTANCE_BUSY, SliceFit
from .prediction import SAME_GPU, Array, Factors, Phase, Prediction, Use, not_measured, time_ratio
from .pricing import cash_of
from .rules.oversized import worth_words

SEED = 20


@dataclass(frozen=True, slots=True)
class WhatIfChoice:
    """`node`: a name of the catalog, None: today's. `gpus`: None: as many as the demand needs, jobs as many as today.
    `profile`: a MIG instance for each GPU. `usd_per_hour`: of one such node; None: what is known."""

    node: str | None = None
    gpus: int | None = None
    profile: str | None = None
    clock_share: float = 1.0
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """Today, or then. `price`: of one node, `usd_per_month`: of all; `load`: 95th percentile; `watts`: of one GPU."""

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
    """The result of a choice. `then` None: there is no prediction. `saving_usd_per_month`: cash; None: none can be
    claimed; `of_count_...`: the part of its p50 that right-sizing today's GPUs alone would save."""

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
    blocked_by: tuple[CodedText, ...] = ()
    missing: tuple[CodedText, ...] = ()
    notes: tuple[CodedText, ...] = ()

    @property
    def open(self) -> bool:
        return not self.blocked_by and not self.missing

    @property
    def prices(self) -> tuple[Price, ...]:
        """The prices its dollars rest on, once each."""
        prices = [side.price for side in (self.today, self.then) if side is not None and side.price is not None]
        return tuple({p.id: p for p in prices}.values())

    def is_that(self, r: Recommendation) -> bool:
        """Whether a recommendation proposes this very change, so that a decision on it is one on this."""
        now, then = self.today, self.then
        if then is None or self.choice.profile is not None or self.choice.clock_share != 1.0:
            return False
        changed = then.node != now.node or then.gpus != now.gpus
        action = "reduce-gpus" if then.node == now.node else "move-sku"
        return changed and r.action == action and r.target == Configuration(then.gpu, then.node, then.gpus)


def what_if(fleet: Fleet, base: Baseline, choice: WhatIfChoice, drawn: Draw | None = None) -> WhatIfResult:
    """Evaluate a choice for the group of `base`. `drawn`: what its GPUs draw, for the clock; None: not measured."""
    return _Evaluation(fleet, base, choice, drawn).result()


def survey(fleet: Fleet, base: Baseline, nodes: Iterable[NodeSku]) -> tuple[WhatIfResult, ...]:
    """Each of these nodes, as if it alone were chosen: what is open and saves most first, unknown last."""

    def rank(result: WhatIfResult) -> tuple[bool, bool, float, str]:
        saving = result.saving_usd_per_month
        return not result.open, result.then is None, -saving.p50 if saving else math.inf, result.choice.node or ""

    return tuple(sorted((what_if(fleet, base, WhatIfChoice(node.name)) for node in nodes), key=rank))


def predict_count(use: Use, phase: Phase, here: int, there: int) -> Prediction | CodedText:
    """Time on `there` of the same GPUs over time on `here`, for work that is one unit on all of them (a job, a
    replica): compute and memory by here/there, traffic as in a ring all-reduce, 2 (N - 1) / N of the bytes."""
    if refused := not_measured(use, "u_c", "u_m", "u_n", "u_i", "u_p"):
        return refused
    if here == 1:
        return coded("exchange-not-seen", "one GPU does not show the traffic between several")
    each, ring = here / there, (1 - 1 / there) / (1 - 1 / here)
    ratio = time_ratio(use, phase, Factors(c=each, m=each, p=each, n=ring, i=ring))
    return Prediction(ratio, 0.40, "parallelism changes; benchmark first")  # assumed (docs/method.md)


class _Evaluation:
    """One choice during its calculation: the time so far and its GPUs, what blocks it and what is missing."""

    def __init__(self, fleet: Fleet, base: Baseline, choice: WhatIfChoice, drawn: Draw | None) -> None:
        self.fleet, self.base, self.choice, self.drawn = fleet, base, choice, drawn
        self.source, self.time, self.gpus = fleet.gpu_of(base.group), SAME_SPEED, base.gpus
        self.jobs = base.group.phase == "training"
        # Hours a month in which the nodes are held, at today's speed.
        self.hours = job_hours(fleet, base) if self.jobs else HOURS_PER_MONTH
        # Whether the nodes are those of today, and the node then; None: the catalog does not know it.
        self.stays = choice.node is None or choice.node == base.group.lead.node_sku
        self.target = base.sku if self.stays else fleet.catalog.node(choice.node or "")
        self.blocked, self.missing, self.notes = list[CodedText](), list[CodedText](), list[CodedText]()
        self.rng = np.random.default_rng(SEED)

    def result(self) -> WhatIfResult:
        base, lead, gpu = self.base, self.base.group.lead, self._moved()
        then, answer = (None, {}) if gpu is None else self._then(gpu)
        today = Side(
            lead.gpu_sku, lead.node_sku, base.gpus, base.nodes, base.price, base.month_usd(base.nodes, self.hours),
            base.demand, None if self.drawn is None else self.drawn.watts,
        )  # fmt: skip
        blocked, missing, notes = (tuple(dict.fromkeys(said)) for said in (self.blocked, self.missing, self.notes))
        return WhatIfResult(self.choice, today, then, blocked_by=blocked, missing=missing, notes=notes, **answer)

    def _then(self, gpu: GpuSku) -> tuple[Side, dict[str, Any]]:
        base, same = self.base, self.source is not None and gpu.name == self.source.name
        fit = self._slice(gpu, same)
        watts = self._clock(same and self.choice.profile is None)
        self._count(same, fit)
        per_node = base.gpus_per_node if self.stays or self.target is None else self.target.gpu_count
        nodes, price, time = int(nodes_for(self.gpus, per_node)), self._price(), self.time
        longer, name = time.median if self.jobs else 1.0, self.target.name if self.target else base.group.lead.node_sku
        month = None if price is None else nodes * price.usd_per_hour * self.hours * longer
        then = Side(gpu.name, name, self.gpus, nodes, price, month, self._load(fit), watts)
        saving = self._cash(then, self._nodes_drawn(per_node, fit))
        self._held_to_class()
        answer: dict[str, Any] = {"time_ratio": time.interval, "basis": time.basis, "risk": time.risk}
        if self.stays and not self.jobs:
            answer["freed_gpu_hours_per_month"] = max(base.gpus - self.gpus, 0) * HOURS_PER_MONTH
        if saving is not None and base.price is not None:
            spared = base.nodes - float(np.median(base.right_nodes_draws))
            answer |= {
                "saving_usd_per_month": saving.interval, "realisation": saving.realisation,
                "available_from": saving.date,
                "of_count_usd_per_month": spared * base.price.usd_per_hour * self.hours,
            }  # fmt: skip
        return then, answer

    def _lacks(self, code: str, text: str, /, **fields: Scalar) -> None:
        self.missing.append(coded(code, text, **fields))

    def _also(self, prediction: Prediction | CodedText, code: str, what: str, **fields: Scalar) -> bool:
        """Whether there is a further prediction, which the time holds then; else `missing` says why there is none."""
        if isinstance(prediction, CodedText):
            values = {**fields, "because": prediction.code, **prediction.fields}
            self.missing.append(CodedText(code, f"no prediction{what}: {prediction}", values))
            return False
        before, self.time = self.time, prediction
        if before.basis != SAME_GPU:  # ratios multiply, and their errors are taken to be independent
            sigma = math.hypot(before.sigma, prediction.sigma)
            self.time = Prediction(before.median * prediction.median, sigma, f"{before.basis}; {prediction.basis}")
        return True

    def _moved(self) -> GpuSku | None:
        group, source, gpu = self.base.group, self.source, None
        if source is None or not group.nodes:
            self._lacks("gpus-not-in-catalog", "the catalog has no data for its GPUs, or its nodes are unknown")
        elif self.stays:
            gpu = source
        elif self.target is None:
            self._lacks("node-not-in-catalog", "the catalog has no node {node}", node=self.choice.node)
        elif (gpu := self.fleet.catalog.gpu(self.target.gpu)) is None:
            self.missing.append(no_figures(self.target.gpu))
        else:
            self.blocked += gates(group, source, self.base.sku, gpu, self.target)
            if self.target.provider != group.nodes[0].provider:
                text = "Different provider: {terms} not included."
                self.notes.append(coded("another-provider", text, terms=ELSEWHERE))
        if source is None or gpu is None:
            return None
        prediction = self.fleet.predicted(source, gpu, group, (link_of(self.base.sku), link_of(self.target)))
        return gpu if self._also(prediction, "no-prediction", "") else None

    def _slice(self, gpu: GpuSku, same: bool) -> SliceFit | None:
        asked = self.choice.profile
        if asked is None:
            return None
        fits = fitting(self.source, self.base.group, self.base.headroom) if same else ()
        if (fit := next((slice_fit for slice_fit in fits if slice_fit.name == asked), None)) is not None:
            self.blocked += [why for why in fit.blocked_by if why.code != INSTANCE_BUSY]  # the load is shown separately
            if fit.prediction is not None:
                self._also(fit.prediction, "", "")
        else:
            text = "{instance} of {gpu} is no slice of the catalog, or a replica has no one whole GPU of this model"
            self._lacks("slice-unknown", f"no prediction: {text}", instance=asked, gpu=gpu.name)
        return fit

    def _clock(self, whole: bool) -> float | None:
        """Watts of a GPU at work at the chosen clock; None: not known. `whole`: GPUs of the current model."""
        share, group, drawn = self.choice.clock_share, self.base.group, self.drawn
        if share == 1.0:
            return drawn.watts if drawn is not None and whole else None
        if not whole:
            text = "clocks are predicted only for whole GPUs of the current model; choose those, or the full clock"
            self._lacks("clock-of-another-gpu", text)
            return None
        prediction = predict_clock(group.use, group.phase, share)
        if not self._also(prediction, "no-prediction-at-clock", " at this clock") or isinstance(prediction, CodedText):
            return None
        if drawn is None:
            self._lacks("power-not-measured", "savings of a lower clock unknown: no data on busy power")
            return None
        move = at_clock(prediction, share, drawn, load_power_model())
        kwh, joules = move.kwh_per_month, {"joules_per_month": move.kwh_per_month * JOULES_PER_KWH}
        worth = worth_words(self.fleet.book, group, kwh)
        self.notes.append(CodedText("clock-saves", f"The clock saves {kwh:,.0f} kWh/month, {worth}.", joules))
        return move.watts_after

    def _count(self, same: bool, fit: SliceFit | None) -> None:
        base, gpus = self.base, self.choice.gpus or self.base.gpus
        if fit is not None:
            self.gpus = math.ceil(gpus / per_gpu(fit))
            return
        if self.jobs:
            if gpus != base.gpus:
                prediction = predict_count(base.group.use, base.group.phase, base.gpus, gpus)
                self._also(prediction, "no-prediction-for-count", f" for {gpus} GPUs", gpus=gpus)
        elif self.choice.gpus is not None:
            if gpus < base.gpus and same:
                self.blocked += fewer_gpus_gates(base.group, gpus)
        elif base.demand is None:
            self._lacks("count-unknown", "required GPU count unknown: no demand data")
        elif self.time.basis == SAME_GPU:
            gpus = base.right_gpus
        else:
            needed = int(base.gpus_needed(np.array([base.demand * self.time.median]))[0])
            gpus = min(needed, base.gpus) if self.stays else needed  # more of today's only where it was asked for
        if not self.jobs and gpus != base.gpus and gpus < base.floor:
            self.blocked.append(coded("below-least-gpus", "the service needs at least {gpus} GPUs", gpus=base.floor))
        self.gpus = gpus

    def _load(self, fit: SliceFit | None) -> float | None:
        base, most = self.base, self.base.headroom
        if self.jobs or base.demand is None:
            return None
        load = base.demand * base.gpus * self.time.median / self.gpus
        if fit is not None:
            load = fit.load * base.gpus / (self.choice.gpus or base.gpus)
        # Whole GPUs are counted for the headroom; only a count, a slice or a clock that was chosen can exceed it.
        if load > most + 1e-9 and load > base.demand + 1e-9:
            would = f"{load_words(load)} of what they sustain (limit {load_words(most)})"
            text = f"the 95th percentile of load would be {would}"
            self.blocked.append(CodedText("overloaded", text, {"load": load, "headroom": most}))
        return load

    def _nodes_drawn(self, per_node: int, fit: SliceFit | None) -> Array:
        base, same = self.base, self.time.basis == SAME_GPU
        if self.jobs or self.choice.gpus is not None or fit is not None or base.demand is None:
            return np.full(DRAWS, float(nodes_for(self.gpus, per_node)))
        if same and per_node == base.gpus_per_node:
            return base.right_nodes_draws
        ratio = 1.0 if same else self.time.draw(self.rng, DRAWS)
        drawn = nodes_for(base.gpus_needed(base.demand_draws * ratio), per_node)
        return np.minimum(drawn, base.nodes) if self.stays else drawn

    def _price(self) -> Price | None:
        base, target, node = self.base, self.target, self.base.group.nodes[0]
        price = base.price if self.stays else self.fleet.book.beside(node, target.name) if target else None
        if price is None and target is not None and target.provider != node.provider:
            price = min(target.prices, key=lambda p: (p.usd_per_hour, p.region), default=None)
        if (usd := self.choice.usd_per_hour) is not None:
            sku = target.name if target is not None else base.group.lead.node_sku or "node"
            region = price.region if price is not None else node.region or "any region"
            return Price(f"chosen:{sku}", sku, region, usd, "chosen", "entered here", day(self.fleet.at))
        if price is None:
            where = f" in {node.region}" if node.region and not self.stays else ""
            what = f"{target.name if target else 'its nodes'}{where}"
            self._lacks("price-unknown", "no price for {what}; set one", what=what)
        return price

    def _cash(self, then: Side, nodes_drawn: Array) -> Saving | None:
        """Saving against what is paid today, and when it is cash; None: none can be claimed, and why is noted."""
        base = self.base
        if base.price is None and not self.stays:
            self._lacks("todays-price-unknown", "no price for the current nodes, so no comparison")
        if base.price is None or then.price is None:
            return None
        left = base.nodes if not self.stays or self.choice.usd_per_hour is not None else base.nodes - then.nodes
        whole = max(left, 0) if base.whole and not base.mixed else 0
        if (cash := cash_of(base.price, whole, self.fleet.at)) is not None:
            longer = self.time.draw(self.rng, DRAWS) if self.jobs and self.time.basis != SAME_GPU else np.ones(DRAWS)
            here = base.nodes * base.price.usd_per_hour
            draws = (here - nodes_drawn * then.price.usd_per_hour * longer) * self.hours
            return Saving(draws, (base.price, then.price), here * self.hours, *cash)
        if self.stays and then.nodes >= base.nodes:
            return None  # nothing becomes free, and nothing was expected to
        if self.stays and base.whole and not base.mixed:
            text = "The current nodes are {basis}: freed nodes are capacity, not cash."
            self.notes.append(coded("capacity-no-cash", text, basis=base.price.basis))
        else:
            self.blocked.append(NODES_MIXED if base.mixed else paid_on_top(base) if base.whole else NODES_SHARED)
        return None

    def _held_to_class(self) -> None:
        latency, gpus = self.base.group.lead.latency, self.gpus if self.choice.profile is None else None
        if latency is None or not latency.limits:
            return
        if (slowdown := slowdown_of(self.time.interval, self.base, gpus)) is None:
            return
        broken, said, measured = held_against(latency, slowdown)
        self.blocked += broken
        if slowdown.slower and not broken:
            self.notes.append(coded("latency-kept" if measured else "latency-in-question", "{said}", said=said))
