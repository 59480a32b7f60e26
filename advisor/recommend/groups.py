"""The things that recur: workloads of one series (a service with its replicas, a nightly job) taken together, with the
GPUs they hold now and how they use them. Advice is about next month, so it is about them and not about one run."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...rules.policy.labels import JOB_KINDS, TRAINING_KINDS
from ...rules.policy.teams import RuleException
from ..classify.types import NodeFacts, Verdicts
from ..core.verdict_types import INFERRED, WorkloadVerdict
from .prediction import EXPOSED, USE_NAMES, Array, Phase, Use, demand

CURRENT_SECONDS = 86400.0  # seen active in the last day of the window: it is still there
LINK_SILENT = 0.01  # 99.5th percentile of its seconds up to which a link is silent (as in rules/waste/idle-nvlink.yaml)
# Correlation of NVLink with tensor activity within seconds (either sign), and with the work of so many hours.
EXCHANGE_IN_SECONDS, EXCHANGE_BY_ROWS, EXCHANGE_ROWS_MIN = 0.1, 0.5, 12


@dataclass(frozen=True)
class Group:
    """One series on one kind of node (`series_id` distinguishes them where it ran on several). `lead`: its newest
    workload; `now`: those that hold GPUs at the window's end (or last did), with `gpus` and `nodes`; `alone`: nodes
    that no other workload is on (of a job: was on). `current`: seen in the last day; `recurs`: current, or run more
    than once and not `moved` to other hardware. `use`: all rows of use; `load`: the same by moment. `shared`: others
    hold the same GPUs or parts of them; `sliced`: it holds MIG instances by itself. `excused`: rule id -> the exception
    from it; `kept`: waste of its findings -> such an exception."""

    series_id: str
    lead: WorkloadVerdict
    workloads: tuple[WorkloadVerdict, ...]
    now: tuple[WorkloadVerdict, ...]
    gpus: tuple[str, ...]
    nodes: tuple[NodeFacts, ...]
    alone: frozenset[str]
    current: bool
    recurs: bool
    shared: bool
    use: Use
    load_ts: Array
    load: Array
    mem_used_max: float | None
    bottleneck_shares: dict[str, float]
    moved: bool = False
    sliced: bool = False
    excused: Mapping[str, RuleException] = field(default_factory=dict)
    kept: Mapping[str, RuleException] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """What ids of its recommendations rest on, beside the node they lead from: the series, wherever else it ran."""
        return self.lead.series_id if self.lead.node_sku and self.lead.gpu_sku else self.series_id

    @property
    def kind(self) -> str:
        return self.lead.kind.label

    @property
    def phase(self) -> Phase:
        return "training" if self.kind in TRAINING_KINDS else "serving"

    @property
    def gpu_count(self) -> int:
        return len(self.gpus)

    @property
    def gpu_equivalents(self) -> float:
        """GPUs held now; an instance is a part of one."""
        return sum(len(w.gpus) * w.gpu_part for w in self.now) if self.sliced else float(self.gpu_count)

    @property
    def gpu_hours(self) -> float:
        return sum(w.gpu_hours for w in self.workloads)

    @property
    def gpus_per_replica(self) -> int:
        return max((len(w.gpus) for w in self.now), default=0)

    @cached_property
    def exchanges(self) -> bool:
        """Whether the GPUs of a replica exchange anything over NVLink; False: not measured."""
        measured = np.isfinite(self.use.u_n) & (self.use.seconds > 0)
        if self.gpus_per_replica < 2 or not measured.any() or not self.use.u_n[measured].any():
            return False
        carried = self.use.u_n[measured]
        # Tokens that experts exchange, or tensor parallelism at a few dozen tokens a second, are some hundred MB/s:
        # below a hundredth of NVLink, and no silence. The lowest edge of the bins that silence is counted in.
        if float(np.average(carried, weights=self.use.seconds[measured])) > 0.0005:
            return True
        fine = [w.features.get("tensor_nvlink_correlation", 0.0) for w in self.now]
        if max(map(abs, fine), default=0.0) >= EXCHANGE_IN_SECONDS:
            return True
        work = np.fmax(self.use.u_c[measured], self.use.u_m[measured])
        both = np.isfinite(work)
        moves = both.sum() >= EXCHANGE_ROWS_MIN and carried[both].std() > 0 and work[both].std() > 0
        return bool(moves and np.corrcoef(carried[both], work[both])[0, 1] >= EXCHANGE_BY_ROWS)

    @cached_property
    def uses_nvlink(self) -> bool:
        """Whether its GPUs talk over NVLink: by the hours' means, or by the seconds that a quiet hour's mean hides."""
        return self.use.matters("n") or (self.feature("nvlink_utilization_p995") or 0.0) > LINK_SILENT or self.exchanges

    @cached_property
    def may_use_nvlink(self) -> bool:
        """Whether its GPUs exchange data over NVLink, or this was not measured."""
        return self.uses_nvlink or self.use.may_matter("n")

    @property
    def unit(self) -> int:
        """GPUs that come and go together: a replica where its GPUs talk over NVLink, else one."""
        # NVLink not measured: a replica of several GPUs is kept whole. Cards without any talk over PCIe.
        by_pcie = bool(self.nodes) and all(n.without_nvlink for n in self.nodes) and self.use.may_matter("p")
        return max(self.gpus_per_replica, 1) if self.may_use_nvlink or by_pcie else 1

    @property
    def preallocates(self) -> bool:
        """Its memory in use says nothing of the memory it needs (a serving engine that fills what it finds)."""
        return any(w.features.get("mem_flat", 0.0) >= 1.0 for w in self.now)

    @property
    def mem_needed_max(self) -> float | None:
        """An upper bound of the share of a GPU's memory that it needs: the most it ever took; None: not known."""
        if self.preallocates or self.mem_used_max is None:
            return None
        return max(self.mem_used_max, self.feature("mem_max") or 0.0)

    @property
    def observed_hours(self) -> float:
        """Hours of it that were seen: its GPU-hours over the GPUs of its largest set of replicas."""
        return self.gpu_hours / max(self.gpu_count, 1)

    def feature(self, name: str) -> float | None:
        """The largest of a feature over its current workloads; None: known of none."""
        return max((w.features[name] for w in self.now if name in w.features), default=None)

    @property
    def fault_share(self) -> float:
        """Share of its time in which the signals contradict one another; 0 of what was never observed."""
        return self.feature("fault_share") or 0.0

    def busy_share(self, *labels: str) -> float:
        """Share of its busy time in which one of these bottlenecks held it back; 0 of what was never busy."""
        busy = 1.0 - self.bottleneck_shares.get("idle", 0.0)
        return sum(self.bottleneck_shares.get(label, 0.0) for label in labels) / busy if busy > 0 else 0.0

    def use_percentile(self, name: str, percent: float) -> float | None:
        """A percentile of one use (of `prediction.USE_NAMES`) over the rows in which it was measured; None: in none."""
        values = getattr(self.use, name)
        measured = values[np.isfinite(values)]
        return float(np.percentile(measured, percent)) if measured.size else None

    @property
    def compute_p95(self) -> float | None:
        """95th percentile of its use of compute over what the SKU sustains; None: not measured."""
        return self.feature("tensor_of_sustained_p95") or self.use_percentile("u_c", 95)

    @cached_property
    def demand_p95(self) -> float | None:
        """95th percentile of the load on the GPUs held now; None: compute or memory was not measured all along."""
        return float(np.percentile(self.load, 95)) if len(self.load) and not self.lacking else None

    @cached_property
    def lacking(self) -> tuple[str, ...]:
        """Of compute and memory, what was not measured in a part of its time (`prediction.USE_NAMES`)."""
        return self.use.lacking("u_c", "u_m")

    def demand_draws(self, rng: np.random.Generator, n: int) -> Array:
        """`n` values of that percentile, by resampling whole days (a day is what repeats)."""
        if not len(self.load):
            return np.full(n, math.nan)
        days, day = np.unique(np.floor(self.load_ts / 86400.0), return_inverse=True)
        times_drawn = rng.multinomial(len(days), np.full(len(days), 1.0 / len(days)), size=n)
        order = np.argsort(self.load)
        weight = np.cumsum(times_drawn.T[day[order]], axis=0)
        at = (weight < 0.95 * weight[-1]).sum(axis=0)
        return self.load[order][at]


def groups_of(verdicts: Verdicts) -> tuple[Group, ...]:
    """Every series of the window, parted by hardware where it ran on several kinds, the largest first."""
    end = verdicts.window.end
    kinds: dict[str, set[tuple[str | None, str | None]]] = defaultdict(set)
    for w in verdicts.workloads:
        kinds[w.series_id].add((w.gpu_sku, w.node_sku))
    current_on: dict[str, set[str]] = defaultdict(set)
    ever_on: dict[str, set[str]] = defaultdict(set)
    series: dict[str, list[WorkloadVerdict]] = defaultdict(list)
    began: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for w in verdicts.workloads:
        key = w.series_id if len(kinds[w.series_id]) == 1 else f"{w.series_id}/{w.gpu_sku}/{w.node_sku}"
        series[key].append(w)
        began[w.series_id].append((key, w.start))
        for node in w.nodes:
            ever_on[node].add(key)
            if w.end >= end - CURRENT_SECONDS:
                current_on[node].add(key)
    groups = []
    for key, members in series.items():
        # A service holds its nodes; jobs come and go, so work that ran there in the window is likely to return.
        others = ever_on if members[-1].kind.label in JOB_KINDS else current_on
        elsewhere = [start for other, start in began[members[0].series_id] if other != key]
        # All that ran elsewhere came after all that ran here: it went there, and does not come and go between the two.
        moved = bool(elsewhere) and min(elsewhere) > max(w.start for w in members)
        groups.append(_group(verdicts, key, members, others, moved=moved))
    return tuple(sorted(groups, key=lambda g: (-g.gpu_hours, g.series_id)))


def _group(
    verdicts: Verdicts, key: str, members: list[WorkloadVerdict], others_on: dict[str, set[str]], *, moved: bool
) -> Group:
    members = sorted(members, key=lambda w: (w.end, w.start, w.id))
    lead, end = members[-1], verdicts.window.end
    now = holding_now(members, end)
    live = now[-1].end >= end - CURRENT_SECONDS
    names = sorted({n for w in now for n in w.nodes})
    nodes = tuple(facts for facts in (verdicts.node(n) for n in names) if facts is not None)
    rows = verdicts.used(w.id for w in members)
    apart: set[str] = set()
    if max((len(w.gpus) for w in members), default=0) == 1:
        apart.add("u_n")  # one GPU has no peer
    if nodes and all(n.without_nvlink for n in nodes):
        apart.add("u_n")  # and cards without NVLink have PCIe alone, which is measured by itself
    if all(len(w.nodes) == 1 for w in members) and not any(n.fabric and n.fabric.ports_compute for n in nodes):
        apart.add("u_i")  # work within nodes that show no fabric; where one should be seen, the evidence gate asks
    seen = rows.where(rows.floats("seconds") > 0)

    def column(name: str) -> Array:
        return seen.floats(name) if name in seen else np.full(len(seen), math.nan)

    use = Use(
        **{name: column(name) for name in (*USE_NAMES, "g", "seconds")},
        # NaN compares as false: without a correlation the link's time is folded into the rest, as of links that hide.
        exposed_nvlink=column("tensor_nvlink_correlation") < EXPOSED,
        exposed_network=column("tensor_fabric_correlation") < EXPOSED,
        apart=frozenset(apart),
    )
    # Load by moment, of the rows in which it is known.
    asked = demand(use)
    measured = np.isfinite(asked)
    load_ts, moment = np.unique(seen.floats("ts")[measured], return_inverse=True)
    weights = use.seconds[measured]
    load = np.bincount(moment, asked[measured] * weights, len(load_ts)) / np.bincount(moment, weights, len(load_ts))
    shares: dict[str, float] = defaultdict(float)
    for w in now:
        for label, share in w.bottleneck.time_shares.items():
            shares[label] += share * w.gpu_hours
    held = sum(w.gpu_hours for w in now)
    memory = np.fmax.reduce(rows.floats("mem_used_ratio"), initial=math.nan)
    return Group(
        series_id=key,
        lead=lead,
        workloads=tuple(members),
        now=now,
        gpus=tuple(sorted({g for w in now for g in w.gpus})),
        nodes=nodes,
        alone=frozenset(n for n in names if others_on.get(n, set()) <= {key}),
        current=live,
        # The same GPUs at work again are no proof of the same work.
        recurs=live or (len(members) > 1 and not moved and lead.basis != INFERRED),
        shared=any(w.shared or w.gpu_part < 1 for w in now),
        sliced=any(w.gpu_part < 1 for w in now) and not any(w.shared for w in now),
        use=use,
        load_ts=load_ts,
        load=load,
        mem_used_max=None if math.isnan(memory) else float(memory),
        bottleneck_shares={label: value / held for label, value in shares.items()} if held > 0 else {},
        moved=moved and not live,
    )


def holding_now(members: Sequence[WorkloadVerdict], end: float) -> tuple[WorkloadVerdict, ...]:
    """Of runs in order of their ends, those that hold GPUs at `end`, else the last: of the runs seen in the last day,
    those that ran at the same time as the newest, for a restart replaces the old."""
    newest, since = members[-1], end - CURRENT_SECONDS
    return tuple(w for w in members if w.end >= since and (w.end > newest.start or w is newest)) or (newest,)
