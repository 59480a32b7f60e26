"""What every way out is weighed with, and the small arithmetic they share."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np

from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import GpuSku, NodeSku, Price
from ...rules.models.move_model import MoveModel
from ...rules.policy.labels import ON_DEMAND_KINDS, TRAINING_KINDS
from ...rules.policy.thresholds import WasteRule
from ..core.advice_types import COUNTED_RISKS, Configuration, Recommendation
from .constraints import NVLINK, fewer_gpus_gates
from .evidence import WORK, EvidenceClaim
from .groups import HOURS_PER_MONTH, Group
from .predict.calibration import NO_SITE, Site
from .prediction import Array, Link, Prediction, Refusal, predict
from .pricing import PriceBook

DRAWS = 500
# How much more than the 95th percentile of the window a count of GPUs is made for: the next weeks' is another. Made for
# it alone, 5.3 % of 1,527 simulated services were above their headroom in more than 5 % of the hours to come; with a
# tenth more, none.
SIZING_MARGIN = 1.1


@dataclass(frozen=True)
class MoveContext:
    """`headroom`: the load that fewer or other GPUs may reach; `at`: now, Unix seconds; `seed`: of all draws.
    `model`: what predictions of moves were worth. `sizing`: the rule that sets the headroom, which teams may change for
    their work (None: one headroom for all).

    `window_hours`: length of the window, from which a month's hours of a job are reckoned. `site`: what moves that were
    done here say of predictions. `floor_hours`: observed hours of a GPU below which nothing is claimed of it.
    """

    catalog: Catalog
    book: PriceBook
    model: MoveModel
    headroom: float
    at: float
    window_hours: float
    seed: int
    sizing: WasteRule | None = None
    site: Site = NO_SITE
    floor_hours: float = 30.0

    def predicted(
        self, source: GpuSku, target: GpuSku, group: Group, network: tuple[Link, Link]
    ) -> Prediction | Refusal:
        """The time of a group's work on another GPU over its time today, as moves that were done here bear it out."""
        found = predict(source, target, group.use, group.phase, self.model, network=network)
        return found if source.name == target.name else self.site.applied(found)

    def draws(self, *key: str) -> np.random.Generator:
        """A generator of its own for each question: what is asked of one series changes no answer of another."""
        digest = hashlib.sha256("\x1f".join(key).encode("utf-8", "surrogatepass")).digest()
        return np.random.default_rng([self.seed, int.from_bytes(digest[:8], "big")])

    def of(self, group: Group) -> MoveContext:
        """The scene with the headroom that the group's team keeps."""
        if self.sizing is None:
            return self
        return replace(self, headroom=self.sizing.of(group.lead.owner).value("headroom"))


@dataclass(frozen=True)
class DrawnRecommendation:
    """A recommendation with the joint draws of its monthly saving (US dollars; None: it claims none).

    Options with the same `exclusive` key cannot be combined: the best of them counts. `also`: more such keys, of work
    that the option moves besides. `claim`: what it rests on; None: it claims nothing.
    """

    recommendation: Recommendation
    draws: Array | None
    exclusive: str
    also: frozenset[str] = frozenset()
    claim: EvidenceClaim | None = None

    @property
    def keys(self) -> frozenset[str]:
        """What it claims: of two options that claim the same, one can be had."""
        return self.also | {self.exclusive}

    @property
    def counts(self) -> bool:
        """Whether its cash enters the sum."""
        return self.draws is not None and self.recommendation.counts

    @property
    def worth_telling(self) -> bool:
        """Whether it gains by itself, though no finding asks for it."""
        r = self.recommendation
        saving = r.saving_usd_per_month
        return not r.blocked_by and saving is not None and saving.p50 > 0 and r.risk in (*COUNTED_RISKS, "medium")


@dataclass(frozen=True)
class Baseline:
    """A group as it stands, and the same SKU at its right-sized count, against which every move is credited.

    `gpus`, `nodes`: held now. `right_gpus`, `right_nodes`: what the demand needs; the draws go with `demand_draws`.
    `whole`: no other current workload is on its nodes, so that nodes can fall free. `demand`: 95th percentile of the
    load on today's GPUs. `mixed`: its nodes are of several kinds. `unit`: GPUs that come and go together.
    """

    group: Group
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
    def has_nvlink(self) -> bool:
        """Whether the SKU of its nodes joins their GPUs by NVLink, or is not known."""
        return self.sku is None or self.sku.intra_node_link in NVLINK

    def claim(self, *, whole: bool, fabric: bool = False, measures: frozenset[str] = WORK) -> EvidenceClaim:
        """What a change of it rests on: its GPUs, or where whole nodes fall free or change hands all of its nodes."""
        names = tuple(n.node for n in self.group.nodes)
        return EvidenceClaim(
            names, measures, frozenset(self.group.gpus), whole, frozenset(names) if fabric else frozenset()
        )

    @property
    def configuration(self) -> Configuration:
        return Configuration(self.group.lead.gpu_sku, self.group.lead.node_sku, self.gpus)

    def month_usd(self, nodes: int, hours: float = HOURS_PER_MONTH) -> float | None:
        """What so many of its nodes cost for `hours` of a month; None: no price is known."""
        return nodes * self.price.usd_per_hour * hours if self.price is not None else None


def baseline(scene: MoveContext, group: Group, unit: int, fewer_forbidden: bool) -> Baseline:
    """Reckon a group's baseline. Where fewer GPUs are forbidden, the count it holds is its right size."""
    first = group.nodes[0]
    per_node = max(first.gpu_count, 1)
    gpus = group.gpu_count
    draws = group.demand_draws(scene.draws("demand", group.series_id), DRAWS)
    demand = group.demand_p95
    base = Baseline(
        group=group,
        sku=scene.catalog.node(first.node_sku) if first.node_sku else None,
        price=scene.book.saving_price(first),
        gpus_per_node=per_node,
        gpus=gpus,
        nodes=len(group.nodes),
        right_gpus=gpus,
        right_nodes=len(group.nodes),
        right_nodes_draws=np.full(DRAWS, float(len(group.nodes))),
        demand=demand,
        demand_draws=draws,
        whole=all(n.node in group.alone for n in group.nodes) and not group.shared,
        mixed=len({(n.node_sku, n.region) for n in group.nodes}) > 1,
        unit=unit,
    )
    if fewer_forbidden or demand is None:
        return base
    assert base.sized_demand is not None
    right = int(min(gpus_needed(base, np.array([base.sized_demand]), scene.headroom)[0], gpus))
    drawn = np.minimum(nodes_for(gpus_needed(base, draws, scene.headroom), per_node), base.nodes)
    right_nodes = int(min(nodes_for(right, per_node), base.nodes))
    return replace(base, right_gpus=right, right_nodes=right_nodes, right_nodes_draws=drawn)


def baseline_for(scene: MoveContext, group: Group) -> tuple[MoveContext, Baseline]:
    """The scene with the group's own headroom, and its baseline: training and what a gate holds keep their count."""
    own = scene.of(group)
    kept = bool(fewer_gpus_gates(group, group.gpu_count)) or group.kind in TRAINING_KINDS
    return own, baseline(own, group, group.unit, fewer_forbidden=kept)


def nodes_for(gpus: float | Array, per_node: int) -> Array:
    """Whole nodes that hold so many GPUs."""
    return np.maximum(np.ceil(np.asarray(gpus, dtype=float) / max(per_node, 1) - 1e-9), 1.0)


def gpus_needed(base: Baseline, demand: Array, headroom: float) -> Array:
    """GPUs that carry each draw of demand (of today's GPUs) at `headroom`: whole units, and at least the floor."""
    return np.maximum(np.ceil(base.gpus * demand / headroom / base.unit - 1e-9) * base.unit, float(base.floor))


def load_words(load: float | None) -> str:
    return "an unknown share" if load is None or not math.isfinite(load) else f"{load * 100:.0f} %"
