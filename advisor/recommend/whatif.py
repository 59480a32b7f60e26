"""What if: one workload on a node, a count, a slice, a clock and a price that somebody chose.

The same model as the recommendations, without a finding. Where there is none because something forbids the move, this
answers as far as it can and names what blocks it; where a figure is missing, it names the figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...rules.catalog.types import GpuSku, NodeSku, Price
from ...rules.models.power_model import load_power_model
from ..core.coded_text import CodedText, Scalar, coded
from ..core.timestamps import day
from .constraints import NODES_MIXED, NODES_SHARED, fewer_gpus_gates, gates
from .finding_context import ClockChange
from .fleet_context import Saving
from .groups import HOURS_PER_MONTH
from .market import ELSEWHERE
from .move_context import DRAWS, Baseline, MoveContext, gpus_needed, load_words, nodes_for
from .moves.mig_slice import fitting, per_gpu
from .moves.move_sku import paid_on_top
from .other_nodes import job_hours, link_of, no_figures
from .predict.clock_model import PowerAtWork, at_clock, predict_clock
from .predict.gpu_count_model import predict_count
from .predict.mig_model import INSTANCE_BUSY, SliceFit
from .prediction import SAME_GPU, Array, Link, Prediction, Refusal
from .pricing import cash_of
from .rules.energy import worth_words
from .whatif_latency import with_latency
from .whatif_result import Side, WhatIfChoice, WhatIfResult

SEED = 20
Predicted = MutableMapping[tuple[str, Link], Prediction | Refusal]


def what_if(
    scene: MoveContext,
    base: Baseline,
    choice: WhatIfChoice,
    drawn: PowerAtWork | None = None,
    predicted: Predicted | None = None,
) -> WhatIfResult:
    """Reckon a choice for the group of `base` (`scene`: of that group). The same choice has the same answer.

    `drawn`: what its GPUs draw, for the clock; None: not measured. `predicted`: what is known already of a GPU behind a
    link, kept from one node to the next.
    """
    told = _Reckoning(scene, base, choice, drawn, predicted if predicted is not None else {}).outcome()
    return with_latency(told, base)


def survey(scene: MoveContext, base: Baseline, nodes: Iterable[NodeSku]) -> tuple[WhatIfResult, ...]:
    """Each of these nodes, as if it alone were chosen: what is open and saves most first, unknown last."""
    predicted: dict[tuple[str, Link], Prediction | Refusal] = {}
    found = [what_if(scene, base, WhatIfChoice(node.name), predicted=predicted) for node in nodes]

    def rank(o: WhatIfResult) -> tuple[bool, bool, float, str]:
        saving = o.saving_usd_per_month.p50 if o.saving_usd_per_month is not None else -math.inf
        return (not o.open, o.then is None, -saving, o.choice.node or "")

    return tuple(sorted(found, key=rank))


@dataclass
class _Reckoning:
    """One choice during its calculation: collects what blocks it and what is missing."""

    scene: MoveContext
    base: Baseline
    choice: WhatIfChoice
    drawn: PowerAtWork | None
    predicted: Predicted
    blocked: list[CodedText] = field(default_factory=list)
    missing: list[CodedText] = field(default_factory=list)
    notes: list[CodedText] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))

    @property
    def jobs(self) -> bool:
        return self.base.group.phase == "training"

    @cached_property
    def hours(self) -> float:
        """Hours a month in which the nodes are held, at today's speed."""
        return job_hours(self.scene, self.base) if self.jobs else HOURS_PER_MONTH

    @cached_property
    def source(self) -> GpuSku | None:
        name = self.base.group.lead.gpu_sku
        return self.scene.catalog.gpu(name) if name else None

    @cached_property
    def stays(self) -> bool:
        """Whether the nodes are those of today."""
        return self.choice.node is None or self.choice.node == self.base.group.lead.node_sku

    @cached_property
    def target(self) -> NodeSku | None:
        """The node then; None: today's is not known to the catalog."""
        return self.base.sku if self.stays else self.scene.catalog.node(self.choice.node or "")

    def outcome(self) -> WhatIfResult:
        source, gpu = self.source, self._gpu()
        time = self._moved(source, gpu) if source is not None and gpu is not None else None
        if isinstance(time, Refusal):
            self.missing.append(CodedText("no-prediction", f"no prediction: {time.reason}", _because(time)))
        if source is None or gpu is None or time is None or isinstance(time, Refusal):
            return self._ended(None, None)
        time, fit = self._sliced(source, gpu, time)
        time, energy, watts = self._clocked(source, gpu, time)
        gpus = self._count(time, fit)
        time = self._counted(source, gpu, time, gpus, fit)
        per_node = self.base.gpus_per_node if self.stays or self.target is None else self.target.gpu_count
        nodes, price = int(nodes_for(gpus, per_node)), self._price()
        longer = time.median if self.jobs else 1.0
        then = Side(
            gpu.name, self.target.name if self.target is not None else self.base.group.lead.node_sku, gpus, nodes,
            price, None if price is None else nodes * price.usd_per_hour * self.hours * longer,
            self._load(time, gpus, fit), watts,
        )  # fmt: skip
        return self._ended(then, time, energy, self._nodes_drawn(time, gpus, per_node, fit))

    def _gpu(self) -> GpuSku | None:
        """The GPU then; None: it is not known, and `missing` says so."""
        if self.source is None:
            self.missing.append(coded("gpus-not-in-catalog", "the catalog has no data for its GPUs"))
        elif not self.base.group.nodes:
            self.missing.append(coded("nodes-unknown", "its nodes are unknown"))
        elif self.stays:
            return self.source
        elif self.target is None:
            self.missing.append(coded("node-not-in-catalog", "the catalog has no node {node}", node=self.choice.node))
        else:
            gpu = self.scene.catalog.gpu(self.target.gpu)
            if gpu is None:
                self.missing.append(no_figures(self.target.gpu))
            return gpu
        return None

    def _moved(self, source: GpuSku, gpu: GpuSku) -> Prediction | Refusal:
        group, link = self.base.group, link_of(self.target)
        if not self.stays and self.target is not None:
            self.blocked += gates(group, source, self.base.sku, gpu, self.target)
            if self.target.provider != group.nodes[0].provider:
                self.notes.append(
                    coded("another-provider", "Different provider: {terms} not included.", terms=ELSEWHERE)
                )
        key = gpu.name, link
        if key not in self.predicted:
            self.predicted[key] = self.scene.predicted(source, gpu, group, (link_of(self.base.sku), link))
        return self.predicted[key]

    def _sliced(self, source: GpuSku, gpu: GpuSku, time: Prediction) -> tuple[Prediction, SliceFit | None]:
        asked, group = self.choice.profile, self.base.group
        if asked is None:
            return time, None
        fits = fitting(source, group, self.scene.headroom) if gpu.name == source.name else ()
        fit = next((one for one in fits if one.name == asked), None)
        if fit is not None:
            self.blocked += [why for why in fit.blocked_by if why.code != INSTANCE_BUSY]  # the load is told by itself
            return (time if fit.prediction is None else _both(time, fit.prediction)), fit
        if gpu.name != source.name:
            why = coded(
                "slice-of-another-gpu", "no prediction for a slice of {gpu} from whole {today}; choose the same GPU",
                gpu=gpu.name, today=source.name,
            )  # fmt: skip
        elif group.shared:
            why = coded(
                "slice-of-shared-gpu", "its GPUs are shared; slices are predicted only for work with a whole GPU"
            )
        elif group.gpus_per_replica != 1:
            why = coded(
                "slice-of-larger-replica", "slices are predicted only for replicas of one GPU; these have {gpus}",
                gpus=group.gpus_per_replica,
            )  # fmt: skip
        else:
            why = coded(
                "no-such-instance", "the catalog has no instance {instance} of {gpu}", instance=asked, gpu=source.name
            )
        self.missing.append(why)
        return time, None

    def _clocked(self, source: GpuSku, gpu: GpuSku, time: Prediction) -> tuple[Prediction, float | None, float | None]:
        """With the clock: time, kWh a month saved, watts of a GPU at work."""
        share, group, drawn = self.choice.clock_share, self.base.group, self.drawn
        if share == 1.0:
            whole = gpu.name == source.name and self.choice.profile is None
            return time, None, drawn.watts if drawn is not None and whole else None
        if gpu.name != source.name or self.choice.profile is not None:
            self.missing.append(
                coded(
                    "clock-of-another-gpu",
                    "clocks are predicted only for whole GPUs of the current model; choose those, or the full clock",
                )
            )
            return time, None, None
        found = predict_clock(group.use, group.phase, share)
        if isinstance(found, Refusal):
            self.missing.append(
                CodedText("no-prediction-at-clock", f"no prediction at this clock: {found.reason}", _because(found))
            )
            return time, None, None
        if drawn is None:
            self.missing.append(coded("power-not-measured", "savings of a lower clock unknown: no data on busy power"))
            return _both(time, found), None, None
        move = at_clock(found, share, watts=drawn.watts, idle_watts=drawn.idle_watts, model=load_power_model())
        change = ClockChange(move, None, drawn.hours_per_month)
        kwh = change.kwh_per_month
        worth, joules = worth_words(self.scene.book, group, kwh), {"joules_per_month": change.joules_per_month}
        self.notes.append(CodedText("clock-saves", f"The clock saves {kwh:,.0f} kWh/month, {worth}.", joules))
        return _both(time, found), kwh, move.watts_after

    def _count(self, time: Prediction, fit: SliceFit | None) -> int:
        """Whole GPUs: as chosen (instances, of a slice); else of a job as today, of a service what the demand needs."""
        base, chosen = self.base, self.choice.gpus
        if fit is not None:
            return math.ceil((chosen or base.gpus) / per_gpu(fit))
        if chosen is not None or self.jobs:
            return chosen or base.gpus
        if base.demand is None:
            self.missing.append(coded("count-unknown", "required GPU count unknown: no demand data"))
            return base.gpus
        if _as_fast(time):
            return base.right_gpus
        needed = int(gpus_needed(base, np.array([base.demand * time.median]), self.scene.headroom)[0])
        return min(needed, base.gpus) if self.stays else needed  # more of today's is for whoever asks to say

    def _counted(
        self, source: GpuSku, gpu: GpuSku, time: Prediction, gpus: int, fit: SliceFit | None
    ) -> Prediction:  # fmt: skip
        """The time on so many GPUs, and what forbids the count."""
        base = self.base
        if fit is not None or gpus == base.gpus:
            return time
        if self.jobs:
            each = predict_count(base.group.use, base.group.phase, base.gpus, gpus)
            if isinstance(each, Refusal):
                self.missing.append(
                    CodedText(
                        "no-prediction-for-count",
                        f"no prediction for {gpus} GPUs: {each.reason}",
                        {"gpus": gpus, **_because(each)},
                    )
                )
                return time
            return _both(time, each)
        if self.choice.gpus is not None and gpus < base.gpus and gpu.name == source.name:
            self.blocked += fewer_gpus_gates(base.group, gpus)
        if gpus < base.floor:
            least = coded("below-least-gpus", "the service needs at least {gpus} GPUs", gpus=base.floor)
            self.blocked.append(least)
        return time

    def _load(self, time: Prediction, gpus: int, fit: SliceFit | None) -> float | None:
        """95th percentile of a service's load then; above the headroom it blocks the choice."""
        base, most = self.base, self.scene.headroom
        if self.jobs or base.demand is None:
            return None
        instances = self.choice.gpus or base.gpus
        load = fit.load * base.gpus / instances if fit is not None else base.demand * base.gpus * time.median / gpus
        # Whole GPUs are counted for the headroom; only a count, a slice or a clock that was chosen can exceed it.
        if load > most + 1e-9 and load > base.demand + 1e-9:
            self.blocked.append(
                CodedText(
                    "overloaded",
                    f"the 95th percentile of load would be {load_words(load)} of what they sustain "
                    f"(limit {load_words(most)})",
                    {"load": load, "headroom": most},
                )
            )
        return load

    def _nodes_drawn(self, time: Prediction, gpus: int, per_node: int, fit: SliceFit | None) -> Array:
        """Nodes of each draw; a count that was chosen, and that of a job, is what it is."""
        base = self.base
        if self.jobs or self.choice.gpus is not None or fit is not None or base.demand is None:
            return np.full(DRAWS, float(nodes_for(gpus, per_node)))
        if _as_fast(time) and per_node == base.gpus_per_node:
            return base.right_nodes_draws
        ratio = 1.0 if _as_fast(time) else time.draw(self.rng, DRAWS)
        drawn = nodes_for(gpus_needed(base, base.demand_draws * ratio, self.scene.headroom), per_node)
        return np.minimum(drawn, base.nodes) if self.stays else drawn

    def _price(self) -> Price | None:
        """The price chosen; else that of the region; else, at another provider, the lowest."""
        base, target = self.base, self.target
        node = base.group.nodes[0]
        known = base.price if self.stays else self.scene.book.beside(node, target.name) if target else None
        if known is None and target is not None and target.provider != node.provider:
            known = min(target.prices, key=lambda p: (p.usd_per_hour, p.region), default=None)
        if self.choice.usd_per_hour is not None:
            sku = target.name if target is not None else base.group.lead.node_sku or "node"
            region = known.region if known is not None else node.region or "any region"
            return Price(
                f"chosen:{sku}", sku, region, self.choice.usd_per_hour, "chosen", "entered here", day(self.scene.at)
            )
        if known is None:
            where = f" in {node.region}" if node.region and not self.stays else ""
            what = f"{target.name if target else 'its nodes'}{where}"
            self.missing.append(coded("price-unknown", "no price for {what}; set one", what=what))
        return known

    def _ended(
        self, then: Side | None, time: Prediction | None, energy: float | None = None, nodes_drawn: Array | None = None
    ) -> WhatIfResult:
        today = self._today()
        base, saving, of_count = self.base, None, None
        if then is not None and time is not None and nodes_drawn is not None:
            saving = self._cash(then, time, nodes_drawn)
        if saving is not None and base.price is not None:
            spared = base.nodes - float(np.median(base.right_nodes_draws))
            of_count = spared * base.price.usd_per_hour * self.hours
        frees = then is not None and self.stays and not self.jobs
        freed = max(base.gpus - then.gpus, 0) * HOURS_PER_MONTH if then is not None and frees else 0.0
        return WhatIfResult(
            self.choice, today, then, time.interval if time is not None else None,
            time.basis if time is not None else None, time.risk if time is not None else None,
            saving.interval if saving else None, of_count, saving.realisation if saving else "capacity-freed",
            saving.date if saving else None, freed, energy,
            *(tuple(dict.fromkeys(x)) for x in (self.blocked, self.missing, self.notes)),
        )  # fmt: skip

    def _today(self) -> Side:
        base, lead = self.base, self.base.group.lead
        cost = None if base.price is None else base.nodes * base.price.usd_per_hour * self.hours
        watts = None if self.drawn is None else self.drawn.watts
        return Side(lead.gpu_sku, lead.node_sku, base.gpus, base.nodes, base.price, cost, base.demand, watts)

    def _cash(self, then: Side, time: Prediction, nodes_drawn: Array) -> Saving | None:
        """Saving against what is paid today, and when it is cash; None: none can be claimed."""
        base = self.base
        if base.price is None and not self.stays:
            self.missing.append(coded("todays-price-unknown", "no price for the current nodes, so no comparison"))
        if base.price is None or then.price is None:
            return None
        left = base.nodes if not self.stays or self.choice.usd_per_hour is not None else base.nodes - then.nodes
        whole = max(left, 0) if base.whole and not base.mixed else 0
        cash = cash_of(base.price, whole, self.scene.at)
        if cash is None:
            return self._no_cash(then)
        longer = time.draw(self.rng, DRAWS) if self.jobs and not _as_fast(time) else np.ones(DRAWS)
        here = base.nodes * base.price.usd_per_hour
        draws = (here - nodes_drawn * then.price.usd_per_hour * longer) * self.hours
        return Saving.in_cash(cash, draws, here * self.hours, then.price)

    def _no_cash(self, then: Side) -> None:
        base = self.base
        if self.stays and then.nodes >= base.nodes:
            return  # nothing becomes free, and nothing was expected to
        if base.mixed:
            self.blocked.append(NODES_MIXED)
        elif not base.whole:
            self.blocked.append(NODES_SHARED)
        elif self.stays:
            self.notes.append(
                coded(
                    "capacity-no-cash", "The current nodes are {basis}: freed nodes are capacity, not cash.",
                    basis=base.price.basis if base.price is not None else "unknown",
                )
            )  # fmt: skip
        else:
            self.blocked.append(paid_on_top(base))


def _both(first: Prediction, second: Prediction) -> Prediction:
    """One after the other: ratios multiply, and their errors are taken to be independent."""
    if _as_fast(first):
        return second
    sigma = math.hypot(first.sigma, second.sigma)
    return Prediction(first.median * second.median, sigma, f"{first.basis}; {second.basis}")


def _because(refusal: Refusal) -> dict[str, Scalar]:
    return {"because": refusal.reason.code, **refusal.reason.fields}


def _as_fast(time: Prediction) -> bool:
    return time.basis == SAME_GPU
