"""What one advice's telemetry shows of series and nodes: who held what, for how long, and what it did meanwhile.

And what a prediction rested on, which that is held against.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ....rules.base.quantities import Moment
from ....rules.policy.labels import ON_DEMAND_KINDS
from ...core.advice_types import Advice, Configuration, Interval, NodeStanding, SavingsBaseline
from ...core.verdict_types import WorkloadVerdict
from ..groups import CURRENT_SECONDS, HOURS_PER_MONTH, holding_now

# Steps are taken for told where so much of the busy time has a period.
PERIOD_SHARE_MIN = 0.5
# A node counts as returned after so long without data: an agent that failed on a Friday is back on Monday.
GONE_SECONDS = 3 * 86400.0
# Nodes of one fleet end their records within the hour that is being rolled up.
SILENT_SECONDS = 2 * 3600.0


@dataclass(frozen=True, slots=True)
class Measure:
    """What a series held and did over a span. None: not measured.

    `gpus`: mean number held; `gpu_hours_per_month`: at that rate. `busy`: share of the time in which their engines
    worked; `period_seconds`: of its steps; `busy_seconds_per_token`: GPU-seconds at work for each token generated;
    `tokens_per_second`: generated, of the whole series; `watts`: of one GPU; `clock_ratio`: SM clock over the highest;
    `rest_watts`: of one GPU while it stood idle and held memory.
    """

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
    """How a scheduler knows a workload, for whoever changes it there. None: not told, or it has no such thing.

    `scheduler`: slurm, kubernetes, docker or process; `name`: of the controller or the job; `controller_kind`: the kind
    of the Kubernetes object that made its pods; `container`: the one of its pods that asks for the GPUs; `replicas`:
    how many pods held GPUs, each on one node.
    """

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
    """What a prediction rested on, kept so that the move can be recognised in later telemetry and measured.

    `series_id`: None for a move of nodes; `serving`: whether people or requests wait for it. `nodes`: held by it then.
    `address`: how its scheduler knows it; None: a move of nodes.
    `usd_per_hour`: node SKU -> the node's price then, so that both sides are reckoned in the same prices; `prices`:
    these in words. `seen_until`: end of the telemetry it rests on (Unix seconds); `fleet`: nodes it showed.
    """

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


@dataclass(frozen=True)
class Observation:
    """A window of telemetry and what was advised on it. `start`, `end`: Unix seconds; `source`: where it lay.

    `proposed`: ids of everything that was recommended; `open`: of what nothing blocks.
    """

    start: float
    end: float
    source: str
    workloads: tuple[WorkloadVerdict, ...]
    nodes: Mapping[str, NodeStanding]
    proposed: frozenset[str]
    open: frozenset[str]

    @cached_property
    def _series(self) -> dict[str, list[WorkloadVerdict]]:
        found: dict[str, list[WorkloadVerdict]] = {}
        for w in sorted(self.workloads, key=lambda w: (w.end, w.start, w.id)):
            found.setdefault(w.series_id, []).append(w)
        return found

    @cached_property
    def on_node(self) -> dict[str, list[WorkloadVerdict]]:
        found: dict[str, list[WorkloadVerdict]] = {}
        for w in self.workloads:
            for node in w.nodes:
                found.setdefault(node, []).append(w)
        return found

    def series(self, series_id: str | None) -> Sequence[WorkloadVerdict]:
        """Its runs in the window, in the order of their ends."""
        return self._series.get(series_id or "", ())

    def now(self, series_id: str | None) -> tuple[WorkloadVerdict, ...]:
        """Its runs that hold GPUs at the end of the window; empty: none did in the last day."""
        runs = self.series(series_id)
        live = bool(runs) and runs[-1].end >= self.end - CURRENT_SECONDS
        return holding_now(runs, self.end) if live else ()

    def holders(self, node: str) -> list[WorkloadVerdict]:
        """Whoever held GPUs of a node in the last day."""
        return [w for w in self.on_node.get(node, ()) if w.end >= self.end - CURRENT_SECONDS]

    def gone(self, node: str) -> bool:
        """Whether nothing came from a node for three days. A window that is shorter tells that of none."""
        return self.last_seen(node) < self.end - GONE_SECONDS if node in self.nodes else self.tells_gone

    def silent(self, node: str) -> bool:
        """Whether nothing came from a node lately, and not for so long, as far as the window tells, that it is gone."""
        return not self.gone(node) and (node not in self.nodes or self.last_seen(node) < self.end - SILENT_SECONDS)

    @property
    def tells_gone(self) -> bool:
        """Whether the window is so long that what it does not show at all is gone."""
        return self.end - self.start >= GONE_SECONDS

    def shows_part_of(self, source: str) -> bool:
        """Whether any of it lay where other telemetry did (`source` in words)."""
        return not _places(source).isdisjoint(_places(self.source))

    def shows_all_of(self, source: str) -> bool:
        """Whether all of the other telemetry's places were read: else what is not shown may lie in the rest."""
        return _places(source) <= _places(self.source)

    def last_seen(self, node: str) -> float:
        """When a node was last seen; one that the window does not show: before it (Unix seconds)."""
        known = self.nodes.get(node)
        return known.last_seen if known is not None else self.start


def observation_of(advice: Advice) -> Observation:
    return Observation(
        start=advice.start,
        end=advice.end,
        source=source_words(advice),
        workloads=advice.workloads,
        nodes={n.node: n for n in advice.standings},
        proposed=frozenset(r.id for r in advice.recommendations),
        open=frozenset(r.id for r in advice.recommendations if not r.blocked_by),
    )


def source_words(advice: Advice) -> str:
    """Where the telemetry lay, in words."""
    databases = advice.source.get("databases", ())
    return ", ".join(str(name) for name in databases) or str(advice.source.get("url", ""))  # type: ignore[union-attr]


def _places(source: str) -> set[str]:
    return set(source.split(", "))


def spans(
    runs: Iterable[WorkloadVerdict], start: float = -math.inf, end: float = math.inf
) -> list[tuple[float, float]]:
    """When any of these runs was there, from `start` to `end`: joined where they touch."""
    found: list[tuple[float, float]] = []
    for a, b in sorted((max(w.start, start), min(w.end, end)) for w in runs):
        if b <= a:
            continue
        if found and a <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], b))
        else:
            found.append((a, b))
    return found


def hours(runs: Iterable[WorkloadVerdict], start: float = -math.inf, end: float = math.inf) -> float:
    """Hours in which any of these runs was there."""
    return sum(b - a for a, b in spans(runs, start, end)) / 3600


def measure(runs: Sequence[WorkloadVerdict], start: float, end: float) -> Measure | None:
    """What runs of one series held and did between two moments; None: nothing. Their figures are of whole runs."""
    held = sum(len(w.gpus) * (b - a) / 3600 for w in runs for a, b in spans((w,), start, end))
    there = hours(runs, start, end)
    if held <= 0 or end <= start:
        return None
    steady = [w for w in runs if w.features.get("period_share", 0.0) >= PERIOD_SHARE_MIN]
    telling = [w for w in runs if w.features.get("generated_tokens", 0.0) > 0 and "engine_active" in w.features]
    tokens = sum(w.features["generated_tokens"] for w in telling)
    busy_seconds = sum(w.features["engine_active"] * w.gpu_hours * 3600 for w in telling)
    elapsed = sum(b - a for a, b in spans(telling))
    return Measure(
        gpus=held / there,
        gpu_hours_per_month=held / ((end - start) / 3600) * HOURS_PER_MONTH,
        busy=_mean(runs, "engine_active"),
        period_seconds=_mean(steady, "period_seconds"),
        busy_seconds_per_token=busy_seconds / tokens if tokens > 0 and busy_seconds > 0 else None,
        tokens_per_second=tokens / elapsed if tokens > 0 and elapsed > 0 else None,
        watts=_mean(runs, "power_watts"),
        clock_ratio=_mean(runs, "clock_ratio"),
        rest_watts=_mean(runs, "rest_watts"),
    )


def _mean(runs: Sequence[WorkloadVerdict], name: str) -> float | None:
    """The mean of a feature over runs that tell it, by GPU-hours."""
    told = [(w.features[name], w.gpu_hours) for w in runs if math.isfinite(w.features.get(name, math.nan))]
    weight = sum(h for _, h in told)
    return float(sum(value * h for value, h in told) / weight) if weight > 0 else None


def serves(runs: Sequence[WorkloadVerdict]) -> bool:
    """Whether somebody waits for it: its GPUs are held whether or not requests come."""
    return bool(runs) and runs[-1].kind.label in ON_DEMAND_KINDS


def since_last(
    runs: Sequence[WorkloadVerdict], fits: Callable[[WorkloadVerdict], bool], start: float
) -> tuple[float, list[WorkloadVerdict]]:
    """From when on only runs that fit were there (Unix seconds, not before `start`), and those."""
    own = [w for w in runs if fits(w)]
    others = [w.end for w in runs if not fits(w)]
    first = min((w.start for w in own), default=start)
    return max([first, start, *others]), own
