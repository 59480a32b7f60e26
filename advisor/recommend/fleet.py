"""The one context of rules and recommendations: what was judged of a window, its prices, limits, model and moment."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from ...rules.catalog.loader import NVLINK_PRIORS, Catalog
from ...rules.catalog.types import GpuSku, NodeSku, Price
from ...rules.models import MoveModel
from ...rules.policy.labels import ON_DEMAND_KINDS, TRAINING_KINDS
from ...rules.policy.thresholds import WasteRule
from ..classify.types import BareGpu, NodeFacts, Verdicts
from ..core.advice_types import Action, Configuration, EvidenceClaim, Finding
from ..core.coded_text import CodedText, coded
from ..core.formatting import listed
from ..core.frame import Window
from ..core.timestamps import rfc3339
from ..core.worth import HOURS_PER_MONTH
from .constraints import WORK, fewer_gpus_gates
from .groups import Group
from .predict.calibration import NO_SITE, Site
from .predict.clock_model import ClockMove
from .prediction import Array, Prediction, predict
from .pricing import PriceBook
from .progress import JOB_SECONDS

HOUR_SECONDS = 3600.0
# What findings are of the money; work that waits ("slowed") is no waste.
Waste = Literal["unused", "surplus", "fabric", "nvlink", "tier", "slowed", "none"]


@dataclass(frozen=True)
class Found:
    """A finding and what recommendations need: its group (None: bare GPUs), nodes and bare GPUs.
    `fault`: the bottleneck to fix first; `clock`: how else to run the GPU; `faulty`: series whose telemetry is wrong.
    `answered_by`, `waste`: as its rule has them."""

    finding: Finding
    group: Group | None
    nodes: tuple[NodeFacts, ...]
    bare: tuple[BareGpu, ...] = ()
    fault: str | None = None
    clock: ClockMove | None = None
    faulty: frozenset[str] = frozenset()
    answered_by: Mapping[Action, int] = field(default_factory=dict)
    waste: Waste = "none"

    @property
    def label(self) -> str:
        return series_label(self.group) if self.group is not None else node_words(self.nodes)


@dataclass(frozen=True)
class Unjudged:
    """No verdict of a rule on a node or a workload. `reason`: a clause, the same for all whom it concerns.
    `usd_per_month`: what is at stake, where a price is known."""

    reason: CodedText
    nodes: tuple[NodeFacts, ...]
    group: Group | None = None
    usd_per_month: float | None = None


# What a rule says: a finding, why there is none, or the node or the workload that it judged without one.
Outcome = Found | Unjudged | Group | NodeFacts


def node_words(nodes: Sequence[NodeFacts]) -> str:
    return f"node {nodes[0].node}" if len(nodes) == 1 else f"{len(nodes)} nodes ({listed([n.node for n in nodes])})"


def series_label(group: Group) -> str:
    lead = group.lead
    kind = group.kind.replace("-inference", " inference")
    if group.kind == "online-inference":
        kind += " service"
    elif not lead.name.startswith("job "):  # a job that has a number alone
        kind += " job"
    others = len({w.name for w in group.now} - {lead.name})
    owner = lead.owner.team or lead.owner.namespace or lead.owner.account or lead.owner.user
    about = ", ".join(filter(None, (owner, f"{others} similar" if others else None)))
    return f"The {kind} {lead.name}" + (f" ({about})" if about else "")


def when_possible(hours: float, floor: float, window: Window, at: float, node: NodeFacts) -> str:
    """A sentence: what it takes to reach a coverage floor (hours) of which `hours` were observed on a node: another
    window, or the hours that are missing, counted from `at` (Unix seconds), the moment of the advice."""
    if (ready := ready_at(hours, floor, window, at, node)) is not None:
        return f"A verdict is possible from {rfc3339(ready)} if telemetry continues."
    if window.hours < floor and window.end - node.first_seen >= floor * HOUR_SECONDS:
        return f"For a verdict, use a longer window: --since {floor:g}h or more."
    return "For a verdict, use a later window (--until); newer data are available."


def ready_at(hours: float, floor: float, window: Window, at: float, node: NodeFacts) -> float | None:
    """When a coverage floor is reached at the earliest, Unix seconds; None: another window has more data now."""
    longer = window.hours < floor and window.end - node.first_seen >= floor * HOUR_SECONDS
    if longer or node.last_seen > window.end + HOUR_SECONDS:
        return None
    return max(at, window.end) + max(floor - hours, 0.0) * HOUR_SECONDS


def as_percent(value: float | None) -> str | None:
    return None if value is None else "below 0.1 %" if 0 < value < 0.001 else f"{value * 100:.3g} %"


def watts(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} W"


DRAWS = 500
# How much more than the 95th percentile of the window a count of GPUs is made for. Made for it alone, 5.3 % of 1,527
# simulated services were above their headroom in more than 5 % of the hours to come; with a tenth more, none.
SIZING_MARGIN = 1.1
NODES_UNKNOWN = coded("nodes-unknown", "its nodes are unknown")
# The rules that set the headroom, and whose findings silence every other: signals that contradict one another.
SIZING_RULE, FAULT_RULE = "too-many-gpus", "telemetry-fault"
# A reason so weak that what it asks for is one of the reasons and never the only one.
WEAK = 9


@dataclass(frozen=True)
class Fleet:
    """`groups`: the largest first. `rules`: thresholds by id, with the teams' own. `model`: errors of predicted moves;
    `site`: correction by moves done here. `at`: the moment of the advice, Unix seconds; `seed`: of all draws.
    `floor_hours`: observed hours of a GPU below which nothing is claimed. `waste`: empty before rules were asked."""

    verdicts: Verdicts
    groups: tuple[Group, ...]
    book: PriceBook
    rules: Mapping[str, WasteRule]
    model: MoveModel
    at: float
    seed: int
    floor_hours: float = 30.0
    site: Site = NO_SITE
    waste: tuple[Found, ...] = ()

    @property
    def catalog(self) -> Catalog:
        return self.book.catalog

    def draws(self, *key: str) -> np.random.Generator:
        """A separate generator for each question: what is asked of one series changes no answer of another."""
        digest = hashlib.sha256("\x1f".join(key).encode("utf-8", "surrogatepass")).digest()
        return np.random.default_rng([self.seed, int.from_bytes(digest[:8], "big")])

    def predicted(
        self, source: GpuSku, target: GpuSku, group: Group, network: tuple[float | None, float | None]
    ) -> Prediction | CodedText:
        """The time of a group's work on another GPU over its time today, as moves that were done here bear it out."""
        prediction = predict(source, target, group.use, group.phase, self.model, network=network)
        return prediction if source.name == target.name else self.site.applied(prediction)

    def headroom(self, group: Group) -> float:
        """The load that fewer or other GPUs may reach, as the group's team keeps it."""
        return self.rules[SIZING_RULE].of(group.lead.owner).value("headroom")

    def hours_of(self, group: Group) -> float:
        """The observed hours that a month's figures of a group rest on: from its first run in the window on, and at
        least the last week. Hours in which no agent ran are no rest of it."""
        window = self.verdicts.window
        first = min(*(w.start for w in group.workloads), window.end - JOB_SECONDS)
        seen = self.verdicts.inventory.observed_hours or window.hours
        return min(seen, (window.end - max(first, window.start)) / 3600)

    def monthly(self, group: Group, hours: float) -> float:
        """So many (GPU-)hours of a group in the window, a month."""
        seen = self.hours_of(group)
        return hours / seen * HOURS_PER_MONTH if seen > 0 else 0.0

    def faulty(self, group: Group) -> bool:
        """Whether its signals contradict one another so often that nothing can be concluded from them."""
        return group.fault_share >= self.rules[FAULT_RULE].value("share_min")

    def unfit(self, group: Group, *, slices: bool = False) -> CodedText | None:
        """Why no rule can judge how a group uses whole GPUs (or with `slices` MIG instances); None: rules can."""
        if not group.nodes:
            return NODES_UNKNOWN
        if self.faulty(group):
            return coded("signals-contradict", "its metrics contradict each other")
        shared = group.shared and not (slices and group.sliced)
        return coded("gpus-shared", "shared GPUs are measured as a whole") if shared else None

    def waste_ready(self, group: Group) -> bool:
        """Whether the hours of its series reach the coverage floor for waste."""
        return any(self.verdicts.waste_ready.get(w.id, False) for w in group.workloads)

    def cost(self, gpu_hours: float, nodes: Sequence[NodeFacts]) -> float | None:
        """GPU-hours at the mean price of these nodes; None where one of them has no price."""
        rates = [rate for n in nodes if (rate := self.book.per_gpu_hour(n)) is not None]
        return gpu_hours * sum(rates) / len(rates) if rates and len(rates) == len(nodes) else None

    def gpu_of(self, group: Group) -> GpuSku | None:
        return self.catalog.gpu(group.lead.gpu_sku) if group.lead.gpu_sku else None

    def without_rdma(self, node: NodeFacts) -> bool:
        """Whether a node is known to have no RDMA fabric: by the catalog, else by its ports."""
        sku = self.book.sku_of(node)
        if sku is not None and sku.fabric.rdma is not None:
            return not sku.fabric.rdma
        return node.fabric is not None and node.fabric.link_layer == "Ethernet"

    def nvlink(self, node: NodeFacts) -> bool | None:
        """Whether a node joins its GPUs by NVLink (True) or by PCIe alone (False), by the catalog; None: not known."""
        sku, gpu = self.book.sku_of(node), self.catalog.gpu(node.gpu_sku) if node.gpu_sku else None
        joined = apart = False
        if sku is not None:
            joined, apart = sku.gpu_count > 1 and sku.intra_node_link in NVLINK_PRIORS, sku.intra_node_link == "pcie"
        elif gpu is not None:
            # A GPU made without NVLink has none, modules on a board are joined, cards may be bridged.
            apart = gpu.link_bytes_per_second is None
            joined = gpu.nvlink_bytes_per_second is not None and "SXM" in gpu.name and node.gpu_count > 1 and not apart
        return True if joined else False if apart else None

    @cached_property
    def free(self) -> Mapping[str, list[BareGpu]]:
        """Node -> its GPUs with hours that no workload accounts for; nodes without any are left out."""
        free: dict[str, list[BareGpu]] = defaultdict(list)
        for gpu in self.verdicts.bare:
            free[gpu.node].append(gpu)
        return dict(free)

    @cached_property
    def _on(self) -> Mapping[str, dict[str, Group]]:
        on: dict[str, dict[str, Group]] = defaultdict(dict)
        for group in self.groups:
            for node in (node for w in group.workloads for node in w.nodes):
                on[node][group.series_id] = group
        return dict(on)

    def groups_on(self, nodes: Iterable[NodeFacts]) -> list[Group]:
        """The groups that ran on any of these nodes in the window, each once."""
        return list({key: group for node in nodes for key, group in self._on.get(node.node, {}).items()}.values())

    @cached_property
    def idle_hours(self) -> Mapping[str, float]:
        """Workload id -> GPU-hours that it held without use; those that held none so are left out."""
        rows = self.verdicts.occupancy[self.verdicts.occupancy["class"] == "allocated_idle"]
        return {str(w): float(hours) for w, hours in rows.groupby("workload_id")["gpu_hours"].sum().items()}

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """The series that may be moved: in use, of known kind and sound signals, with no release of them found."""
        by_group: dict[str, dict[str, Found]] = defaultdict(dict)
        for waste in self.waste:
            if waste.group is not None:
                by_group[waste.group.series_id][waste.finding.rule] = waste
        faulty = frozenset[str]().union(*(waste.faulty for waste in self.waste))
        faulty |= {s for s, rules in by_group.items() if any("release" in f.answered_by for f in rules.values())}
        named = [g for g in self.groups if g.recurs and g.nodes and g.kind not in ("idle", "unknown")]
        movable = [g for g in named if g.series_id not in faulty]
        return tuple(Series(self, baseline_for(self, g), by_group[g.series_id]) for g in movable)


@dataclass(frozen=True)
class Baseline:
    """A group as it stands, and the same SKU at its right-sized count, against which every move is credited.
    `headroom`: the load that fewer GPUs may reach. `gpus`, `nodes`: held now. `right_...`: what the demand needs; the
    draws go with `demand_draws`. `whole`: no other work is on its nodes. `demand`: 95th percentile of the load on
    today's GPUs. `mixed`: its nodes are of several kinds. `unit`: GPUs that go together."""

    group: Group
    headroom: float
    sku: NodeSku | None
    price: Price | None
    gpus_per_node: int
    gpus: int
    nodes: int
    right_gpus: int
    right_nodes: int
    right_nodes_draws: Array
    demand: float | None
    demand_draws: Array
    whole: bool
    mixed: bool
    unit: int

    @property
    def floor(self) -> int:
        """The least GPUs: two replicas where people wait and there are two, else one."""
        return self.unit * (min(2, self.gpus // self.unit) if self.group.kind in ON_DEMAND_KINDS else 1)

    @property
    def sized_demand(self) -> float | None:
        """The demand that a count of GPUs is made for; None: the demand is not known."""
        return None if self.demand is None else self.demand * SIZING_MARGIN

    @property
    def has_fabric(self) -> bool:
        """Whether the SKU of its nodes has an RDMA fabric, so that what it carries is a part of the demand."""
        return self.sku is not None and self.sku.fabric.rdma is True

    @property
    def configuration(self) -> Configuration:
        return Configuration(self.group.lead.gpu_sku, self.group.lead.node_sku, self.gpus)

    def claim(self, *, whole: bool, fabric: bool = False, measures: frozenset[str] = WORK) -> EvidenceClaim:
        """What a change of it rests on: its GPUs, or where whole nodes fall free or change hands all of its nodes."""
        names = tuple(n.node for n in self.group.nodes)
        return EvidenceClaim(names, measures, frozenset(self.group.gpus), whole, frozenset(names if fabric else ()))

    def month_usd(self, nodes: int, hours: float = HOURS_PER_MONTH) -> float | None:
        """What so many of its nodes cost for `hours` of a month; None: no price is known."""
        return nodes * self.price.usd_per_hour * hours if self.price is not None else None

    def gpus_needed(self, demand: Array) -> Array:
        """GPUs that carry each draw of demand (of today's GPUs): whole units, and at least the floor."""
        units = np.ceil(self.gpus * demand / self.headroom / self.unit - 1e-9)
        return np.maximum(units * self.unit, float(self.floor))


def baseline_for(fleet: Fleet, group: Group) -> Baseline:
    """A group's baseline. Training and what a gate holds keep their count, and so does work of unknown demand."""
    first = group.nodes[0]
    gpus, per_node = group.gpu_count, max(first.gpu_count, 1)
    base = Baseline(
        group=group,
        headroom=fleet.headroom(group),
        sku=fleet.book.sku_of(first),
        price=fleet.book.saving_price(first),
        gpus_per_node=per_node,
        gpus=gpus,
        nodes=len(group.nodes),
        right_gpus=gpus,
        right_nodes=len(group.nodes),
        right_nodes_draws=np.full(DRAWS, float(len(group.nodes))),
        demand=group.demand_p95,
        demand_draws=group.demand_draws(fleet.draws("demand", group.series_id), DRAWS),
        whole=all(n.node in group.alone for n in group.nodes) and not group.shared,
        mixed=len({(n.node_sku, n.region) for n in group.nodes}) > 1,
        unit=group.unit,
    )
    if base.sized_demand is None or fewer_gpus_gates(group, gpus) or group.kind in TRAINING_KINDS:
        return base
    right = int(min(base.gpus_needed(np.array([base.sized_demand]))[0], gpus))
    return replace(
        base,
        right_gpus=right,
        right_nodes=int(min(nodes_for(right, per_node), base.nodes)),
        right_nodes_draws=np.minimum(nodes_for(base.gpus_needed(base.demand_draws), per_node), base.nodes),
    )


def nodes_for(gpus: float | Array, per_node: int) -> Array:
    """Whole nodes that hold so many GPUs."""
    return np.maximum(np.ceil(np.asarray(gpus, dtype=float) / max(per_node, 1) - 1e-9), 1.0)


def load_words(load: float | None) -> str:
    return "an unknown share" if load is None or not math.isfinite(load) else f"{load * 100:.0f} %"


@dataclass(frozen=True)
class Series:
    """One series that may be moved: its baseline, and by rule what was found of it."""

    fleet: Fleet
    base: Baseline
    findings: Mapping[str, Found]

    @property
    def group(self) -> Group:
        return self.base.group

    def asking(self, action: Action) -> list[Found]:
        """The findings that such a recommendation answers, the first reason first."""
        asked = [finding for finding in self.findings.values() if action in finding.answered_by]
        return sorted(asked, key=lambda waste: waste.answered_by[action])
