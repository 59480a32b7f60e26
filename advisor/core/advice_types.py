"""The values of an advice. Names and order are those of the JSON (``skuwise.advice/1``, docs/architecture.md).

None is JSON's null: unknown, or not applicable. `Moment` is Unix seconds (UTC).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...rules.base.typed import Amount, Moment, Share
from ...rules.catalog.types import Price
from .coded_text import CodedText
from .energy_types import FleetEnergy, NodeEnergy
from .verdict_types import NOT_IN_JSON, WorkloadVerdict
from .waiting_types import WAITING_METRIC, Waiting, WaitingJobs

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
    """A measured number and the threshold it was compared with (None: for information only)."""

    metric: str
    value: float | str | None
    threshold: float | str | None
    unit: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Waste that one rule detected on nodes or of a workload."""

    id: str
    rule: str
    severity: Severity
    workload: str | None
    node: str | None  # set where it concerns exactly one node
    nodes: tuple[str, ...] = field(default=(), kw_only=True)
    gpus: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    gpu_hours: Amount
    cost_usd: float | None
    price: str | None
    confidence: Share
    would_change_if: tuple[CodedText, ...]
    text: str
    parts: Mapping[str, float] = field(default_factory=dict, metadata=NOT_IN_JSON)  # MIG instance -> its part of a GPU

    @property
    def is_waited_for(self) -> bool:
        """Whether a job that waits could use its GPUs: such findings come first in every list."""
        return any(e.metric == WAITING_METRIC for e in self.evidence)


@dataclass(frozen=True, slots=True)
class Configuration:
    gpu_sku: str | None
    node_sku: str | None
    gpu_count: int


@dataclass(frozen=True, slots=True)
class Decision:
    """State of a recommendation in the ledger. `until`: end of a snooze."""

    state: DecisionState
    since: Moment
    by: str | None = None
    until: Moment | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class SavingsBaseline:
    """What a done recommendation is compared with (ledger), and what its patch needs (patches/); not in the JSON."""

    usd_per_month: float | None = None  # monthly cost that the saving reduces; None: no dollars are claimed
    nodes: tuple[str, ...] = ()  # nodes that may become free, of a recommendation about nodes
    clock_share: float | None = None  # SM clock over today's
    usd_per_kwh: float | None = None
    rest_watts: float | None = None  # target power of one GPU at rest
    off_hours: tuple[int, int] | None = None  # begin and end of the quiet part of the day, UTC hours
    site_factor: float = 1.0  # correction of the predicted time by moves measured here (predict/calibration.py)
    mig_profile: str | None = None  # of the instance, as drivers spell it
    freed: tuple[str, ...] = ()  # nodes to be emptied
    partner: str | None = None  # the workload that nodes are swapped with


@dataclass(frozen=True, slots=True)
class EvidenceClaim:
    """The measurements that a recommendation rests on."""

    nodes: tuple[str, ...]
    measures: frozenset[str]  # of `inventory.MEASURED`
    gpus: frozenset[str] = frozenset()  # GPUs or instances concerned; empty: all of the nodes'
    whole: bool = False  # whole nodes become free, change hands or are switched off
    fabric: frozenset[str] = frozenset()  # nodes whose fabric traffic matters
    host: bool = False  # whether the load of the hosts' cores matters
    unheld: bool = False  # no workload holds the GPUs


@dataclass(frozen=True, slots=True)
class Rejected:
    sku: str
    reason: CodedText


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One action with its gain and risk.

    `levers`: what a lower precision would change, with what to check first; in no sum, as is energy. `draws`, `claims`
    and `needs` exist only while an advice is made.
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
    energy_saving_kwh_per_month: Interval | None = field(default=None, kw_only=True)  # from measured power, at the GPUs
    observed_hours: Amount | None = field(default=None, kw_only=True)  # basis of the monthly figures; None: no work
    realisation: Realisation
    available_from: str | None = field(default=None, kw_only=True)  # date (ISO) of a ``cash-at`` saving
    risk: Risk
    blocked_by: tuple[CodedText, ...]
    rejected: tuple[Rejected, ...]
    levers: tuple[CodedText, ...] = field(default=(), kw_only=True)
    changes: tuple[CodedText, ...] = field(default=(), kw_only=True)  # other differences of the target, with reasons
    would_change_if: tuple[CodedText, ...]
    prices: tuple[str, ...]
    break_even: str | None = field(default=None, kw_only=True)  # demand (share of today's peak) that ends the saving
    excludes: tuple[str, ...] = field(default=(), kw_only=True)  # ids it cannot be combined with
    decision: Decision | None = field(default=None, kw_only=True)  # None: none, or the snooze is over
    shown: bool | None = field(default=None, kw_only=True)  # in lists and mails (worth.py); None: not evaluated yet
    text: str
    yardstick: SavingsBaseline = field(default_factory=SavingsBaseline, metadata=NOT_IN_JSON)
    # Joint draws of the monthly saving, US dollars, an array; None: it claims none.
    draws: Any = field(default=None, compare=False, repr=False, metadata=NOT_IN_JSON)
    # Two recommendations with a common claim exclude each other. The first is its own, the rest of work it moves too.
    claims: tuple[str, ...] = field(default=(), compare=False, repr=False, metadata=NOT_IN_JSON)
    needs: EvidenceClaim | None = field(default=None, compare=False, repr=False, metadata=NOT_IN_JSON)

    @property
    def worth_telling(self) -> bool:
        """Whether it saves money by itself, even if no finding asks for it."""
        saving = self.saving_usd_per_month
        return not self.blocked_by and saving is not None and saving.p50 > 0 and self.risk != "high"

    @property
    def set_aside(self) -> bool:
        """Whether it must not be counted on: dismissed, snoozed, or done already."""
        return self.decision is not None and self.decision.state in ("dismissed", "snoozed", "done")

    @property
    def counts(self) -> bool:
        """Whether its cash may enter a sum: available now, unblocked, not an experiment, and not set aside."""
        saving = self.saving_usd_per_month
        is_open = self.realisation == "cash-now" and not self.blocked_by and not self.set_aside
        return is_open and self.risk in COUNTED_RISKS and saving is not None and saving.p50 > 0

    @property
    def rank(self) -> tuple[int, bool, float, float, str]:
        """The sort key of every list: counted ones first, those set aside last."""
        standing = 0 if self.counts else 3 if self.set_aside else 2 if self.blocked_by else 1
        # On owned or committed fleets a swap precedes what frees GPUs alone.
        is_late = standing == 1 and self.action != "swap-placement"
        saving = self.saving_usd_per_month.p50 if self.saving_usd_per_month else 0.0
        return (standing, is_late, -saving, -self.freed_gpu_hours_per_month, self.id)


@dataclass(frozen=True, slots=True)
class NotJudged:
    """What one rule could not judge, for one reason. `workloads`: ids; empty where the rule judges nodes."""

    rule: str
    reason: CodedText
    nodes: tuple[str, ...]
    workloads: tuple[str, ...]
    gpu_count: int
    usd_per_month: float | None = None  # at stake, as a silent fabric's premium; None: no price shows it


@dataclass(frozen=True, slots=True)
class RuleVerdicts:
    """How many nodes or workloads in its scope a rule flagged, judged clean, and could not judge."""

    rule: str
    flagged: int = field(metadata={"json": "found"})
    clean: int
    not_judged: int


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Cost of the nodes by use, USD; None where a price is unknown. The parts sum to `total`."""

    workloads: float | None
    shared: float | None
    allocated_idle: float | None
    unallocated: float | None
    drained: float | None
    unobserved: float | None
    total: float | None


@dataclass(frozen=True, slots=True)
class NodeStanding:
    """One node of the window, for the ledger; not in the JSON."""

    node: str
    node_sku: str | None
    gpu_sku: str | None
    gpu_count: int
    region: str | None
    usd_per_hour: float | None  # None: no price is known
    hours_observed: float  # observed GPU-hours over its GPUs
    first_seen: float
    last_seen: float
    judged: tuple[str, ...] = ()  # ids of GPUs and MIG instances observed long enough to judge waste


@dataclass(frozen=True, slots=True)
class Fleet:
    """Identity of the fleet behind the telemetry, for the ledger; not in the JSON. `name`: for display."""

    name: str
    simulated: bool
    match: tuple[str, ...]  # label matchers that select it on its server
    clusters: frozenset[str]  # names configured in the agents
    members: Mapping[str, str]  # GPU UUID -> node; a node without UUIDs is its own member
    nodes: frozenset[str]
    sources: frozenset[str]  # files, or the server's URL
    server: str  # its URL; empty for databases
    labels: Mapping[str, str]  # external labels of the server
    start: float  # of the window, Unix seconds, as is `end`
    end: float


@dataclass(frozen=True, slots=True)
class FabricUse:
    """Traffic of one node's compute fabric in the window, and its premium. `unseen`: why utilization is unknown."""

    node: str
    node_sku: str | None
    kind: str | None  # link layer of the ports
    hours: Amount  # observed
    util_p995: float | None  # 99.5th percentile of seconds (upper bound), ratio of the busiest port's line rate
    util_max: float | None
    cost_usd: float | None  # what the fabric adds to the node's price over the window; None: no price is known
    assumed: bool  # a prior replaces a pair of prices
    unseen: str | None = None
    unseen_code: str | None = None


@dataclass(frozen=True, slots=True)
class Unobserved:
    """Existing GPUs of one node without any observation in the window, for one reason."""

    node: str
    gpus: tuple[str, ...]  # ids; ``unnamed-N`` where no series names them
    reason: str
    code: str  # not-named, no-samples, no-exporter, or an absence's reason
    gpu_hours: Amount | None = None  # of the window, as far as the node is accounted for; None: unknown
    cost_usd: Amount | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums over the window. Where no GPU was judged, `wasted_usd`, `slowed_usd` and the recoverable cash are None."""

    gpu_count: int  # physical GPUs known to exist
    gpu_hours: Amount
    cost_usd: float | None
    wasted_usd: float | None
    slowed_usd: float | None = field(default=None, kw_only=True)
    recoverable_usd_per_month: float | None  # cash only: the p50
    recoverable_interval_usd_per_month: Interval | None = field(default=None, kw_only=True)  # from joint draws
    reconciliation: Reconciliation
    unobserved: tuple[Unobserved, ...] = ()
    window_hours: Amount | None = None
    observed_hours: Amount | None = None  # hours of the window with telemetry of any GPU
    observed_gpu_hours: Amount | None = None
    judged_gpu_count: int | None = None  # GPUs observed for `floor_hours`, long enough to judge waste
    judged_from: Moment | None = None  # when more can be judged; None: time alone does not help
    floor_hours: Amount | None = None
    gpu_hours_by_use: Reconciliation | None = None  # as the reconciliation, of nodes without a price too
    energy: FleetEnergy | None = None
    min_saving_usd_per_month: Amount | None = None  # smaller gains are left out of lists and mails
    waiting: Waiting | None = None  # None: no queue is known

    @property
    def unobserved_gpu_count(self) -> int:
        return sum(len(part.gpus) for part in self.unobserved)

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
    """All results for one window. `standings` and `fleet` are absent in advice that was read from JSON."""

    generated_at: Moment
    start: Moment
    end: Moment
    source: Mapping[str, object]
    nodes: tuple[str, ...] = field(default=(), kw_only=True)  # every evaluated node
    summary: Summary
    fabrics: tuple[FabricUse, ...] = field(default=(), kw_only=True)
    node_energy: tuple[NodeEnergy, ...] = field(default=(), kw_only=True)
    prices: tuple[Price, ...]
    workloads: tuple[WorkloadVerdict, ...]
    findings: tuple[Finding, ...]
    judged: tuple[RuleVerdicts, ...] = field(default=(), kw_only=True)
    not_judged: tuple[NotJudged, ...] = field(default=(), kw_only=True)
    recommendations: tuple[Recommendation, ...]
    waiting: tuple[WaitingJobs, ...] = field(default=(), kw_only=True)  # for GPUs first, then by how long they wait
    notes: tuple[CodedText, ...] = ()
    market: tuple[Recommendation, ...] | None = None  # other providers, in no sum; None: not requested
    standings: tuple[NodeStanding, ...] = field(default=(), metadata=NOT_IN_JSON)
    fleet: Fleet | None = field(default=None, metadata=NOT_IN_JSON)
