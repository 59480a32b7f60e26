"""What became of a recommendation by later telemetry, and what its nodes cost since (docs/plan.md)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ...rules.base.typed import Moment
from ...rules.policy.labels import ON_DEMAND_KINDS
from ..core.advice_types import Advice, Configuration, Interval, NodeStanding, SavingsBaseline
from ..core.formatting import listed
from ..core.timestamps import minute
from ..core.verdict_types import WorkloadVerdict
from ..core.worth import HOURS_PER_MONTH
from .groups import CURRENT_SECONDS, holding_now

# A node counts as returned after so long without data: an agent that failed on a Friday is back on Monday.
GONE_SECONDS = 3 * 86400.0
# Figures of a run that began this long before the move are still taken for the move's own.
SLACK_SECONDS = 3600.0
# Jobs follow the week: less than one of them is projected to no month.
JOB_SECONDS = 7 * 86400.0

Place = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class Measure:
    """What a series held and did over a span. None: not measured. `busy`: share of the time in which their engines
    worked; `period_seconds`: of its steps; `busy_seconds_per_token`: GPU-seconds at work. Watts are of one GPU,
    `rest_watts` while it stood idle and held memory; `clock_ratio`: SM clock over the highest."""

    gpus: float
    gpu_hours_per_month: float
    busy: float | None = None
    period_seconds: float | None = None
    busy_seconds_per_token: float | None = None
    tokens_per_second: float | None = None
    watts: float | None = None
    clock_ratio: float | None = None
    rest_watts: float | None = None


@dataclass(frozen=True, slots=True)
class WorkloadAddress:
    """A scheduler's identity of a workload; None: unknown or none. `name`: of the controller or the job;
    `container`: the one that asks for the GPUs; `replicas`: pods that held GPUs, each on one node."""

    scheduler: str
    name: str
    namespace: str | None = None
    controller_kind: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    container: str | None = None
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class PredictionSnapshot:
    """What a prediction rested on, to recognise the move later. `series_id`, `address`: None for a move of nodes;
    `nodes`: held then. `usd_per_hour`: node SKU -> the price then; `prices`: in words. `seen_until`: end of its
    telemetry (Unix seconds); `fleet`: its nodes."""

    series_id: str | None
    serving: bool
    nodes: tuple[str, ...]
    source: Configuration
    target: Configuration
    saving_usd_per_month: Interval | None
    time_ratio: Interval | None
    yardstick: SavingsBaseline
    before: Measure | None
    usd_per_hour: Mapping[str, float]
    prices: str
    seen_until: Moment
    fleet: int = 0
    address: WorkloadAddress | None = None


@dataclass(frozen=True, slots=True)
class MoveState:
    """`since`: from then on (Unix seconds); `hours`: observed there since; `evidence`: the evidence, a sentence."""

    place: Place
    since: float
    hours: float
    evidence: str


@dataclass(frozen=True, slots=True)
class MoveCost:
    """US dollars a month after the move; None with the reason. `said`: what keeps it from being less."""

    usd: float | None
    missing: str | None = None
    said: tuple[str, ...] = ()


MIXED = MoveCost(None, "the window still includes days before the change")


@dataclass(frozen=True)
class Observation:
    """A window of telemetry (Unix seconds) and the ids of what was advised on it. `open`: of what nothing blocks."""

    start: float
    end: float
    source: str
    workloads: tuple[WorkloadVerdict, ...]
    nodes: Mapping[str, NodeStanding]
    proposed: frozenset[str]
    open: frozenset[str]

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], list[WorkloadVerdict]]:
        runs: dict[tuple[str, str], list[WorkloadVerdict]] = {}
        for w in sorted(self.workloads, key=lambda w: (w.end, w.start, w.id)):
            for key in (("series", w.series_id), *(("node", node) for node in w.nodes)):
                runs.setdefault(key, []).append(w)
        return runs

    def series(self, series_id: str | None) -> Sequence[WorkloadVerdict]:
        return self._by_key.get(("series", series_id or ""), ())

    def on_node(self, node: str) -> Sequence[WorkloadVerdict]:
        return self._by_key.get(("node", node), ())

    def now(self, series_id: str | None) -> tuple[WorkloadVerdict, ...]:
        """Its runs that hold GPUs at the end of the window; empty: none did in the last day."""
        runs = self.series(series_id)
        return holding_now(runs, self.end) if runs and runs[-1].end >= self.end - CURRENT_SECONDS else ()

    def holders(self, node: str) -> list[WorkloadVerdict]:
        """The workloads that held GPUs of a node in the last day."""
        return [w for w in self.on_node(node) if w.end >= self.end - CURRENT_SECONDS]

    def last_seen(self, node: str) -> float:
        """When a node was last seen; one that the window does not show: before it (Unix seconds)."""
        return self.nodes[node].last_seen if node in self.nodes else self.start

    def gone(self, node: str) -> bool:
        """Whether nothing came from a node for three days. A shorter window shows that of none."""
        if node in self.nodes:
            return self.last_seen(node) < self.end - GONE_SECONDS
        return self.end - self.start >= GONE_SECONDS

    def silent(self, node: str) -> bool:
        """Whether nothing came from a node lately, and not for so long within the window that it is gone."""
        # Nodes of one fleet end their records within the hour that is being rolled up.
        return not self.gone(node) and (node not in self.nodes or self.last_seen(node) < self.end - 7200.0)

    def mixed(self, since: float) -> bool:
        """Whether the window begins before a move (Unix seconds), so that it holds days of both."""
        return self.start < since - SLACK_SECONDS

    def shows(self, source: str, part: bool) -> bool:
        """Whether any `part` of other telemetry's places (`source` in words) was read, or all of them."""
        return (any if part else all)(place in self.source.split(", ") for place in source.split(", "))


def observation_of(advice: Advice) -> Observation:
    proposed = frozenset(r.id for r in advice.recommendations)
    open_ = frozenset(r.id for r in advice.recommendations if not r.blocked_by)
    nodes = {n.node: n for n in advice.standings}
    databases = map(str, advice.source.get("databases", ()))  # type: ignore[arg-type]
    source = ", ".join(databases) or str(advice.source.get("url", ""))
    return Observation(advice.start, advice.end, source, advice.workloads, nodes, proposed, open_)


def hours(runs: Iterable[WorkloadVerdict], start: float = -math.inf, end: float = math.inf) -> float:
    """Hours from `start` to `end` in which any of these runs was there."""
    seconds, until = 0.0, start
    for begin, last in sorted((w.start, min(w.end, end)) for w in runs):
        seconds += max(last - max(begin, until), 0.0)
        until = max(until, last)
    return seconds / 3600


def measure(runs: Sequence[WorkloadVerdict], start: float, end: float) -> Measure | None:
    """What runs of one series held and did between two moments; None: nothing. Their figures are of whole runs."""
    held = sum(len(w.gpus) * hours((w,), start, end) for w in runs)
    if held <= 0 or end <= start:
        return None

    def mean(name: str, of: Sequence[WorkloadVerdict] = runs) -> float | None:
        weighted = [(w.features[name], w.gpu_hours) for w in of if math.isfinite(w.features.get(name, math.nan))]
        weight = sum(h for _, h in weighted)
        return float(sum(value * h for value, h in weighted) / weight) if weight > 0 else None

    # Steps count as known where so much of the busy time has a period.
    stepping = [w for w in runs if w.features.get("period_share", 0.0) >= 0.5]
    telling = [w for w in runs if w.features.get("generated_tokens", 0.0) > 0 and "engine_active" in w.features]
    tokens = sum(w.features["generated_tokens"] for w in telling)
    busy_seconds = sum(w.features["engine_active"] * w.gpu_hours * 3600 for w in telling)
    elapsed = hours(telling) * 3600
    return Measure(
        gpus=held / hours(runs, start, end),
        gpu_hours_per_month=held / ((end - start) / 3600) * HOURS_PER_MONTH,
        busy=mean("engine_active"),
        period_seconds=mean("period_seconds", stepping),
        busy_seconds_per_token=busy_seconds / tokens if tokens > 0 and busy_seconds > 0 else None,
        tokens_per_second=tokens / elapsed if tokens > 0 and elapsed > 0 else None,
        watts=mean("power_watts"),
        clock_ratio=mean("clock_ratio"),
        rest_watts=mean("rest_watts"),
    )


def serves(runs: Sequence[WorkloadVerdict]) -> bool:
    """Whether somebody waits for it: its GPUs are held whether or not requests come."""
    return bool(runs) and runs[-1].kind.label in ON_DEMAND_KINDS


def stands_on(w: WorkloadVerdict, there: Configuration) -> bool:
    return w.node_sku == there.node_sku and w.gpu_sku == there.gpu_sku


def by_runs(
    snapshot: PredictionSnapshot, seen: Observation, where: Callable[[WorkloadVerdict], Place | None], name: str
) -> MoveState | None:
    """By `where` the runs of its series are; None: on their way. `name`: of what is at the target, in words."""
    now, runs = seen.now(snapshot.series_id), seen.series(snapshot.series_id)
    places: set[Place | None] = {where(w) for w in now}
    place = next(iter(places)) if len(places) == 1 else None
    if place is None:
        return None
    workload_verdicts = [w for w in runs if where(w) == place]
    since = max([min(w.start for w in workload_verdicts), seen.start, *(w.end for w in runs if where(w) != place)])
    text = f"only on {name}" if place == "target" else "on its original nodes"
    return MoveState(place, since, hours(workload_verdicts, since), f"It has run {text} since {minute(since)}.")


def by_nodes(snapshot: PredictionSnapshot, seen: Observation) -> MoveState | None:
    """By the kind of node that the runs of its series are on."""
    there, here = snapshot.target, snapshot.source
    if there.node_sku is None or there.node_sku == here.node_sku:
        return None

    def where(w: WorkloadVerdict) -> Place | None:
        return "target" if stands_on(w, there) else "source" if stands_on(w, here) else None

    return by_runs(snapshot, seen, where, there.node_sku)


def level(snapshot: PredictionSnapshot, seen: Observation, name: str) -> float | None:
    """The mean of a feature over the runs that hold GPUs now; None: none of them has it."""
    values = [w.features[name] for w in seen.now(snapshot.series_id) if name in w.features]
    return sum(values) / len(values) if values else None


def by_level(
    snapshot: PredictionSnapshot, seen: Observation, of: str, *, before: float | None, target: float | None, words: str
) -> MoveState | None:
    """By a feature that the move lowers, done past half of the way. `words`: with `now`, `before` and `ratio`."""
    now = level(snapshot, seen, of)
    if now is None or before is None or target is None or before <= target:
        return None
    text = words.format(now=now, before=before, ratio=now / before)
    place: Place = "target" if now <= (before + target) / 2 else "source"
    return MoveState(place, seen.end, hours(seen.now(snapshot.series_id)), text)


def by_freed_nodes(snapshot: PredictionSnapshot, seen: Observation) -> MoveState | None:
    """Nodes given back or emptied (consolidate), or given back or put to use (release of nodes without work)."""
    nodes, held, kept = snapshot.yardstick.nodes, snapshot.source.gpu_count, snapshot.target.gpu_count
    if not nodes:
        return None
    pooled = kept > 0  # so many GPUs of the pool go on working
    wanted = max(round((held - kept) / (held / len(nodes))), 1) if pooled else len(nodes)
    free: list[tuple[float, str]] = []
    for node in nodes:
        holders = seen.holders(node)
        if seen.gone(node):
            free.append((seen.last_seen(node), f"{node} is gone"))
        elif pooled and not holders and not seen.silent(node):
            left = max((w.end for w in seen.on_node(node)), default=seen.start)
            free.append((left, f"{node} is empty"))
        elif not pooled and holders and len({g for w in holders for g in w.gpus}) >= seen.nodes[node].gpu_count:
            free.append((max(min(w.start for w in holders), seen.start), f"{node} is in use"))
    if len(free) < wanted:
        # A silent node may not be empty, and one that is not shown may be anywhere.
        unsure = [n for n in nodes if seen.silent(n) and (pooled or n not in seen.nodes)]
        if len(free) + len(unsure) >= wanted:
            return None
        still = listed([n for n in nodes if not seen.gone(n)])
        return MoveState("source", seen.start, (seen.end - seen.start) / 3600, f"No change: {still}.")
    free = sorted(free)[:wanted]
    since, freed = free[-1][0], listed([what for _, what in free])
    return MoveState("target", since, (seen.end - since) / 3600, f"Since {minute(since)}: {freed}.")


def cost_after(snapshot: PredictionSnapshot, state: MoveState, seen: Observation) -> MoveCost:
    """What a series' nodes cost now, with earlier ones still paid for; of a release, what nodes are left cost."""
    if snapshot.series_id is None or snapshot.target.gpu_count == 0:
        return _cost_of_nodes_left(snapshot, seen)
    runs = [w for w in seen.series(snapshot.series_id) if w.end > state.since]
    begin = max(state.since, seen.start)
    now = {node for w in seen.now(snapshot.series_id) for node in w.nodes}
    always = serves(runs)  # a service holds its nodes between two runs, a job does not
    if not always and seen.end - begin < JOB_SECONDS:
        return MoveCost(None, "a job needs at least a week of data")
    usd, said = 0.0, list[str]()
    for name in sorted(now if always else {node for w in runs for node in w.nodes}):
        if (price := price_then(snapshot, seen, name)) is None:
            return MoveCost(None, f"no price for {name}")
        there = [w for w in runs if name in w.nodes]
        share = 1.0 if always else hours(there, begin, seen.end) * 3600 / (seen.end - begin)
        holders = seen.holders(name)
        workload_verdicts = [w for w in holders if w.series_id == snapshot.series_id]
        if len(workload_verdicts) < len(holders):
            gpus = sum(len(w.gpus) / len(w.nodes) for w in workload_verdicts)
            share *= min(gpus / max(seen.nodes[name].gpu_count, 1), 1.0)
            said.append(f"{name} runs other work, so only its own GPUs count.")
        usd += price * share * HOURS_PER_MONTH
    price, before = snapshot.usd_per_hour.get(snapshot.source.node_sku or ""), snapshot.yardstick.usd_per_month
    if not always or price is None or before is None:
        return MoveCost(usd, None, tuple(said))
    # Of the nodes that it left, those that are still there and that the prediction counted.
    counted = round(before / (price * HOURS_PER_MONTH)) - len(now.intersection(snapshot.nodes))
    if kept := [n for n in snapshot.nodes if n not in now and not seen.gone(n)][: max(counted, 0)]:
        said.append(f"{listed(kept)} {'is' if len(kept) == 1 else 'are'} still present after the move, and counted.")
    return _unsure(kept, seen) or MoveCost(usd + len(kept) * price * HOURS_PER_MONTH, None, tuple(said))


def _cost_of_nodes_left(snapshot: PredictionSnapshot, seen: Observation) -> MoveCost:
    nodes = snapshot.yardstick.nodes
    still = [n for n in nodes if not seen.gone(n)]
    if (unsure := _unsure(still, seen)) is not None:
        return unsure
    prices = [price for n in still if (price := price_then(snapshot, seen, n)) is not None]
    if len(prices) < len(still):
        return MoveCost(None, f"no price for {listed(still)}")
    more = len(still) - round(max(len(nodes), 1) * snapshot.target.gpu_count / max(snapshot.source.gpu_count, 1))
    said = (f"{more} of {listed(nodes)} is still present.",) if more > 0 else ()
    # A release may name more nodes than fall free whole: those cost as much before as after.
    usd = sum(prices) * HOURS_PER_MONTH
    return MoveCost(min(usd, snapshot.yardstick.usd_per_month or usd), None, said)


def _unsure(nodes: Sequence[str], seen: Observation) -> MoveCost | None:
    silent = listed([n for n in nodes if seen.silent(n)])
    why = f"{silent} stopped reporting recently; a node counts as returned after 3 days without data"
    return MoveCost(None, why) if silent else None


def price_then(snapshot: PredictionSnapshot, seen: Observation, node: str) -> float | None:
    """Of a node per hour: as it stood in the proposal, else as it stands today."""
    standing = seen.nodes.get(node)
    return standing and snapshot.usd_per_hour.get(standing.node_sku or "", standing.usd_per_hour)
