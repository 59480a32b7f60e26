"""What the advisor says, as frozen values; `render/` gives them their shapes (JSON: schema ``skuwise.advice/1``).

Names are those of the JSON (docs/architecture.md), and so is their order: what is added later stands where it belongs
and is given by name. None is JSON's null: not known, or does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...rules.base.typed import Amount, Moment, Share
from ...rules.catalog.types import Price
from .coded_text import CodedText
from .energy_types import FleetEnergy, NodeEnergy
from .verdict_types import NOT_IN_JSON, WorkloadVerdict

Severity = Literal["low", "medium", "high"]
Action = Literal[
    "move-sku",
    "reduce-gpus",
    "mig-slice",
    "consolidate",
    "schedule-off",
    "swap-placement",
    "release",
    "lower-clock",
    "power-cap",
    "rest-clocks",
    "fix-first",
]
Realisation = Literal["cash-now", "cash-at", "capacity-freed", "energy"]
Risk = Literal["very-low", "low", "medium", "high"]
DecisionState = Literal["proposed", "accepted", "snoozed", "dismissed", "done", "regressed", "expired"]
COUNTED_RISKS: tuple[Risk, ...] = ("very-low", "low")


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted quantity: 10th, 50th and 90th percentile."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured number and the threshold it was held against (None where it only informs)."""

    metric: str
    value: float | str | None
    threshold: float | str | None
    unit: str


@dataclass(frozen=True, slots=True)
class Finding:
    """`nodes` are all the nodes it concerns; `node` is set where it is one. `parts`: of its MIG instances the part of a
    GPU that each is; no part of the JSON."""

    id: str
    rule: str
    severity: Severity
    workload: str | None
    node: str | None
    nodes: tuple[str, ...] = field(default=(), kw_only=True)
    gpus: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    gpu_hours: Amount
    cost_usd: float | None
    price: str | None
    confidence: Share
    would_change_if: tuple[CodedText, ...]
    text: str
    parts: Mapping[str, float] = field(default_factory=dict, metadata=NOT_IN_JSON)


@dataclass(frozen=True, slots=True)
class Configuration:
    gpu_sku: str | None
    node_sku: str | None
    gpu_count: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a recommendation stands in the ledger. `since`, `until` (the end of a snooze): Unix seconds."""

    state: DecisionState
    since: Moment
    by: str | None = None
    until: Moment | None = None
    why: str | None = None

    @property
    def sets_aside(self) -> bool:
        """Whether it is not to be counted on: dismissed, snoozed for now, or done already."""
        return self.state in ("dismissed", "snoozed", "done")


@dataclass(frozen=True, slots=True)
class SavingsBaseline:
    """What a recommendation is held against once it is done (the ledger); no part of the JSON.

    `usd_per_month`: what a month costs that the saving is taken off; None: no dollars are claimed. `nodes`: those that
    may fall free, where the recommendation is about nodes. `clock_share`: SM clock over today's; `usd_per_kwh`: of
    energy. `rest_watts`: what one GPU is to draw at rest. `off_hours`: begin and end (UTC hours) of the quiet part of
    the day. `site_factor`: what moves measured at this site added to the predicted time (predict/calibration.py).

    What a patch needs to know (patches/): `mig_profile`: of the instance, as drivers write it; `freed`: the nodes that
    are to be emptied; `partner`: the workload that nodes are swapped with.
    """

    usd_per_month: float | None = None
    nodes: tuple[str, ...] = ()
    clock_share: float | None = None
    usd_per_kwh: float | None = None
    rest_watts: float | None = None
    off_hours: tuple[int, int] | None = None
    site_factor: float = 1.0
    mig_profile: str | None = None
    freed: tuple[str, ...] = ()
    partner: str | None = None


@dataclass(frozen=True, slots=True)
class EvidenceClaim:
    """What a recommendation rests on.

    `nodes`: nodes it speaks of. `gpus`: those of their GPUs or instances that it is about; empty: all of them.
    `whole`: whole nodes fall free, change hands or are switched off. `measures`: of `inventory.MEASURED`. `fabric`:
    nodes of which it matters what their fabric carried. `host`: whether it matters how busy their hosts' cores are.
    `unheld`: no workload holds the GPUs.
    """

    nodes: tuple[str, ...]
    measures: frozenset[str]
    gpus: frozenset[str] = frozenset()
    whole: bool = False
    fabric: frozenset[str] = frozenset()
    host: bool = False
    unheld: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    sku: str
    reason: CodedText


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One way out. `excludes` are ids of the recommendations it cannot be combined with.

    `energy_saving_kwh_per_month` is energy that the GPUs would not draw, from measured power; None: not known, or it is
    no saving of energy. It is in no sum. `levers` are what a lower precision would change ("if served in FP8 ..."),
    each with what has to be checked first: never a saving, in no sum either.
    `break_even` says at which demand (share of today's peak) the move stops saving; None where demand plays no part.
    `available_from` is the date (ISO) from which a ``cash-at`` saving is cash. `decision` is what somebody decided on
    it (the ledger); None: nobody did, or the snooze is over. `changes`: what differs at the target beside the count of
    GPUs, with the reason where its fabric is dearer. `shown`: whether lists and mails show it (core/worth.py); None:
    not evaluated yet. `observed_hours`: what its monthly figures were projected from; None: from no hours of work.

    No part of the JSON: `yardstick`, and what is there only while an advice is made: `draws` (joint draws of the
    monthly saving, US dollars, an array; None: it claims none), `claims` (of two recommendations with one in common
    only one can be had; the first is its own, the others of work that it moves besides) and `needs` (what it rests on;
    None: it claims nothing).
    """

    id: str
    findings: tuple[str, ...]
    workload: str | None
    action: Action
    source: Configuration = field(metadata={"json": "from"})
    target: Configuration = field(metadata={"json": "to"})
    time_ratio: Interval | None
    saving_usd_per_month: Interval | None
    freed_gpu_hours_per_month: Amount
    energy_saving_kwh_per_month: Interval | None = field(default=None, kw_only=True)
    observed_hours: Amount | None = field(default=None, kw_only=True)
    realisation: Realisation
    available_from: str | None = field(default=None, kw_only=True)
    risk: Risk
    blocked_by: tuple[CodedText, ...]
    rejected: tuple[Rejected, ...]
    levers: tuple[CodedText, ...] = field(default=(), kw_only=True)
    changes: tuple[CodedText, ...] = field(default=(), kw_only=True)
    would_change_if: tuple[CodedText, ...]
    prices: tuple[str, ...]
    break_even: str | None = field(default=None, kw_only=True)
    excludes: tuple[str, ...] = field(default=(), kw_only=True)
    decision: Decision | None = field(default=None, kw_only=True)
    shown: bool | None = field(default=None, kw_only=True)
    text: str
    yardstick: SavingsBaseline = field(default_factory=SavingsBaseline, metadata=NOT_IN_JSON)
    draws: Any = field(default=None, compare=False, repr=False, metadata=NOT_IN_JSON)
    claims: tuple[str, ...] = field(default=(), compare=False, repr=False, metadata=NOT_IN_JSON)
    needs: EvidenceClaim | None = field(default=None, compare=False, repr=False, metadata=NOT_IN_JSON)

    @property
    def worth_telling(self) -> bool:
        """Whether it gains by itself, though no finding asks for it."""
        saving = self.saving_usd_per_month
        return not self.blocked_by and saving is not None and saving.p50 > 0 and self.risk in (*COUNTED_RISKS, "medium")

    @property
    def set_aside(self) -> bool:
        return self.decision is not None and self.decision.sets_aside

    @property
    def counts(self) -> bool:
        """Whether its cash may enter a sum: to be had now, unblocked, not an experiment, and not set aside."""
        return (
            self.realisation == "cash-now"
            and not self.blocked_by
            and not self.set_aside
            and self.risk in COUNTED_RISKS
            and self.saving_usd_per_month is not None
            and self.saving_usd_per_month.p50 > 0
        )

    @property
    def rank(self) -> tuple[int, bool, float, float, str]:
        """Recommendations sort by it as people should read them: what can be had now first, what was set aside last."""
        standing = 0 if self.counts else 3 if self.set_aside else 2 if self.blocked_by else 1
        # On fleets that are owned or bound a swap is tried before anything that frees GPUs alone.
        tried = standing == 1 and self.action != "swap-placement"
        saving = self.saving_usd_per_month.p50 if self.saving_usd_per_month else 0.0
        return (standing, tried, -saving, -self.freed_gpu_hours_per_month, self.id)


@dataclass(frozen=True, slots=True)
class NotJudged:
    """Of whom one rule gave no verdict, for one reason: no waste was found of them, and none was excluded.

    `workloads`: ids; empty where the rule judges nodes. `usd_per_month`: what is at stake where a price tells it (what
    a silent fabric adds, for idle-fabric); None: not told.
    """

    rule: str
    reason: CodedText
    nodes: tuple[str, ...]
    workloads: tuple[str, ...]
    gpu_count: int
    usd_per_month: float | None = None


@dataclass(frozen=True, slots=True)
class RuleVerdicts:
    """How many nodes or workloads of its scope a rule found waste of, judged clean, and could not judge."""

    rule: str
    found: int
    clean: int
    not_judged: int


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Where every dollar of the nodes went, USD; None where a price is unknown. The parts sum to `total`."""

    workloads: float | None
    shared: float | None
    allocated_idle: float | None
    unallocated: float | None
    drained: float | None
    unobserved: float | None
    total: float | None


@dataclass(frozen=True, slots=True)
class NodeStanding:
    """One node of the window, for the ledger; no part of the JSON. `usd_per_hour`: None where no price is known.

    `hours_observed`: observed GPU-hours over its GPUs; `first_seen`, `last_seen`: Unix seconds. `judged`: ids of its
    GPUs, and of their MIG instances, that were observed long enough to judge waste.
    """

    node: str
    node_sku: str | None
    gpu_sku: str | None
    gpu_count: int
    region: str | None
    usd_per_hour: float | None
    hours_observed: float
    first_seen: float
    last_seen: float
    judged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fleet:
    """Whose telemetry it is, for the ledger; no part of the JSON. `name`: for people.

    `match`: the label matchers that cut it out of its server; `clusters`: as the agents are told, by name. `members`:
    UUID of a GPU -> its node; a node without a UUID stands by itself. `sources`: where the telemetry lay (files, or the
    server's URL); `server`: its URL, empty for databases; `labels`: the external labels it tells. `start`, `end`: of
    the window (Unix seconds).
    """

    name: str
    simulated: bool
    match: tuple[str, ...]
    clusters: frozenset[str]
    members: Mapping[str, str]
    nodes: frozenset[str]
    sources: frozenset[str]
    server: str
    labels: Mapping[str, str]
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class FabricUse:
    """What one node's compute fabric carried in the window, against what it adds to the node's price.

    `kind` is the ports' link layer (None: not told). `hours`: observed. `util_p995`, `util_max`: the 99.5th percentile
    (an upper bound) and the highest of seconds, ratio of the line rate of the busiest port; None: they cannot be told,
    and `unseen` says why where that is known (`unseen_code`: for programs). `cost_usd`: what the fabric adds to the
    node's price over all its hours in the window; None: no price is known. `assumed`: a prior stands in for a pair of
    prices.
    """

    node: str
    node_sku: str | None
    kind: str | None
    hours: Amount
    util_p995: float | None
    util_max: float | None
    cost_usd: float | None
    assumed: bool
    unseen: str | None = None
    unseen_code: str | None = None


@dataclass(frozen=True, slots=True)
class Unobserved:
    """GPUs of one node that exist and of which nothing was observed in the window, for one reason.

    `gpus`: their ids; ``unnamed-N`` for those that no series names. `reason`: a sentence; `code`: the same for programs
    (not-named, no-samples, no-exporter, or an absence's reason). `gpu_hours`, `cost_usd`: of the window, as far as the
    node is accounted for; None: not told, or no price is known.
    """

    node: str
    gpus: tuple[str, ...]
    reason: str
    code: str
    gpu_hours: Amount | None = None
    cost_usd: Amount | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums over the window. Recoverable counts cash only: the p50, with its interval from joint draws beside it.

    `gpu_count`: physical GPUs known to exist, `unobserved` those among them of which nothing was observed.
    `observed_hours`: hours of the window in which telemetry of any GPU exists, of `window_hours`; `observed_gpu_hours`:
    of `gpu_hours`, what was observed. `gpu_hours_by_use`: where all of them went, each once: the reconciliation in
    GPU-hours, of nodes without a price too. `judged_gpu_count`: GPUs observed long enough to judge waste, which takes
    `floor_hours` of each; where it is 0, `wasted_usd`, `slowed_usd` and `recoverable_usd_per_month` are None and not 0.
    `judged_from`: when more can be judged (Unix seconds); None: nothing is waiting, or only another window tells more.
    `energy`: what the GPUs drew. `min_saving_usd_per_month`: the gain below which lists and mails leave a
    recommendation out. None: not reported.
    """

    gpu_count: int
    gpu_hours: Amount
    cost_usd: float | None
    wasted_usd: float | None
    slowed_usd: float | None = field(default=None, kw_only=True)
    recoverable_usd_per_month: float | None
    recoverable_interval_usd_per_month: Interval | None = field(default=None, kw_only=True)
    reconciliation: Reconciliation
    unobserved: tuple[Unobserved, ...] = ()
    window_hours: Amount | None = None
    observed_hours: Amount | None = None
    observed_gpu_hours: Amount | None = None
    judged_gpu_count: int | None = None
    judged_from: Moment | None = None
    floor_hours: Amount | None = None
    gpu_hours_by_use: Reconciliation | None = None
    energy: FleetEnergy | None = None
    min_saving_usd_per_month: Amount | None = None

    @property
    def unobserved_gpu_count(self) -> int:
        return sum(len(one.gpus) for one in self.unobserved)

    @property
    def nothing_judged(self) -> bool:
        """Whether no GPU was observed long enough for any verdict on waste."""
        return self.judged_gpu_count == 0

    @property
    def partly_judged(self) -> bool:
        """Whether some GPUs were observed long enough for a verdict on waste, and others were not."""
        return self.judged_gpu_count is not None and 0 < self.judged_gpu_count < self.gpu_count


@dataclass(frozen=True, slots=True)
class Advice:
    """Everything that was found in one window. `generated_at`, `start`, `end`: Unix seconds (UTC).

    `market`: what other providers would charge, apart from the recommendations and in no sum; None: it was not asked.
    `nodes`: every node that was looked at, by name.
    `fabrics`: of each node that has one, by its name; `node_energy`: of every node's GPUs, likewise. `standings`: the
    nodes with what the ledger needs of them; empty in advice that was read back from JSON. `fleet`: whose ledger is
    its; None likewise, or where nobody told.
    """

    generated_at: Moment
    start: Moment
    end: Moment
    source: Mapping[str, object]
    nodes: tuple[str, ...] = field(default=(), kw_only=True)
    summary: Summary
    fabrics: tuple[FabricUse, ...] = field(default=(), kw_only=True)
    node_energy: tuple[NodeEnergy, ...] = field(default=(), kw_only=True)
    prices: tuple[Price, ...]
    workloads: tuple[WorkloadVerdict, ...]
    findings: tuple[Finding, ...]
    judged: tuple[RuleVerdicts, ...] = field(default=(), kw_only=True)
    not_judged: tuple[NotJudged, ...] = field(default=(), kw_only=True)
    recommendations: tuple[Recommendation, ...]
    notes: tuple[CodedText, ...] = ()
    market: tuple[Recommendation, ...] | None = None
    standings: tuple[NodeStanding, ...] = field(default=(), metadata=NOT_IN_JSON)
    fleet: Fleet | None = field(default=None, metadata=NOT_IN_JSON)
